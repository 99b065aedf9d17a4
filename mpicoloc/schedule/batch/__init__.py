"""The batch system of a machine in simulation: logs, order of the queue, allocation of nodes, outcome."""
