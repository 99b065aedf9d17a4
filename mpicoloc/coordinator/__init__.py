"""The extra rank of each node. It joins MPI, looks on, has the profile written. Alone imports mpi4py."""
