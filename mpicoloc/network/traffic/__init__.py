"""The messages of a job: recorded ones, and those that MPI libraries send for a collective call."""
