"""Packet simulation of jobs on a fat-tree, and lanes of InfiniBand."""
