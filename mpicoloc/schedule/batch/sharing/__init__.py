"""Two jobs a node in simulation: who joins whom, what that costs both, and what it is worth."""
