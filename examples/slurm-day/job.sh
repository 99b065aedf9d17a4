#!/bin/sh
# One of the twenty jobs: the program that it is named after, in a folder of its own.
inputs=$(realpath "$1") programs=$PWD
. ./sizes
mkdir "job-$SLURM_JOB_ID" && cd "job-$SLURM_JOB_ID" || exit
case $SLURM_JOB_NAME in
lmp) exec srun lmp -in "$inputs/in.lj" -var every 1 -var steps "$LMP_STEPS" -log none ;;
hpcc) sed "s/^600 Ns/$HPCC_N Ns/" "$inputs/hpccinf.txt" >hpccinf.txt && exec srun hpcc ;;
heat2d) exec srun "$programs/heat2d" 300 "$HEAT2D_STEPS" ;;
nbody) exec srun "$programs/nbody" 400 "$NBODY_STEPS" ;;
esac
