"""Who shares nodes with whom: queues, pairs, groups, the plan of the pairing service. Pure functions."""
