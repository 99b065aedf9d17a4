"""Queues for tests of steering."""

from mpicoloc.core.batch_system import PENDING, RUNNING, BatchJob, BatchNode, Snapshot
from mpicoloc.pairing.policies import Group
from mpicoloc.pairing.sharing_plan import Assignment, Partitions, decide

QUEUES = Partitions("whole", "shared")
NOW_S = 1e9


def node(name, is_up=True, partitions=("whole", "shared"), n_cpus=4, memory_bytes=2.0**30):
    return BatchNode(name, n_cpus, memory_bytes, is_up, partitions)


def job(number, state=PENDING, nodes=(), **others):
    start_s = NOW_S - 100 if state == RUNNING else 0.0
    told = {"partition": "whole", "n_nodes": 1, "n_tasks": 4, "n_cpus": 4, "limit_s": 600.0,
            "submit_s": float(number)}  # fmt: skip
    return BatchJob(
        number, "user", f"job{number}", state, nodes=tuple(nodes), start_s=start_s, **{**told, **others}
    )


def told(number, nodes=("n1",), leader=None, **others):
    """A job as it is once it was told to lead, or to join its leader."""
    share = Assignment((number,) if leader is None else (leader, number), tuple(nodes))
    if others.get("state") == RUNNING:
        others.setdefault("nodes", nodes)
    given = {"partition": "shared", "wanted_nodes": share.nodes, "is_bound": True, "n_nodes": len(nodes)}
    text = share.text(600.0, others.get("waits_for", ()))
    return job(number, admin_comment=text, **{**given, **others})


def two_by_two(leaders, waiting):
    """Each leader with a job, the others two by two."""
    n = len(leaders)
    pairs = [(i, n + i) if n + i < n + len(waiting) else (i,) for i in range(n)]
    rest = range(n + min(n, len(waiting)), n + len(waiting))
    pairs += [tuple(rest[i : i + 2]) for i in range(0, len(rest), 2)]
    return [Group(pair, 100.0) for pair in pairs]


def decided(jobs, nodes, plan=two_by_two, runtime_s=None):
    now = Snapshot(NOW_S, tuple(jobs), tuple(nodes))
    return decide(now, QUEUES, plan, runtime_s or {}, lambda job, others: 1.5)
