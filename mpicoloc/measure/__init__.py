"""Estimates of a slowdown and its interval from the records of shutters: one module for each meter. Pure
functions."""
