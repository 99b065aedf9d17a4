"""A simulated batch system as files of Slurm's configuration."""
