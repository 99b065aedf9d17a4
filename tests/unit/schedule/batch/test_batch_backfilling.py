"""What backfilling remembers and leaves out saves time only: the schedule is that of asking every job."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoloc.network.topology import xgft
from mpicoloc.schedule.batch import allocation, engine, machine, order
from mpicoloc.schedule.batch.logs import job_log, swf
from mpicoloc.schedule.batch.order import easy

TOPOLOGY = xgft.parse("XGFT(3;3,3,2;1,1,1)", 1e9)
MACHINE = machine.of_hosts(TOPOLOGY, np.arange(TOPOLOGY.n_hosts))
JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(1, 30), st.integers(1, MACHINE.n_nodes)),
    min_size=1,
    max_size=40,
)


def workload(jobs):
    """Jobs (submission, run time, limit, nodes) of one core a node."""
    lines = [
        f"{i} {s} -1 {r} {n} -1 -1 {n} {e} -1 1 1 1 1 1 1 -1 -1" for i, (s, r, e, n) in enumerate(jobs, 1)
    ]
    return job_log.workload(swf.parse(lines, "log")[0], 1, MACHINE.n_nodes)


def asks_every_job(view, first):
    """The first job of the queue that may begin, by the definition of EASY."""
    reserved = view.reservation(first)
    for place in range(len(view.queue)):
        if place != first and view.can_start(place):
            is_short = view.now_s + view.queue["estimate_s"][place] <= reserved.start_s
            if is_short or view.leaves_room(place, first, reserved):
                return place
    return None


class Places:
    """The nodes of each job."""

    def __init__(self):
        self.of_job = {}

    def began(self, simulation, job, nodes):
        self.of_job[job] = nodes.tolist()

    def ended(self, simulation, job, nodes):
        pass


def simulated(jobs, order_name, allocation_name):
    places = Places()
    done = engine.simulate(
        workload(jobs), MACHINE, order.named(order_name), allocation.named(allocation_name), [places]
    )
    return done.start_s.tolist(), places.of_job


@pytest.mark.parametrize("order_name", ["easy", "priority"])
@pytest.mark.parametrize("allocation_name", allocation.ALLOCATIONS)
@settings(max_examples=60, deadline=None)
@given(jobs=JOBS)
def test_the_schedule_is_that_of_asking_every_job_at_each_event(order_name, allocation_name, jobs):
    jobs = sorted(jobs)
    found = simulated(jobs, order_name, allocation_name)
    with mock.patch.object(easy, "backfilled", asks_every_job):
        assert simulated(jobs, order_name, allocation_name) == found
