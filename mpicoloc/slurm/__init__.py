"""Interface to Slurm: queries, records of steps, charges, and the service that lets jobs share nodes."""
