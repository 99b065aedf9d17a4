"""Prices, the ledger of service units, and signatures."""
