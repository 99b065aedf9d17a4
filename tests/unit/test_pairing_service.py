"""What the pairing service decides with what it knows."""

from pathlib import Path

import pytest

from mpicoloc.core.batch import PENDING, RUNNING, BatchJob, BatchNode, BatchQueue, Snapshot
from mpicoloc.core.features import JobFeatures
from mpicoloc.lab import slurm_files
from mpicoloc.model.pairs import Rules
from mpicoloc.model.slowdown import MeasuredTable
from mpicoloc.model.steering import Commit, Partitions, Share
from mpicoloc.run import orders, pairing

NODES = tuple(BatchNode(name, 4, 2.0**30, True, ("whole", "shared")) for name in ("n1", "n2"))
QUEUES = (BatchQueue("whole", 1, 3600.0), BatchQueue("shared", 10, 3600.0))


def job(number, state=PENDING, **more):
    given = {"partition": "shared", "n_nodes": 1, "n_tasks": 4, "n_cpus": 4, **more}
    return BatchJob(number, "ada", f"job{number}", state, **given)


def steering(policy="blossom", model=None):
    return pairing.Steering(Partitions("whole", "shared"), Rules(policy, prior_slowdown=1.3), model)


def planned(leaders, waiting, how=None, runtime_s=100.0, queues=QUEUES):
    both = (*leaders, *waiting)
    features = {each.id: JobFeatures(str(each.id), each.name, runtime_s, 4, 4, {}) for each in both}
    now = Snapshot(1e9, both, NODES, queues)
    groups = pairing.planned(leaders, waiting, features, how or steering(), now)
    return sorted(group.jobs for group in groups)


def test_a_pair_of_which_nothing_is_known_any_more_is_still_moved(tmp_path):
    said = Share((1,), ("n1",))
    waiting = job(1, wanted_nodes=("n1",), is_bound=True, admin_comment=said.text(600.0))
    running = job(7, RUNNING, partition="whole", nodes=("n1",))
    how = pairing.Steering(Partitions("whole", "shared"), Rules("greedy"), MeasuredTable({}))
    found = pairing.look(Snapshot(1e9, (waiting, running), NODES), pairing.Known(str(tmp_path)), how)
    assert found == [Commit(Share((1,), ("n2",)), (), (2.0,), "another node is free")]


@pytest.mark.parametrize("policy", ["blossom", "greedy", "fifo-shared"])
def test_leaders_go_with_waiting_jobs_only(policy):
    leaders = [job(i, RUNNING, start_s=1e9 - 10) for i in (1, 2)]
    waiting = [job(i, partition="whole") for i in (3, 4, 5)]
    groups = planned(leaders, waiting, steering(policy))
    assert sorted(i for group in groups for i in group) == [0, 1, 2, 3, 4]
    assert all(not {0, 1} <= set(group) for group in groups)
    assert sum(len(group) == 2 for group in groups) == 2


def test_jobs_pair_with_those_on_as_many_nodes():
    waiting = [job(i, partition="whole", n_nodes=1 + i % 2, n_cpus=4 + 4 * (i % 2)) for i in (1, 2, 3, 4)]
    assert planned([], waiting) == [(0, 2), (1, 3)]


def test_a_leader_that_is_nearly_over_takes_nobody():
    old = job(1, RUNNING, start_s=1e9 - 95)
    assert planned([old], [job(2, partition="whole")]) == [(0,), (1,)]


def test_a_job_whose_time_limit_cannot_grow_runs_alone():
    waiting = [job(i, partition="whole", limit_s=2000.0) for i in (1, 2)]
    assert planned([], waiting) == [(0,), (1,)]
    assert planned([], waiting, queues=()) == [(0, 1)]


def test_partitions_that_keep_pairs_apart_are_told():
    def told(*queues):
        return orders.advice(Snapshot(1e9, (), NODES, queues), Partitions("whole", "shared"))

    assert told(*QUEUES) == []
    (line,) = told(BatchQueue("whole", 1), BatchQueue("shared", 1))
    assert "PriorityTier=1 of partition shared is not above 1" in line
    (line,) = told(BatchQueue("whole", 1))
    assert "no partition shared" in line


def test_nodes_that_take_no_jobs_have_no_room():
    now = Snapshot(1e9, (), (NODES[0], BatchNode("tiny", 1, 1.0, True, ("debug",))))
    how = pairing.Steering(Partitions("whole", "shared"), Rules("greedy"), None)
    assert pairing._room(now, how).n_cores == 8


def test_the_rule_for_slurm_that_the_docs_give_is_the_one_that_is_tested():
    page = Path(__file__).parents[2] / "docs/howto/slurm-pairing.md"
    assert f"```lua\n{slurm_files.JOB_SUBMIT}```" in page.read_text()
