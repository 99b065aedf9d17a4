"""Slurm configuration that comes nearest to a simulated schedule."""
