"""What bubbles in shutters tell of a job."""
