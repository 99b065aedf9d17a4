"""Bubbles at work: calibration of a machine, and what a program suffers from them and does to them."""
