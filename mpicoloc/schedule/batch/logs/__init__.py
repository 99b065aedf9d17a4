"""Logs of batch systems: Standard Workload Format and Slurm's `sacct`."""
