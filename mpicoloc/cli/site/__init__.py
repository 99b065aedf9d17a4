"""Verbs that set machines up."""
