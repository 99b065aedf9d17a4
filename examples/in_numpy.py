"""The demo's two programs in mpi4py and NumPy, for machines without a C compiler.

    mpirun -n 2 python in_numpy.py heat2d POINTS_PER_SIDE STEPS
    mpirun -n 2 python in_numpy.py nbody BODIES STEPS

Each checks that heat or momentum is conserved, and returns 1 if it is not.
"""

import sys

import numpy as np
from mpi4py import MPI

SOFTENING = 1e-3
DT = 1e-4


def heat2d(comm, n, n_steps):
    """Heat on a periodic square plate, rows divided over the ranks; returns whether it was conserved."""
    first, end = n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size
    above, below = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    x = (np.arange(n) + 0.5) / n - 0.5
    plate = np.zeros((end - first + 2, n))  # the first and the last row are the neighbours'
    plate[1:-1] = np.exp(-40.0 * (x[first:end, None] ** 2 + x**2))
    before = comm.allreduce(plate[1:-1].sum())
    for _ in range(n_steps):
        comm.Sendrecv(plate[-2], below, recvbuf=plate[0], source=above)
        comm.Sendrecv(plate[1], above, recvbuf=plate[-1], source=below)
        here = plate[1:-1]
        change = plate[:-2] + plate[2:] - 4.0 * here
        change[:, 1:] += here[:, :-1]
        change[:, :-1] += here[:, 1:]
        change[:, 0] += here[:, -1]
        change[:, -1] += here[:, 0]
        here += 0.2 * change
    return abs(comm.allreduce(plate[1:-1].sum()) - before) < 1e-9 * before


def nbody(comm, n, n_steps):
    """Bodies under their own gravity, divided over the ranks; returns whether momentum was conserved."""
    counts = [3 * (n * (i + 1) // comm.size - n * i // comm.size) for i in range(comm.size)]
    first, end = n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size
    position = np.random.default_rng(42).random((n, 3)) - 0.5
    velocity = np.zeros((end - first, 3))
    for _ in range(n_steps):
        by_axis = position.T.copy()
        for i in range(first, end):
            distance = by_axis - by_axis[:, i : i + 1]
            r2 = np.einsum("ij,ij->j", distance, distance) + SOFTENING
            velocity[i - first] += DT / n * np.einsum("ij,j->i", distance, 1.0 / (r2 * np.sqrt(r2)))
        comm.Allgatherv(position[first:end] + DT * velocity, [position, counts])
    return np.abs(comm.allreduce(velocity.sum(axis=0))).sum() < 1e-9 * n


def main(argv):
    """Run the program named first and print how long its loop took."""
    comm = MPI.COMM_WORLD
    program, n, n_steps = {"heat2d": heat2d, "nbody": nbody}[argv[1]], int(argv[2]), int(argv[3])
    t0 = MPI.Wtime()
    is_conserved = program(comm, n, n_steps)
    if comm.rank == 0:
        print(f"{argv[1]} of size {n}, {n_steps} steps: {'' if is_conserved else 'NOT '}conserved")
        print(f"loop_s {MPI.Wtime() - t0:.3f}")
    return 0 if is_conserved else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
