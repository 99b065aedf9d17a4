"""Service levels and virtual lanes of InfiniBand: policies, and the search for the best one."""
