"""PageRank of a random web by power iteration: mpi4py and NumPy, pages divided over the ranks.

    mpirun -n 2 python pagerank.py [pages] [iterations]

Ranks of pages sum to one after every iteration: the program checks it and returns 1 if not.
"""

import sys

import numpy as np
from mpi4py import MPI

LINKS_PER_PAGE = 8
DAMPING = 0.85


def own_links(comm, n_pages):
    """Links that leave this rank's pages: (source page, target page) arrays."""
    begin = n_pages * comm.rank // comm.size
    end = n_pages * (comm.rank + 1) // comm.size
    # One generator for the whole web, so that the result is the same on any number of ranks.
    targets = np.random.default_rng(7).integers(0, n_pages, size=(n_pages, LINKS_PER_PAGE))
    sources = np.repeat(np.arange(begin, end), LINKS_PER_PAGE)
    return sources, targets[begin:end].ravel()


def iterate(comm, scores, sources, targets):
    """One step of the power iteration; returns the new scores and how much they changed."""
    own = np.bincount(targets, weights=scores[sources] / LINKS_PER_PAGE, minlength=scores.size)
    new = np.empty_like(scores)
    comm.Allreduce(own, new)
    new *= DAMPING
    new += (1.0 - DAMPING) / scores.size
    return new, float(np.abs(new - scores).sum())


def main(argv):
    """Run the iteration and print a result that can be verified."""
    comm = MPI.COMM_WORLD
    n_pages = int(argv[1]) if len(argv) > 1 else 100_000
    n_iterations = int(argv[2]) if len(argv) > 2 else 1000
    sources, targets = own_links(comm, n_pages)
    scores = np.full(n_pages, 1.0 / n_pages)
    change = 0.0
    t0 = MPI.Wtime()
    for _ in range(n_iterations):
        scores, change = iterate(comm, scores, sources, targets)
    elapsed_s = MPI.Wtime() - t0
    conserved = abs(scores.sum() - 1.0) < 1e-9
    if comm.rank == 0:
        print(f"pagerank: {n_pages} pages, {n_iterations} iterations, {comm.size} ranks")
        print(
            f"best page {scores.argmax()}  score {scores.max():.6e}  last change {change:.3e}  "
            f"sum {'one' if conserved else 'NOT ONE'}"
        )
        print(f"loop_s {elapsed_s:.3f}")
    return 0 if conserved else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
