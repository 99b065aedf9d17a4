"""Bubbles, memory hogs of adjustable pressure: calibration, sensitivity curves, pressure scores, propagation."""
