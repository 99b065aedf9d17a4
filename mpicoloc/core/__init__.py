"""Plain data that the other folders exchange: frozen dataclasses with read-only numpy arrays."""
