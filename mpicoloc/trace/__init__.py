"""The event trace of a job: its files, and one clock for all of its ranks."""
