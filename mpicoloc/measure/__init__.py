"""From what shutters recorded to a slowdown with its interval: one module for each meter. Pure functions."""
