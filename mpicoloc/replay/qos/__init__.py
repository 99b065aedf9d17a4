"""Service levels and lanes of InfiniBand: policies and their search."""
