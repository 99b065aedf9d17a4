"""What simulations print."""
