"""Jobs that share nodes by cores or are spread: capacity, exact times, the model's choice of neighbours."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from test_shared_simulation import log_of

from mpicoloc.batch import allocation, engine, order, slots
from mpicoloc.batch.inputs import of_hosts, workload
from mpicoloc.batch.shared_simulation import Slowdowns
from mpicoloc.core.network import Topology
from mpicoloc.errors import DataError, UsageError

N_NODES, N_CORES = 3, 4
MACHINE = of_hosts(Topology((3,), (1,), (1e9,)), np.arange(N_NODES))
NONE = [[1.0, 1.0], [1.0, 1.0]]
QUIET, LOUD = 0, 1
PAIRS = [[1.0, 1.2], [1.1, 1.6]]
"""Slowdowns with half of a node each; the diagonal is that beside an identical job."""


class Watch:
    """Observer that records the nodes of each job, and checks the numbers of nodes and slots in use."""

    def __init__(self):
        self.nodes = {}

    def began(self, simulation, job, nodes):
        self.nodes[job] = nodes.tolist()
        self.check(simulation)

    def ended(self, simulation, job, nodes):
        assert nodes.tolist() == self.nodes[job]
        self.check(simulation)

    def check(self, simulation):
        view, c = simulation.view, simulation.view.machine.n_nodes // N_NODES
        used = (view.uses != order.FREE).reshape(-1, c)
        assert used.sum() == view.machine.n_nodes - view.n_free
        assert simulation.n_busy_nodes == used.any(axis=1).sum()


def run(log, name, pairs=NONE, programs=None, by="easy", chosen="best-fit"):
    """The schedule, and the watch, of jobs that share three nodes of four cores."""
    work = workload(log, N_CORES, N_NODES)
    which = np.zeros(len(log), np.int64) if programs is None else np.array(programs)
    true, watch = np.array(pairs, float), Watch()
    simulation = slots.SlotSimulation(
        work, MACHINE, order.named(by), slots.fill(allocation.named(chosen)), (watch,), which,
        Slowdowns(true, true), slots.POLICIES[name],
    )  # fmt: skip
    return simulation.run(), watch, simulation


def jobs_of(submit_s, run_s, n_cores):
    """A log of jobs that request cores."""
    n_nodes = [-(-n // N_CORES) for n in n_cores]
    log = log_of(submit_s, run_s, n_nodes)
    log.n_processors[:] = n_cores
    return log


def test_neighbours_cost_by_their_cores_and_add_up():
    """A loud job suffers 1.1 beside two quiet cores and 1.15 beside three; a quiet one 1.1 beside it."""
    log = jobs_of([0, 0, 0], [110.0, 60.0, 40.0], [1, 2, 1])
    schedule, _, simulation = run(log, "cores", PAIRS, [LOUD, QUIET, QUIET])
    # Loud: 40 * 1.1 s beside 3 quiet cores (1.15), 60 * 1.1 beside 2 (1.1), alone afterwards.
    assert schedule.end_s[2] == pytest.approx(44.0)
    assert schedule.end_s[1] == pytest.approx(66.0)
    done = 44.0 / 1.15 + 22.0 / 1.1
    assert schedule.end_s[0] == pytest.approx(66.0 + 110.0 - done)
    assert simulation.shared_node_s == pytest.approx(66.0)
    assert simulation.busy_node_s == pytest.approx(schedule.end_s[0])


def test_the_slowest_node_sets_the_speed():
    """Six cores: a whole node, which nobody disturbs, and half of another."""
    log = jobs_of([0, 0], [100.0, 200.0], [6, 2])
    schedule, watch, _ = run(log, "cores", PAIRS, [QUIET, LOUD])
    assert watch.nodes[1] == [node for node in watch.nodes[0] if node in watch.nodes[1]]
    assert schedule.end_s[0] == pytest.approx(120.0)


@pytest.mark.parametrize(("other", "pace"), [(None, 1 / 1.6), (QUIET, 1.1 / 1.6), (LOUD, 1.0)])
def test_a_spread_job_gains_what_it_cost_itself_when_packed(other, pace):
    log = log_of([0, 0], [100.0, 1e5], [1, 1])
    if other is None:
        log = log_of([0], [100.0], [1])
    schedule, watch, _ = run(log, "spread", PAIRS, [LOUD, other][: len(log)])
    assert len(watch.nodes[0]) == 2
    assert schedule.end_s[0] == pytest.approx(100.0 * pace)


def test_a_spread_job_of_too_many_nodes_is_packed_on_some():
    """Six halves on three nodes: packed as in the log."""
    schedule, watch, _ = run(log_of([0], [100.0], [3]), "spread", PAIRS, [LOUD])
    assert watch.nodes[0] == [0, 1, 2]
    assert schedule.end_s[0] == pytest.approx(100.0)


def test_the_model_chooses_the_neighbour_that_costs_least():
    """The third job is loud, and finds a loud neighbour on the node that best fit fills first."""
    log = jobs_of([0, 0, 1], [1e3, 1e3, 10.0], [3, 3, 1])
    ends = {}
    for name in ("cores", "cores-model"):
        schedule, _, _ = run(log, name, [[1.0, 1.01], [1.01, 1.6]], [LOUD, QUIET, LOUD])
        ends[name] = schedule.end_s[2] - schedule.start_s[2]
    assert ends["cores"] == pytest.approx(10 * (1 + 0.6 * 3 / 2))
    assert ends["cores-model"] == pytest.approx(10 * (1 + 0.01 * 3 / 2))


def test_the_model_packs_a_job_that_spreading_would_slow():
    """Beside the loud job, which is on all nodes but one, the quiet one would suffer more than alone."""
    log = jobs_of([0, 1], [1e3, 10.0], [4, 4])
    schedule, watch, _ = run(log, "spread-model", [[1.0, 1.9], [1.9, 1.0]], [LOUD, QUIET])
    assert len(watch.nodes[1]) == 1
    assert schedule.end_s[1] == pytest.approx(11.0)


def test_the_model_counts_that_both_halves_of_a_node_disturb_each_other():
    """One node is empty; a half of it and a half beside the other job cost less than both of its halves."""
    log = jobs_of([0, 1], [1e3, 10.0], [4, 4])
    schedule, watch, _ = run(log, "spread-model", [[1.6, 1.05], [1.05, 1.6]], [0, 1])
    assert len(watch.nodes[1]) == 2
    assert schedule.end_s[1] - schedule.start_s[1] == pytest.approx(10 * 1.05 / 1.6)


@pytest.mark.parametrize(
    ("name", "estimate_s", "start_s"),
    [
        ("cores-model", 110.0, 1.0),
        ("cores-model", 125.0, 132.0),
        ("cores", 90.0, 1.0),
        ("cores", 110.0, 132.0),
    ],
)
def test_backfilling_with_a_model_expects_slowed_jobs_to_end_later(name, estimate_s, start_s):
    """The quiet job beside the loud one ends after 120 s, when the fourth has enough cores."""
    log = jobs_of([0, 0, 0, 1, 1], [1e3, 100.0, 1e3, 10.0, estimate_s], [7, 2, 2, 3, 1])
    schedule, _, _ = run(log, name, PAIRS, [QUIET, QUIET, LOUD, QUIET, QUIET])
    assert schedule.start_s[3:].tolist() == pytest.approx([120.0, start_s])


JOBS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 60), st.integers(1, N_NODES * N_CORES)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(JOBS, st.sampled_from(["fcfs", "easy"]), st.sampled_from(["cores", "cores-model"]))
def test_without_slowdowns_cores_are_nodes_of_a_larger_machine(jobs, by, name):
    """Any free core will do, so orders plan with cores exactly as with so many nodes."""
    jobs.sort()
    submit_s, run_s, n_cores = zip(*jobs, strict=True)
    found, _, _ = run(jobs_of(submit_s, run_s, n_cores), name, by=by)
    n = N_NODES * N_CORES
    machine = of_hosts(Topology((n,), (1,), (1e9,)), np.arange(n))
    alone = workload(log_of(submit_s, run_s, n_cores), 1, n)
    expected = engine.simulate(alone, machine, order.named(by), allocation.named("first-available"))
    assert found.start_s.tolist() == expected.start_s.tolist()


@settings(max_examples=60, deadline=None)
@given(
    JOBS,
    st.data(),
    st.sampled_from(["cores", "cores-model", "spread", "spread-model"]),
    st.sampled_from(["best-fit", "first-available"]),
)
def test_no_job_suffers_more_than_the_worst_neighbours_could_cause(jobs, data, name, chosen):
    jobs.sort()
    submit_s, run_s, n_cores = zip(*jobs, strict=True)
    programs = data.draw(st.lists(st.integers(0, 1), min_size=len(jobs), max_size=len(jobs)))
    schedule, _, simulation = run(jobs_of(submit_s, run_s, n_cores), name, PAIRS, programs, chosen=chosen)
    ratio = (schedule.end_s - schedule.start_s) / np.array(run_s)
    assert (ratio < 1 + 2 * 0.6).all()
    assert (ratio > (1 / 1.6 if name.startswith("spread") else 1.0) - 1e-9).all()
    assert not simulation.beside and simulation.n_busy_nodes == 0


def test_a_job_takes_as_many_cores_as_its_share_of_the_memory():
    log = replace(log_of([0, 0, 0], [1.0] * 3, [1, 1, 1]), memory_bytes=np.array([30.0, 90.0, -1.0]))
    log.n_processors[:] = 2, 1, 3
    work = replace(workload(log, 4, 4), node_bytes=100.0)
    assert slots.POLICIES["cores"].slots_of(work).tolist() == [3, 4, 3]
    assert slots.POLICIES["cores"].slots_of(replace(work, node_bytes=np.inf)).tolist() == [2, 1, 3]
    assert slots.POLICIES["spread"].slots_of(work).tolist() == [2, 2, 2]
    with pytest.raises(
        DataError,
        match=r"the memory of 5 processors, .*; 2 of 3 jobs do not fit: give more --memory-per-node",
    ):
        slots.POLICIES["cores"].slots_of(replace(work, node_bytes=50.0))


@pytest.mark.parametrize("name", ["cores", "spread"])
def test_bad_input(name):
    with pytest.raises(DataError, match=r"job 1 needs 5 processors, too many for 1 node of 4 cores; 1 of 2"):
        log = log_of([0, 0], [1.0, 1.0], [1, 1])
        log.n_processors[:] = 5, 4
        slots.POLICIES[name].slots_of(workload(log, N_CORES, N_NODES))
    with pytest.raises(DataError, match="give --cores-per-node"):
        slots.POLICIES["cores"].slots_of(workload(log_of([0], [1.0], [1]), 1, N_NODES))
    with pytest.raises(DataError, match="nodes have 3 cores, of which jobs cannot have half"):
        slots.POLICIES["spread"].slots_of(workload(log_of([0], [1.0], [1]), 3, N_NODES))
    with pytest.raises(UsageError, match="virtual-blocks chooses whole nodes"):
        slots.fill(allocation.named("virtual-blocks"))
