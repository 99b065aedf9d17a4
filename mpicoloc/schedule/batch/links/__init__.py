"""Jobs that share links in simulation: what their programs send, and what that costs them."""
