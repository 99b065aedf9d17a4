"""Bubbles (adjustable memory hogs): calibration, sensitivity curves, pressure scores, propagation."""
