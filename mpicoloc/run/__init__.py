"""What runs at a job's side and at its end: coordinator, collection of its data, the profile's making."""
