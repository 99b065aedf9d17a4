"""The fat-tree: its numbers, routes, readers, and what a job does to each level. Pure functions."""
