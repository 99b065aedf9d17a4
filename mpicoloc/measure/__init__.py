"""Computes slowdowns and their intervals from records of shutters by pure functions; a module per meter."""
