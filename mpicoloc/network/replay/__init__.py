"""Jobs replayed packet by packet on a simulated network."""
