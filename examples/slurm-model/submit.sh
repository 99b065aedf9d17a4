#!/bin/sh
# A job of somebody else, who keeps the node, and four jobs of two ranks behind it, whose names have profiles.
sbatch -J other -n 2 -t 5 -o /dev/null --wrap "sleep 300" || exit
until squeue --noheader --states running | grep -q .; do sleep 0.1; done
for name in heat2d2 nbody2 heat2d2 nbody2; do
    sbatch -J $name -n 2 -t 5 -o /dev/null --wrap "sleep 5" || exit
done
