"""A fat-tree cluster of network namespaces on one machine: real MPI jobs over real links of known speed."""
