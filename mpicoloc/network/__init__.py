"""The network: topologies, the messages of jobs, and the load of each level. Pure functions."""
