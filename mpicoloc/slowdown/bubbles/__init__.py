"""Bubbles: slowdowns from curves and scores, how they spread over nodes, and uneven pressures."""
