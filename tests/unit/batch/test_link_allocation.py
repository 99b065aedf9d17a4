"""Allocations that look at the jobs on the links, fragmentation, and up-links without jobs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from test_batch_simulation import JOBS, log_of, tree

from mpicoloc.batch import allocation, engine, fragmentation, inputs, order
from mpicoloc.batch.link_allocation import FewestSharers, LeastDelay, candidates
from mpicoloc.batch.links import LinkSharing, SharedLinks
from mpicoloc.batch.order import FREE

MACHINE = tree("XGFT(3;4,3,2;1,1,1)")
ORDER = order.named("easy")


def run(rows, links, name="best-fit", on=MACHINE):
    work = inputs.workload(log_of(rows), 1, on.n_nodes)
    return engine.simulate(work, on, ORDER, allocation.named(name), [links])


class Places:
    """Nodes of each job."""

    def __init__(self):
        self.of = {}

    def began(self, simulation, job, nodes):
        self.of[job] = nodes.tolist()

    def ended(self, simulation, job, nodes):
        pass


def places(rows, links, name="best-fit", on=MACHINE):
    seen = Places()
    work = inputs.workload(log_of(rows), 1, on.n_nodes)
    engine.simulate(work, on, ORDER, allocation.named(name), [links, seen])
    return seen.of


@settings(max_examples=200, deadline=None)
@given(
    taken=st.sets(st.integers(0, 23), max_size=20),
    n_nodes=st.integers(1, 24),
    load=st.lists(st.integers(0, 5), min_size=6, max_size=6),
)
def test_candidates_are_free_nodes_of_the_right_number(taken, n_nodes, load):
    uses = np.zeros(24, np.uint8)
    uses[list(taken)] = 1
    if n_nodes > 24 - len(taken):
        return
    nodes, _ = allocation.best_fit(MACHINE, uses, n_nodes)
    found = list(candidates(MACHINE, uses, nodes, np.array(load)))
    assert found[0] is nodes
    for one in found:
        assert len(one) == n_nodes
        assert (np.diff(one) > 0).all()
        assert (uses[one] == FREE).all()


def test_a_job_goes_where_no_other_job_uses_the_links():
    """A job of 5 nodes is on switches 0 and 1; best fit puts one of 6 nodes beside it, on 1 and 2."""
    machine = tree("XGFT(2;4,6;1,1)")
    rows = [(0, 100, 100, 5), (1, 50, 50, 6)]
    n_sharers = {}
    for kind in (SharedLinks, FewestSharers):
        links = kind(machine, 2)
        places(rows, links, on=machine)
        n_sharers[kind] = links.n_sharers.sum()
    assert n_sharers == {SharedLinks: 2, FewestSharers: 0}


@settings(max_examples=60, deadline=None)
@given(jobs=JOBS)
def test_jobs_begin_as_early_as_by_best_fit(jobs):
    """The choice of nodes moves no start, as any free nodes will do."""
    rows = sorted(jobs)
    alone = run(rows, SharedLinks(MACHINE, len(rows)))
    done = run(rows, FewestSharers(MACHINE, len(rows)))
    assert np.array_equal(alone.start_s, done.start_s)


BUSY = np.array([[0.0, 0.8], [0.0, 0.05]])
LOUD, QUIET = 0, 1


@pytest.mark.parametrize("programs", [(LOUD, QUIET, LOUD), (QUIET, LOUD, LOUD)])
def test_a_loud_job_goes_beside_a_quiet_one(programs):
    """Three nodes are free beside each of two jobs of 5 nodes on 8, and the third job needs four."""
    machine = tree("XGFT(2;4,4;1,1)")
    rows = [(0, 1000, 1000, 5), (1, 1000, 1000, 5), (2, 100, 100, 5)]
    links = LeastDelay(machine, BUSY, np.array(programs))
    found = places(rows, links, on=machine)
    plain = LinkSharing(machine, BUSY, np.array(programs))
    places(rows, plain, on=machine)
    assert links.lost_s.sum() <= plain.lost_s.sum()
    loud = found[programs.index(LOUD)]
    assert len({node // 4 for node in found[2]} & {node // 4 for node in loud}) < 2


def test_jobs_that_end_at_the_instant_of_a_start_delay_nobody():
    """At 100 s a loud job ends and another begins: beside the one that stays it would still be delayed."""
    machine = tree("XGFT(2;4,6;1,1)")
    rows = [(0, 100, 100, 6), (0, 1000, 1000, 6), (100, 50, 50, 6)]
    links = LeastDelay(machine, np.array([[0.0, 0.5]]), np.zeros(3, int))
    found = places(rows, links, on=machine)
    assert not {node // 4 for node in found[2]} & {node // 4 for node in found[1]}


@settings(max_examples=40, deadline=None)
@given(jobs=JOBS, seed=st.integers(0, 5))
def test_no_work_is_lost_and_none_is_left(jobs, seed):
    rows = sorted(jobs)
    programs = np.random.default_rng(seed).integers(0, 2, len(rows))
    links = LeastDelay(MACHINE, np.array([[0, 0.7, 0.4], [0, 0.1, 0.0]]), programs)
    done = run(rows, links)
    work_s = np.array([r for _, r, _, _ in rows])
    assert done.end_s - done.start_s == pytest.approx(work_s + links.lost_s)


def test_uplinks_are_idle_while_jobs_fit_switches():
    links = SharedLinks(MACHINE, 2)
    run([(0, 10, 10, 4), (10, 10, 10, 8)], links)
    assert links.used_switch_s == 2 * 10


def test_fragmentation_by_class():
    found = fragmentation.compact_frac(np.array([4, 4, 10, 16, 17]), np.array([1, 2, 4, 5, -1]), 4)
    assert found == {"1": 0.5, "2-4": 0.5, "5-16": None}


def test_switches_of_the_logs_nodes():
    log = log_of([(0, 1, 1, 2), (0, 1, 1, 2), (0, 1, 1, 1), (0, 1, 1, 1)])
    machine = replace(MACHINE, host_names=MACHINE.node_names())
    assert fragmentation.of_log(log, machine) is None
    named = replace(log, node_list=np.array(["n[0-3]", "n3,n4", "elsewhere", "n[["], object))
    assert fragmentation.of_log(named, machine).tolist() == [1, 2, -1, -1]
    assert fragmentation.of_log(named, MACHINE) is None, "a notation has no names"
    unknown = replace(log, node_list=np.array(["x"] * 4, object))
    assert fragmentation.of_log(unknown, machine) is None
