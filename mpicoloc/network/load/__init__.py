"""Routes on a fabric, and what a job's messages load on each level. Pure functions."""
