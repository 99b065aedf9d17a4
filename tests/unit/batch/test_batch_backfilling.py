"""Shortcuts in backfilling save time only: the schedule is the same as if every job were asked."""

import sys
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pages import ROOT
from test_batch_simulation import log_of, tree

from mpicoloc.batch import allocation, engine, inputs, order
from mpicoloc.batch.comparison import Record

sys.path.insert(0, str(ROOT / "benchmarks" / "batch"))

import thesis_log

MACHINE = tree("XGFT(3;3,2,3;1,1,1)")
JOBS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 30), st.integers(1, 60), st.integers(1, MACHINE.n_nodes)),
    min_size=10,
    max_size=40,
)


def workload(jobs, n_nodes=MACHINE.n_nodes):
    return inputs.workload(log_of(jobs), 1, n_nodes)


def asks_every_job(view, first):
    """The first job of the queue that may begin, by the definition of EASY."""
    reserved = view.reservation(first)
    for place in range(len(view.queue)):
        if place != first and view.can_start(place):
            is_short = view.now_s + view.queue["estimate_s"][place] <= reserved.start_s
            if is_short or stays_possible(view, place, first, reserved.start_s):
                return place
    return None


def stays_possible(view, place, first, time_s):
    """Whether the job at `first` finds nodes at that time with the one at `place` still there."""
    own, other = (int(view.queue["n_nodes"][i]) for i in (first, place))
    return view._can_start_at(own, time_s, view.nodes_for(other))


def simulated(jobs, order_name, allocation_name):
    places, chosen = Record(len(jobs)), (order.named(order_name), allocation.named(allocation_name))
    done = engine.simulate(workload(jobs), MACHINE, *chosen, [places])
    return done.start_s.tolist(), places.runs


@pytest.mark.parametrize("order_name", ["easy", "priority"])
@pytest.mark.parametrize("allocation_name", allocation.ALLOCATIONS)
@settings(max_examples=60, deadline=None)
@given(jobs=JOBS)
def test_the_schedule_is_that_of_asking_every_job_at_each_event(order_name, allocation_name, jobs):
    jobs = sorted(jobs)
    found = simulated(jobs, order_name, allocation_name)
    with mock.patch.object(order, "backfilled", asks_every_job):
        assert simulated(jobs, order_name, allocation_name) == found


def test_so_is_the_schedule_of_thousands_of_jobs_on_a_large_machine():
    own = inputs.named("MareNostrum")
    drawn = zip(*(column.astype(int).tolist() for column in thesis_log.draw(0, 5000)), strict=True)
    work = workload(list(drawn), own.n_nodes)

    def starts_s():
        return engine.simulate(work, own, order.named("easy"), allocation.named("exclusive")).start_s

    found_s = starts_s()
    with mock.patch.object(order, "backfilled", asks_every_job):
        assert np.array_equal(starts_s(), found_s)


def test_a_larger_job_may_leave_room_where_a_smaller_one_does_not():
    """Under exclusive the smaller one would go to the subtree that the first of the queue waits for.

    Of three subtrees of 8 nodes one has 3 free nodes, and 8 at 100 s; the second has 4; the third has none.
    """
    own = tree("XGFT(3;2,4,3;1,1,1)")
    rows = [(0, 100, 2), (0, 100, 2), (0, 100, 1), (0, 5, 1), (0, 5, 2)]  # the first subtree
    rows += [(0, 1000, 2), (0, 1000, 2), (0, 1000, 8)]  # the second and third
    rows += [(10, 50, 8), (11, 500, 3), (11, 500, 4)]
    work = workload([(submit, run, run, n) for submit, run, n in rows], own.n_nodes)
    chosen = order.named("easy"), allocation.named("exclusive")
    assert engine.simulate(work, own, *chosen).start_s[-3:].tolist() == [100, 150, 11]
