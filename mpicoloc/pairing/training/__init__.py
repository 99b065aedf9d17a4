"""Training of slowdown models with scikit-learn."""
