"""Plain data that the layers hand to each other: frozen dataclasses over read-only numpy arrays."""
