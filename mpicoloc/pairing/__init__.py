"""Pairs of jobs for shared nodes: slowdown models, campaigns, plans."""
