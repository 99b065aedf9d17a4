"""Truths of an MPI program at any number of ranks; run under mpirun, under mpicoloc and by hand alike."""

import numpy as np
import pytest

MPI = pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
pytestmark = pytest.mark.mpi


def test_ranks_of_the_world_are_numbered():
    world = MPI.COMM_WORLD
    assert sorted(world.allgather(world.rank)) == list(range(world.size))


def test_sum_over_all_ranks():
    world = MPI.COMM_WORLD
    total = np.empty(3)
    world.Allreduce(np.full(3, world.rank, dtype=float), total)
    assert (total == world.size * (world.size - 1) / 2).all()


def test_a_ring_hands_on_every_message():
    world = MPI.COMM_WORLD
    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    assert world.sendrecv(world.rank, dest=after, source=before) == before


def test_group_of_the_world_and_a_split():
    world = MPI.COMM_WORLD
    assert world.Get_group().Get_size() == world.size
    part = world.Split(world.rank % 2, world.rank)
    assert part.size == len(range(world.rank % 2, world.size, 2))
    part.Free()
