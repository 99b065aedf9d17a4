"""Quality of service by virtual lanes: lanes of jobs, weights of lanes, and how a fabric is told."""
