#!/bin/sh
# One of the twenty jobs: the program that it is named after, in a folder of its own.
inputs=$(realpath "$1") programs=$PWD
mkdir "job-$SLURM_JOB_ID" && cd "job-$SLURM_JOB_ID" || exit
case $SLURM_JOB_NAME in
lmp) exec srun lmp -in "$inputs/in.lj" -var every 1 -log none ;;
hpcc) cp "$inputs/hpccinf.txt" . && exec srun hpcc ;;
heat2d) exec srun "$programs/heat2d" 300 4000 ;;
nbody) exec srun "$programs/nbody" 400 600 ;;
esac
