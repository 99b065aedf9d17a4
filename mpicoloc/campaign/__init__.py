"""Measured pairs of programs: runs them side by side, keeps the results, has slowdown models fitted."""
