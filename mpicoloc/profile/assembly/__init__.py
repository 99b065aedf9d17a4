"""From the shared memory of a job's nodes to its profile: collected, merged, written, recovered."""
