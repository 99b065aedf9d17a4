"""The decision code of the pairing service, unchanged, on a simulated machine."""

import numpy as np
import pytest
from hypothesis import given, settings
from test_shared_simulation import FOUR_NODES, Watch, log_of, queues

from mpicoloc.batch import allocation, order
from mpicoloc.batch.inputs import workload
from mpicoloc.batch.shared_simulation import SharedSimulation, Slowdowns
from mpicoloc.batch.sharing_rules import Service
from mpicoloc.pairing import policies


def run(log, true, programs=None, policy="greedy", look_s=1.0):
    true = np.array(true, float)
    service, watch = Service(1, policies.Rules(policy), look_s), Watch()
    simulation = SharedSimulation(
        workload(log, 1, 4), FOUR_NODES, order.named("easy"), allocation.named("first-available"), (watch,),
        np.zeros(len(log), int) if programs is None else np.array(programs), Slowdowns(true, true), service,
    )  # fmt: skip
    return simulation.run(), simulation, watch


def test_a_full_queue_runs_in_pairs_and_ends_sooner():
    """Eight jobs of all nodes: the first two before the first look, the others by pairs at 1.25."""
    log = log_of([0] * 9, [100] * 9, [4] * 9)
    schedule, simulation, watch = run(log, [[1.25]])
    assert watch.most == 2
    # One alone, then four pairs of 125 s each, each partner a look behind its leader.
    assert schedule.end_s.max() == pytest.approx(100 + 4 * 125, abs=4 * 2)
    assert simulation.shared_node_s == pytest.approx(4 * 4 * 125, rel=0.05)


def test_pairs_that_gain_nothing_are_left_alone():
    schedule, _, watch = run(log_of([0] * 5, [100] * 5, [4] * 5), [[2.5]])
    assert watch.most == 1
    assert schedule.end_s.max() == 500


@pytest.mark.parametrize("policy", ["greedy", "fifo-shared", "fifo"])
def test_all_policies_of_the_service_run_a_queue_to_its_end(policy):
    rng = np.random.default_rng(4)
    log = log_of([0] * 40, rng.integers(10, 30, 40), rng.choice([1, 2], 40))
    schedule, _, watch = run(log, [[1.2, 1.6], [1.1, 1.3]], rng.integers(0, 2, 40), policy)
    assert np.isfinite(schedule.end_s).all()
    assert watch.most == (1 if policy == "fifo" else 2)


@settings(max_examples=60, deadline=None)
@given(queues())
def test_no_job_is_lost(queue):
    log, programs, true = queue
    schedule, simulation, watch = run(log, true, programs, look_s=5.0)
    took_s = schedule.end_s - schedule.start_s
    assert watch.most <= 2
    assert (took_s >= log.run_s - 1e-6).all()
    occupied_s = (took_s * log.n_nodes).sum()
    assert simulation.busy_node_s + simulation.shared_node_s == pytest.approx(occupied_s)
