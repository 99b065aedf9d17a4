"""Placement of jobs on nodes that they share."""
