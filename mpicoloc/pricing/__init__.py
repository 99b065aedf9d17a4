"""From a slowdown to the price of a job. Pure functions."""
