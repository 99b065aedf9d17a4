"""Export of profiles and traces to formats of other programs."""
