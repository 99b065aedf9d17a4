"""Estimators, interference and price: pure functions, no file, MPI, clock or global random state."""
