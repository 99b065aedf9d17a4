"""Choice of nodes for jobs that share nodes by cores."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from waiting_jobs import NOW_S, job, node

from mpicoloc.core.batch_system import RUNNING, Snapshot
from mpicoloc.pairing import cores_plan
from mpicoloc.pairing.cores_plan import Losses, Pressure, Programs, preferences

MEMORY, CPU = 0, 1
SLOWDOWNS = np.array([[1.5, 1.05], [1.0, 1.0]])
"""Beside half a node: jobs that need memory slow each other down."""


def prefers(jobs, program_of, n_nodes=4, ends_s=None, slowdowns=SLOWDOWNS, n_cpus=8):
    nodes = [node(f"n{i}", partitions=("cores",), n_cpus=n_cpus) for i in range(1, n_nodes + 1)]
    now = Snapshot(NOW_S, tuple(jobs), tuple(nodes))
    found = preferences(now, "cores", Programs(program_of, slowdowns, ends_s or {}))
    return {one.job: one.nodes for one in found}


def runs(number, nodes, n_cpus=4):
    return job(number, RUNNING, nodes, partition="cores", n_cpus=n_cpus, n_tasks=n_cpus, n_nodes=len(nodes))


def waits(number, n_cpus=4, **others):
    return job(number, partition="cores", n_cpus=n_cpus, n_tasks=n_cpus, **others)


def test_a_job_prefers_nodes_whose_jobs_it_gets_on_with():
    running = [runs(1, ["n1"]), runs(2, ["n2"])]
    found = prefers([*running, waits(3), waits(4)], {1: MEMORY, 2: CPU, 3: MEMORY, 4: CPU})
    assert found == {3: ("n2",), 4: ("n2",)}
    found = prefers([*running, waits(3), waits(4)], {1: MEMORY, 2: MEMORY, 3: MEMORY, 4: CPU})
    assert found[3] == ("n3", "n4") and found[4] == ("n1", "n2")


def test_on_full_nodes_those_count_that_end_last():
    running = [runs(1, ["n1"]), runs(2, ["n1"]), runs(3, ["n2"]), runs(4, ["n2"])]
    programs = {1: MEMORY, 2: CPU, 3: MEMORY, 4: CPU, 5: MEMORY}
    for soon, best in ((1, "n1"), (3, "n2")):
        ends_s = {number: NOW_S + (10 if number == soon else 1000 - number) for number in programs}
        assert prefers([*running, waits(5)], programs, 2, ends_s) == {5: (best,)}


@pytest.mark.parametrize("n_cpus", [8, 9])
def test_a_job_that_fills_nodes_has_no_preference(n_cpus):
    assert prefers([runs(1, ["n1"]), waits(2, n_cpus)], {1: MEMORY, 2: MEMORY}) == {2: ()}


def test_only_waiting_jobs_of_the_partition_with_a_known_program_are_considered():
    others = [
        waits(2), waits(3, is_bound=True), waits(4, priority=0),
        job(5, partition="whole"), runs(6, ["n2"]),
    ]  # fmt: skip
    assert prefers([runs(1, ["n1"]), *others], dict.fromkeys((1, 3, 4, 5, 6), CPU)) == {}


def test_a_job_on_several_nodes_gets_as_many_that_suit_it():
    running = [runs(1, ["n1", "n2"], 8), runs(2, ["n3"]), runs(3, ["n4"])]
    programs = {1: CPU, 2: MEMORY, 3: MEMORY, 4: MEMORY}
    assert prefers([*running, waits(4, 8, n_nodes=2)], programs)[4] == ("n1", "n2")
    assert prefers([*running, waits(4, 12, n_nodes=3)], programs)[4] == (), "some must be beside memory"


def test_jobs_of_unknown_programs_take_cores_and_cost_nothing():
    found = prefers([runs(1, ["n1"]), runs(2, ["n2"]), waits(3)], {2: MEMORY, 3: MEMORY})
    assert found == {3: ("n1",)}


def test_in_a_large_cluster_a_job_prefers_a_part_of_the_nodes():
    running = [runs(i, [f"n{i}"]) for i in range(1, 200)]
    programs = dict.fromkeys(range(1, 200), CPU) | {1: MEMORY, 500: MEMORY}
    (found,) = prefers([*running, waits(500)], programs, 200).values()
    assert len(found) == cores_plan.MAX_PREFERRED and "n1" not in found


@given(st.integers(0, 2**32))
def test_losses_beside_jobs_are_those_that_add_up_as_the_jobs_begin(seed):
    rng = np.random.default_rng(seed)
    slowdowns = 1 + rng.random((3, 3))
    step_by_step = Losses(Pressure(slowdowns, 5, 1))
    entries = []
    for number in range(4):
        program, nodes = int(rng.integers(3)), np.sort(rng.permutation(5)[: rng.integers(1, 4)])
        parts = rng.choice([0.25, 0.5, 1.0], len(nodes))
        neighbour = program, nodes, parts, np.empty(0, np.int64)
        step_by_step.believed.change(*neighbour)
        step_by_step.change(*neighbour)
        entries += [(node, number, program, part) for node, part in zip(nodes, parts, strict=True)]
    *columns, part = (np.array(column) for column in zip(*entries, strict=True))
    found = Losses.beside(slowdowns, 5, *columns, part)
    for program in range(3):
        assert found.by_slot(program, 0.5) == pytest.approx(step_by_step.by_slot(program, 0.5))
