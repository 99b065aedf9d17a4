"""Verbs for prices, accounts and signatures."""
