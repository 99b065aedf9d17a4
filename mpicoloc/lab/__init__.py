"""A fat-tree cluster of network namespaces on one machine: real MPI jobs over links of a set speed."""
