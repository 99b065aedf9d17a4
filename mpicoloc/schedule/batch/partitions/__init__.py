"""Partitions: parts of a machine, each with a queue of its own."""
