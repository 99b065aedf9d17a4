"""Simulation of a machine's batch system on a log of its jobs: the verb `batch`."""
