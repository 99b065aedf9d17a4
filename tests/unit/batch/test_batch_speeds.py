"""Jobs whose speed changes while they run: they end when their work is done."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoloc.batch import engine, machine, order
from mpicoloc.batch.allocation import registry
from mpicoloc.batch.logs import job_log, swf
from mpicoloc.core.topology import Topology

MACHINE = machine.of_hosts(Topology((64,), (1,), (1e9,)), np.arange(64))


class Pacer:
    """Sets the speed of job 0 when other jobs begin and end."""

    def __init__(self, speeds, last=1.0):
        self.speeds, self.last = speeds, last

    def began(self, simulation, job, nodes):
        if job and 0 in simulation.nodes:
            simulation.set_speed(0, self.speeds[job - 1])

    def ended(self, simulation, job, nodes):
        if job and 0 in simulation.nodes:
            simulation.set_speed(0, self.last)


def ends_s(run_s, others, pacer):
    """Ends of job 0 and of others (submission, run time), all of one node."""
    rows = [(0, run_s), *others]
    lines = [f"{i} {s} -1 {r} 1 -1 -1 1 -1 -1 1 1 1 1 1 1 -1 -1" for i, (s, r) in enumerate(rows, 1)]
    work = job_log.workload(swf.parse(lines, "log")[0], 1, MACHINE.n_nodes)
    chosen = order.named("fcfs"), registry.named("first-available")
    return engine.simulate(work, MACHINE, *chosen, [pacer]).end_s


def test_half_the_speed_for_20_s_ends_10_s_later():
    assert ends_s(100, [(50, 20)], Pacer([0.5])).tolist() == [110, 70]


def test_a_job_may_be_faster_too():
    assert ends_s(100, [(50, 500)], Pacer([2.0])).tolist() == [75, 550]


@settings(max_examples=50, deadline=None)
@given(
    run_s=st.integers(1, 100),
    changes=st.lists(st.tuples(st.integers(1, 50), st.floats(0.1, 4)), min_size=1, max_size=30),
)
def test_the_work_that_was_done_is_the_run_time(run_s, changes):
    """Integral of the speed from begin to end."""
    changes = sorted(changes, key=lambda change: change[0])
    # The others run on, so that none of them sets the speed again.
    end_s = ends_s(
        run_s, [(time_s, 10_000) for time_s, _ in changes], Pacer([speed for _, speed in changes])
    )[0]
    times_s = np.array([0, *(time_s for time_s, _ in changes), np.inf])
    speeds = np.array([1, *(speed for _, speed in changes)])
    spans_s = np.diff(np.minimum(times_s, end_s))
    assert (spans_s * speeds).sum() == pytest.approx(run_s)
