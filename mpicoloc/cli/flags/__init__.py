"""Flags that several verbs share, and what they mean."""
