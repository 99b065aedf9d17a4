"""The network: topologies, the messages of jobs, and what these load on each level. Pure functions."""
