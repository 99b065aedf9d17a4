"""Verbs that say who should share, where, and what that costs."""
