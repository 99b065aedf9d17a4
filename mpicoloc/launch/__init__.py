"""Starts a rank within milliseconds: the library for a binary, the launcher's environment. Plain Python."""
