"""Which job runs on which nodes: simulated annealing, exhaustive search and a lower bound."""
