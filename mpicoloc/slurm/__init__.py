"""A real Slurm: its answers, its job records and charges, and the service that lets jobs share nodes."""
