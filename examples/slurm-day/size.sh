#!/bin/sh
# Sizes for job.sh: with them each of the four programs takes about SECONDS of processor time on this machine.
#
#   sh size.sh SECONDS > sizes
inputs=$(realpath "$(dirname "$0")") programs=$PWD wanted=${1:?how many seconds?}
cd "$(mktemp -d)" || exit

# size VARIABLE POWER N PROGRAM: the time of `PROGRAM N` grows with this power of N.
size() {
    variable=$1 power=$2 n=$3 program=$4 sized=
    while [ -z "$sized" ]; do
        times >before
        "$program" "$n" >log 2>&1 || { cat log >&2; exit 1; }
        times >after
        # The second lines are of what ended: 0m1.23s 0m0.04s. Less than a second is too little to tell.
        sized=$(awk -F '[ms ]+' -v n="$n" -v power="$power" -v wanted="$wanted" '
            FNR == 2 { taken = 60 * ($1 + $3) + $2 + $4 - earlier; earlier = taken }
            END { if (taken > 1) print int(n * (wanted / taken) ^ (1 / power)) }' before after)
        n=$((n * 2))
    done
    echo "$variable=$sized"
}
lammps() { lmp -in "$inputs/in.lj" -var every 1 -var steps "$1" -log none; }
hpl() { sed "s/^600 Ns/$1 Ns/" "$inputs/hpccinf.txt" >hpccinf.txt && hpcc; }
heat() { "$programs/heat2d" 300 "$1"; }
bodies() { "$programs/nbody" 400 "$1"; }
size LMP_STEPS 1 500 lammps
size HPCC_N 3 600 hpl
size HEAT2D_STEPS 1 4000 heat
size NBODY_STEPS 1 600 bodies
