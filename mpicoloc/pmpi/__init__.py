"""Binding to the C core: contract, wrapper generator, builds."""
