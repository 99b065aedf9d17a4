"""From the records of shutters to a slowdown with its interval: one module for each meter. Pure functions."""
