"""Many simulations: on all cores or under mpirun, each noted when it has ended. Starts processes."""
