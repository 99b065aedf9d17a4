"""Plain data that the rooms hand to each other: frozen dataclasses over read-only numpy arrays."""
