"""What the pairing service decides with what it knows."""

from mpicoloc.core.batch import PENDING, RUNNING, BatchJob, BatchNode, Snapshot
from mpicoloc.model.pairs import Rules
from mpicoloc.model.slowdown import MeasuredTable
from mpicoloc.model.steering import Commit, Partitions, Share
from mpicoloc.run import pairing

NODES = tuple(BatchNode(name, 4, 2.0**30, True, ("whole", "shared")) for name in ("n1", "n2"))


def job(number, state=PENDING, **more):
    return BatchJob(number, "ada", f"job{number}", state, more.pop("partition", "shared"), 1, 4, 4, **more)


def test_a_pair_of_which_nothing_is_known_any_more_is_still_moved(tmp_path):
    said = Share((1, 2), "n1")
    waiting = [job(i, wanted_nodes=("n1",), is_bound=True, admin_comment=said.text(600.0)) for i in (1, 2)]
    running = job(7, RUNNING, partition="whole", nodes=("n1",))
    how = pairing.Steering(Partitions("whole", "shared"), Rules("greedy"), MeasuredTable({}))
    found = pairing.look(Snapshot(1e9, (*waiting, running), NODES), pairing.Known(str(tmp_path)), how)
    assert found == [Commit(Share((1, 2), "n2"), (), (2.0, 2.0), "another node is free")]


def test_nodes_that_take_no_jobs_have_no_room():
    now = Snapshot(1e9, (), (NODES[0], BatchNode("tiny", 1, 1.0, True, ("debug",))))
    how = pairing.Steering(Partitions("whole", "shared"), Rules("greedy"), None)
    assert pairing._room(now, how).n_cores == 8
