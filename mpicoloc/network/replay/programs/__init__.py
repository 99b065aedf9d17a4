"""What the ranks of a job do, as programs for the packet simulator: recorded, read, or synthetic."""
