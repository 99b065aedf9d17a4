"""Packet simulation of jobs on a fat-tree, with virtual lanes of InfiniBand."""
