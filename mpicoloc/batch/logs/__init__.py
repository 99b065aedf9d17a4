"""Logs of batch systems, as columns of jobs."""
