"""Bubbles, memory hogs of a set size: calibration, sensitivity curves, pressure scores, propagation."""
