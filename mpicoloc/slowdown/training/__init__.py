"""Fits models of slowdown to measured pairs. The only home of scikit-learn and optuna."""
