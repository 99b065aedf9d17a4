"""Profiles as files of other programs: one module for each format, ``write(job, out)``."""
