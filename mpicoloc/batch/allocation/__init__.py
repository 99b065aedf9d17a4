"""Allocations: which nodes a job gets."""
