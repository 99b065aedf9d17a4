"""Coordinators together over MPI at any number of ranks: under mpirun, under mpicoloc, and alone."""

import time

import pytest
from willing_agent import MS, VALID, Agent

from mpicoloc import config
from mpicoloc.job import agreement, coordinator, pool

MPI = pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
pytestmark = pytest.mark.mpi


def ended(steps):
    """The final results of steps that wait for others."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        time.sleep(1e-4)


def test_clocks_of_one_machine_are_the_same_as_far_as_they_are_known():
    found = ended(agreement.offset(MPI.COMM_WORLD))
    assert abs(found.offset_ns) <= found.error_ns < 1000 * MS


def test_the_first_with_something_gathers_and_tells_all():
    world = MPI.COMM_WORLD
    root = coordinator.first_with(world, world.rank == world.size - 1)
    assert root == world.size - 1
    parts = coordinator.gather(world, b"x" * world.rank, root)
    assert (parts is None) == (world.rank != root)
    assert parts is None or [len(part) for part in parts] == list(range(world.size))
    assert coordinator.bcast(world, 7 if world.rank == root else 0, root) == 7
    assert coordinator.first_with(world, False) == 0


def test_all_take_the_same_shutters_until_one_is_over():
    world, agent = MPI.COMM_WORLD, Agent()
    one = agreement.Agreement(world, agent)
    deadline_s = time.monotonic() + 60
    while one.is_active and time.monotonic() < deadline_s:
        one.step(is_over=len(agent.confirmed) >= 2)
        time.sleep(1e-3)
    assert not one.is_active
    begins = world.allgather(agent.begins[:2])
    assert begins[0] == pytest.approx(begins[world.rank], abs=1000 * MS)
    assert len(agent.confirmed) >= 2 * (world.size > 1)
    assert {verdict for _, verdict in agent.confirmed} <= {VALID}


def test_no_node_takes_a_shutter_when_one_is_not_free():
    world, agent = MPI.COMM_WORLD, Agent(is_free=MPI.COMM_WORLD.rank > 0)
    one = agreement.Agreement(world, agent)
    begun_s = time.monotonic()
    while one.is_active and time.monotonic() < begun_s + 60:
        one.step(is_over=time.monotonic() > begun_s + 2)
        time.sleep(1e-3)
    assert not one.is_active and agent.begins == []
    assert agent.asked > 0 or world.size == 1


def test_the_pool_does_all_of_a_sweep_once(monkeypatch):
    monkeypatch.setenv(config.RESTARTED_ENV, "1")  # MPI is there already
    with pool.workers(2) as executor:
        done = None if executor is None else list(executor.map(abs, range(-20, 20)))
    assert done == (None if MPI.COMM_WORLD.rank else [*map(abs, range(-20, 20))])
