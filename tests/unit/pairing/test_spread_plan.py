"""Shapes of waiting jobs that may be spread, and the halves of nodes that suit a job."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from waiting_jobs import NOW_S, job

from mpicoloc.core.batch_system import RUNNING, BatchNode, Snapshot
from mpicoloc.pairing.cores_plan import Preference, Programs
from mpicoloc.pairing.spread_plan import SPREAD_COMMENT, Shape, halves, least_loss, released, shapes

MEMORY, CPU = 0, 1
SLOWDOWNS = np.array([[1.5, 1.05], [1.0, 1.0]])
RUN_S = 1000.0


def snapshot(jobs, n_nodes=4, memory_bytes=8.0):
    names = [f"n{i}" for i in range(1, n_nodes + 1)]
    nodes = [BatchNode(name, 8, memory_bytes, True, ("cores",), (name,)) for name in names]
    return Snapshot(NOW_S, tuple(jobs), tuple(nodes))


def decided(jobs, program_of, ends_s=None, slowdowns=SLOWDOWNS):
    later = dict.fromkeys(program_of, NOW_S + RUN_S) | (ends_s or {})
    programs = Programs(program_of, slowdowns, later)
    runtime_s = dict.fromkeys(program_of, RUN_S)
    return shapes(snapshot(jobs), "cores", programs, runtime_s, np.diag(slowdowns))


def runs(number, *nodes, n_cpus=4, **others):
    n = n_cpus * len(nodes)
    return job(number, RUNNING, nodes, partition="cores", n_cpus=n, n_tasks=n, n_nodes=len(nodes), **others)


def waits(number, n_cpus=8, **others):
    given = {"comment": SPREAD_COMMENT, "reason": "Resources", "limit_s": 3600.0, "n_nodes": 1, **others}
    given = {"most_nodes": given["n_nodes"], **given}
    return job(number, partition="cores", n_cpus=n_cpus, n_tasks=n_cpus, **given)


HALF_FULL = [runs(1, "n1", "n2", "n3", "n4")]
MARK = "mpicoloc spreads this job of 1 nodes and 1 CPUs"


def test_the_first_job_gets_the_halves_that_suit_it():
    running = [runs(1, "n1", "n2"), runs(2, "n3", "n4")]
    (found,) = decided([*running, waits(3), waits(4)], {1: MEMORY, 2: CPU, 3: MEMORY, 4: MEMORY})
    assert found == Shape(3, ("n3", "n4"), (1, 2), 8, 4, MARK)
    assert found.changes() == {
        "NumNodes": "1-2",
        "NumCPUs": "8",
        "MinCPUsNode": "4",
        "Prefer": "n3|n4",
        "AdminComment": MARK,
    }


@pytest.mark.parametrize(
    "waiting",
    [
        waits(3, comment=""),
        waits(3, comment=SPREAD_COMMENT + "ing"),
        waits(3, 4),
        waits(3, is_bound=True),
        waits(3, is_shaped=True),
        waits(3, most_nodes=0),
        waits(3, reason="None"),
        waits(3, prefer="n1"),
        waits(3, admin_comment="exclusive"),
        waits(3, priority=0),
        waits(3, 40, n_nodes=5),
        waits(3, memory_bytes=9.0),
        waits(3, memory_bytes=float("inf")),
        waits(3, limit_s=RUN_S),
    ],
)
def test_jobs_that_may_not_or_cannot_be_spread_stay(waiting):
    assert decided([*HALF_FULL, waiting], {1: CPU, 3: MEMORY}) == []
    assert decided([*HALF_FULL, waits(3, memory_bytes=8.0)], {1: CPU, 3: MEMORY})


def test_the_memory_of_neighbours_is_not_available():
    neighbours = [runs(1, "n1", "n2", "n3", "n4", memory_bytes=5.0)]
    for n_bytes, is_spread in ((3.0, True), (4.0, False)):
        jobs = [*neighbours, waits(3, memory_bytes=n_bytes)]
        assert bool(decided(jobs, {1: CPU, 3: MEMORY})) == is_spread


def test_no_job_is_expected_to_end_later_than_packed():
    jobs = [*HALF_FULL, waits(3)]
    slow = np.array([[1.0, 1.4], [1.4, 1.0]])
    for end_s, is_spread in ((300, False), (500, True)):
        assert bool(decided(jobs, {1: CPU, 3: MEMORY}, {1: NOW_S + end_s}, slow)) == is_spread
    assert decided([runs(1, "n1", "n2", "n3"), waits(3)], {1: CPU, 3: MEMORY}) == [], "n4 is free"


def test_nodes_with_unknown_programs_or_too_few_free_cores_are_left_out():
    assert decided([runs(1, "n1", "n2"), runs(2, "n3", "n4", n_cpus=6), waits(3)], {2: CPU, 3: CPU}) == []
    (found,) = decided([runs(1, "n1", "n2"), runs(2, "n3", "n4"), waits(3)], {2: CPU, 3: MEMORY})
    assert found.nodes == ("n3", "n4")


def test_jobs_that_cannot_start_are_not_first():
    later = waits(2, reason="BeginTime", comment="")
    (found,) = decided([*HALF_FULL, later, waits(3)], {1: CPU, 2: CPU, 3: MEMORY})
    assert found.job == 3


def spread(number, prefer="n1|n2", **others):
    given = {"most_nodes": 2, "is_bound": True, "min_cpus": 4, "admin_comment": MARK, **others}
    return waits(number, prefer=prefer, **given)


def test_a_spread_job_stays_so_while_it_may():
    assert decided([*HALF_FULL, spread(3)], {1: CPU, 3: MEMORY}) == []
    full = runs(1, "n1", "n2", "n3", "n4", n_cpus=6)
    assert decided([full, spread(3)], {1: CPU, 3: MEMORY}) == [Shape(3, (), (1, 1), 8, 1)]
    busy = [runs(1, "n1", "n2"), runs(2, "n3", "n4")]
    (found,) = decided([*busy, spread(3)], {1: MEMORY, 2: CPU, 3: MEMORY})
    assert found == Shape(3, ("n3", "n4"), (1, 2), 8, 4, MARK), "others suit it better by now"


def test_spread_jobs_are_packed_again_as_they_were():
    first = waits(2, comment="")
    assert decided([*HALF_FULL, first, spread(3)], {1: CPU, 2: CPU, 3: CPU}) == [Shape(3, (), (1, 1), 8, 1)]
    changed = spread(4, most_nodes=1, n_nodes=1)
    now = snapshot([spread(3), changed, waits(5)])
    assert released(now) == [Shape(3, (), (1, 1), 8, 1), Preference(4, ())]
    assert released(now, ["n2"]) == released(now)
    assert released(now, ["n9"]) == []


@settings(max_examples=200, deadline=None)
@given(
    free=st.lists(st.integers(0, 2), min_size=3, max_size=6),
    seed=st.integers(0, 99),
    n_slots=st.integers(1, 4),
)
def test_no_single_halves_lose_less(free, seed, n_slots):
    """Against all choices of one half of each node, with the loss of the slowest and of the neighbours."""
    rng = np.random.default_rng(seed)
    suffered, caused = rng.random((2, len(free))).round(2)
    free = np.minimum(np.array(free), 1)
    if free.sum() < n_slots:
        return
    wanted, slowest, loss = least_loss(free, suffered, caused, 0.5, n_slots)
    assert wanted.sum() == n_slots and (wanted <= free).all()
    assert slowest == pytest.approx(suffered[wanted > 0].max())
    least = min(
        n_slots * suffered[list(nodes)].max() + caused[list(nodes)].sum()
        for nodes in itertools.combinations(np.flatnonzero(free).tolist(), n_slots)
    )
    assert loss == pytest.approx(least)


def test_second_halves_are_used_if_nodes_are_short():
    assert halves(np.array([2, 1, 0, 2]), np.array([3, 1, 0, 2]), 4).tolist() == [1, 1, 0, 2]
