"""Which messages a job sends: recorded ones, and those that MPI libraries send for a collective call."""
