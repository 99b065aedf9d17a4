"""Verbs that run and watch jobs."""
