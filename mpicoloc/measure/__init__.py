"""Slowdowns and their intervals from the records of shutters: one module for each meter. Pure functions."""
