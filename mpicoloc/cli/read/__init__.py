"""Verbs that show what profiles say."""
