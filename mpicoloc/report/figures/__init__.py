"""Figures of the page, drawn with matplotlib."""
