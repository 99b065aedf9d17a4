"""Programs of ranks: synthetic, recorded, or read from traces of other tools."""
