"""Simulation: pure functions, no file, MPI, clock or global random state."""
