"""Tables and lines for the terminal."""
