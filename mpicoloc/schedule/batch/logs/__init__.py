"""Logs of batch systems in Standard Workload Format."""
