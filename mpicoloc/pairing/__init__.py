"""Who shares a node with whom: slowdown models, campaigns, plans."""
