"""Delays from one row a job and subtree: those that the loads of all links give."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpicoloc.batch.links import LinkRows, job_delays
from mpicoloc.core.network import Placement, Topology
from mpicoloc.network import utilisation
from mpicoloc.network.routing import LinkLoads

TREE = Topology((3, 2, 2), (1, 2, 1), (1.0, 1.0, 1.0))


def uniform_loads(hosts, of_level):
    """The same number on all links above the subtrees of each level that a job is in, as far as it climbs."""
    up, down = [], []
    for level in range(TREE.height):
        trees, n_inside = np.unique(hosts // TREE.subtree_hosts(level), return_counts=True)
        for way, number in ((up, n_inside), (down, len(hosts) - n_inside)):
            links = np.zeros(
                (TREE.n_links(level) // TREE.subtree_roots(level + 1), TREE.subtree_roots(level + 1))
            )
            if len(trees) > 1:
                links[trees] = of_level(level, number)[:, None]
            way.append(links.ravel())
    return LinkLoads(tuple(up), tuple(down))


def rows_of(jobs, busy):
    """The rows of all jobs above subtrees that several of them are in."""
    users = {}
    for i, hosts in enumerate(jobs):
        for level in range(1, TREE.height):
            trees, n_inside = np.unique(hosts // TREE.subtree_hosts(level), return_counts=True)
            for tree, n in zip(trees.tolist(), n_inside.tolist(), strict=True):
                if len(trees) > 1 and busy[i][level]:
                    users.setdefault((level, tree), []).append((i, busy[i][level], n, len(hosts) - n))
    shared = [rows for rows in users.values() if len(rows) > 1]
    job, part, inside, outside = np.array([row for rows in shared for row in rows]).reshape(-1, 4).T
    return job.astype(int), [len(rows) for rows in shared], part, np.stack((inside, outside))


@settings(max_examples=100, deadline=None)
@given(
    hosts=st.permutations(range(12)),
    cuts=st.sets(st.integers(1, 11), min_size=1, max_size=3),
    busy=st.lists(st.tuples(*[st.floats(0.01, 1)] * 3), min_size=4, max_size=4),
    pace=st.lists(st.floats(1, 3), min_size=4, max_size=4),
)
def test_they_are_the_slowdowns_of_jobs_that_load_all_their_links_alike(hosts, cuts, busy, pace):
    jobs = [np.sort(part) for part in np.split(np.array(hosts), sorted(cuts))]
    n, pace = len(jobs), np.array(pace[: len(jobs)])
    loads = [
        uniform_loads(own, lambda level, number, i=i: np.full(len(number), busy[i][level]))
        for i, own in enumerate(jobs)
    ]
    senders = [uniform_loads(own, lambda level, number: number.astype(float)) for own in jobs]
    # Slower by others on its nodes, a job takes that much longer without those on its links.
    expected = [one.value for one in utilisation.mutual_slowdown(TREE, loads, pace, senders)] * pace
    job, n_users, part, n_hosts = rows_of(jobs, busy)
    there, place = np.unique(job, return_inverse=True)
    found = pace.copy()
    if len(there):
        rows = LinkRows(place, np.array(n_users), part, n_hosts)
        reach = [utilisation.available_bps(TREE, Placement(own)) > 0 for own in jobs]
        alone = np.array([max(np.array(busy[i]) * reach[i]) for i in there])
        found[there] += job_delays(rows, alone, pace[there])
    assert found == pytest.approx(expected, abs=1e-3)
    assert n == len(expected)


def test_a_spread_job_delays_others_no_less():
    """Two jobs that keep the links above a switch busy for 90 % of their time, the second one spread."""
    rows = LinkRows(np.array([0, 1]), np.array([2]), np.array([0.9, 0.9]), np.array([[1.0, 3.0], [3.0, 9.0]]))
    packed, spread = (job_delays(rows, np.array([0.9, 0.9]), np.array([1.0, pace])) for pace in (1.0, 0.5))
    assert 0 < packed[0] <= spread[0]
