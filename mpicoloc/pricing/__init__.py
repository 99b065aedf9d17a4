"""The price of a job from its slowdown. Pure functions."""
