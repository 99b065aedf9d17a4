#!/bin/sh
# Twenty jobs of four programs into a partition of Slurm; prints their numbers, and ends when all have ended.
#
#   sh submit.sh PARTITION [ROUNDS OF FOUR]
here=$(dirname "$0")
for round in $(seq "${2:-5}"); do
    for program in lmp hpcc heat2d nbody; do
        sbatch --parsable -p "$1" -J $program -n 1 -t 5 -o %x-%j.log "$here/job.sh" "$here" || exit
    done
done
# A squeue that fails, while slurmctld starts again, says nothing about the jobs.
until rest=$(squeue --noheader --me) && [ -z "$rest" ]; do sleep 0.5; done
