"""Logs as the benchmarks of `mpicoloc batch` write them."""


def write(path, number, submit_s, run_s, limit_s, n_nodes):
    """Write jobs in Standard Workload Format, one processor a node; each argument is a column."""
    with open(path, "w") as file:
        for i, submit, run, limit, n in zip(number, submit_s, run_s, limit_s, n_nodes, strict=True):
            file.write(f"{i} {submit:.0f} -1 {run:.0f} {n} -1 -1 {n} {limit:.0f} -1 1 1 1 1 1 1 -1 -1\n")
