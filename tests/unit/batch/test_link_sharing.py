"""Jobs that share links in simulation: what they cost each other is exact, and no work is lost."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from test_batch_simulation import log_of

from mpicoloc.batch import allocation, engine, inputs, order
from mpicoloc.batch.links import LinkSharing
from mpicoloc.batch.order import Allocation
from mpicoloc.batch.shared_simulation import SharedSimulation, Slowdowns, blind
from mpicoloc.batch.sharing_rules import Joining
from mpicoloc.core import network
from mpicoloc.core.network import Topology
from mpicoloc.errors import DataError
from mpicoloc.place import utilisation_files

MACHINE = inputs.of_hosts(Topology((4, 4), (1, 2), (1e9, 1e9)), np.arange(16))


def work_of(rows, on=MACHINE):
    """Jobs (submission, run time, nodes) whose run times are known, one core a node."""
    return inputs.workload(log_of([(s, r, -1, n) for s, r, n in rows]), 1, on.n_nodes)


def on_nodes(*wanted):
    """An allocation that gives jobs, in this order, these nodes."""
    left = [np.array(nodes) for nodes in wanted]

    def choose(machine, uses, n_nodes):
        free = (nodes for nodes in left if len(nodes) == n_nodes and not uses[nodes].any())
        return next(((nodes, 1) for nodes in free), None)

    return Allocation("told", choose, is_bound_by_number=False)


def run(work, busy, programs=None, nodes=(), on=MACHINE, by="easy", observers=()):
    """The schedule, and who was delayed."""
    which = np.zeros(len(work), int) if programs is None else np.array(programs)
    links = LinkSharing(on, np.array(busy, float), which)
    chosen = on_nodes(*nodes) if nodes else allocation.named("first-available")
    done = engine.simulate(work, on, order.named(by), chosen, (links, *observers))
    assert done.end_s - done.start_s == pytest.approx(work.log.run_s + links.lost_s)
    return done, links


def alike(u, pace=1.0):
    """Time for each second of work of two equal jobs that keep their links busy for a part u of it.

    With x = u (1 + o) as the time in which they send, s = pace - u + x, p = x / s and o = p / (2 - p).
    """
    return u + sqrt(u**2 + (pace - u) ** 2)


@pytest.mark.parametrize("u", [0.05, 0.3, 0.5, 0.8, 1.0])
def test_two_equal_jobs_end_at_the_closed_form_times(u):
    """1,000 s and 400 s of work: after 400 s of both, the first goes on alone."""
    done, links = run(work_of([(0, 1000, 2), (0, 400, 2)]), [[0, u]], nodes=([0, 4], [1, 5]))
    slow = alike(u)
    assert done.end_s == pytest.approx([400 * slow + 600, 400 * slow], rel=1e-4)
    assert links.lost_s == pytest.approx([400 * (slow - 1)] * 2, rel=1e-3)


def test_the_job_with_fewer_hosts_on_the_links_suffers_more():
    """Both always send: one with one host beside three takes 1 + 3 times as long, the other 1 + 1 / 3."""
    nodes = ([0, 4], [1, 2, 3, 5, 6, 7])
    done, _ = run(work_of([(0, 100, 2), (0, 150, 6)]), [[0, 1]], nodes=nodes)
    assert done.end_s == pytest.approx([200 + 50, 200], rel=1e-4)


def test_a_job_that_comes_later_delays_only_what_is_left():
    done, _ = run(work_of([(0, 100, 2), (50, 20, 2)]), [[0, 1]], nodes=([0, 4], [1, 5]))
    assert done.end_s == pytest.approx([50 + 40 + 30, 50 + 40], rel=1e-4)


def test_a_job_that_waits_for_other_links_has_time_to_lose():
    """Its host's link is busy all the time, so that links which it needs half of it cost nothing."""
    busy = [[1, 0.2]]
    done, _ = run(work_of([(0, 100, 2), (0, 100, 2)]), busy, nodes=([0, 4], [1, 5]))
    assert done.end_s.tolist() == [100, 100]


def test_jobs_inside_switches_and_programs_without_figures_delay_nobody():
    work = work_of([(0, 100, 2), (0, 100, 2), (0, 100, 2)])
    done, links = run(work, [[0, 1], [0, 0]], [0, 0, 1], nodes=([0, 4], [1, 2], [3, 5]))
    assert done.end_s.tolist() == [100, 100, 100]
    assert not links.lost_s.any()


def test_three_jobs_of_figure_4_10():
    """A and B share links of level 1, B and C too, A and C of level 2; each link has two users.

    All always send, so each works at half its pace until it is alone on its links.
    """
    marenostrum = inputs.named("MareNostrum")
    second, fifth = 324, 4 * 324
    nodes = ([second, fifth], [second + 1, second + 18], [second + 19, fifth + 18])
    work = work_of([(0, 300, 2), (0, 200, 2), (0, 100, 2)], marenostrum)
    done, _ = run(work, [[0, 1, 1]], nodes=nodes, on=marenostrum)
    assert done.end_s == pytest.approx([500, 400, 200], rel=1e-4)
    # Of level 2 alone: A and C meet, and B stays below it.
    done, _ = run(work, [[0, 0, 1]], nodes=nodes, on=marenostrum)
    assert done.end_s == pytest.approx([400, 200, 200], rel=1e-4)


def test_nodes_and_links_together():
    """Two jobs on the same four nodes: pace 1.5 by the nodes, and their links are each other's, too."""
    four = inputs.of_hosts(Topology((2, 2), (1, 2), (1e9, 1e9)), np.arange(4))
    work, which, u = work_of([(0, 1000, 4), (0, 400, 4)], four), np.zeros(2, int), 0.6
    links = LinkSharing(four, np.array([[0, u]]), which)
    told = blind(Slowdowns(np.array([[1.5]]), np.array([[1.5]])))
    chosen = order.named("easy"), allocation.named("first-available")
    shared = SharedSimulation(work, four, *chosen, (links,), which, told, Joining(is_blind=True))
    done, slow = shared.run(), alike(u, 1.5)
    assert done.end_s == pytest.approx([400 * slow + 600, 400 * slow], rel=1e-4)
    # What one job loses to links does not hold what it loses to nodes.
    assert links.lost_s == pytest.approx([400 * (slow - 1.5)] * 2, rel=1e-3)


@pytest.mark.parametrize(
    ("n_nodes", "chosen"),
    [(2, on_nodes([0, 4], [1, 5], range(16))), (6, allocation.named("first-available"))],
)
def test_who_waits_is_promised_the_later_ends(n_nodes, chosen):
    """Both end after 200 s; one that needs all nodes is promised that, and not 100 s."""
    promised = []

    def watched(view):
        if view.now_s == 10 and not promised:
            promised.append(view.reservation(0).start_s)
        return order.easy(view)

    work = work_of([(0, 100, n_nodes), (0, 100, n_nodes), (10, 5, 16)])
    links = LinkSharing(MACHINE, np.array([[0, 1.0]]), np.zeros(3, int))
    done = engine.simulate(work, MACHINE, watched, chosen, (links,))
    assert promised == pytest.approx([200], rel=1e-4)
    assert done.start_s[2] == pytest.approx(200, rel=1e-4)


JOBS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 12)), min_size=1, max_size=20
)
DEEP = inputs.of_hosts(network.parse_xgft("XGFT(3;3,2,2;1,1,1)", 1e9), np.arange(12))
PARTS = st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=2, max_size=2)


@pytest.mark.parametrize("order_name", order.ORDERS)
@settings(max_examples=25, deadline=None)
@given(jobs=JOBS, busy=PARTS, data=st.data())
def test_all_jobs_end_and_their_work_is_done(order_name, jobs, busy, data):
    which = data.draw(st.lists(st.integers(0, 1), min_size=len(jobs), max_size=len(jobs)))
    done, links = run(work_of(sorted(jobs), DEEP), busy, which, on=DEEP, by=order_name)
    assert np.isfinite(done.end_s).all()
    assert (links.lost_s >= 0).all()


@pytest.mark.parametrize("order_name", order.ORDERS)
@settings(max_examples=15, deadline=None)
@given(jobs=JOBS)
def test_links_that_nobody_uses_change_nothing(order_name, jobs):
    work = work_of(sorted(jobs), DEEP)
    done, _ = run(work, [[0.5, 0, 0]], on=DEEP, by=order_name)
    alone = engine.simulate(work, DEEP, order.named(order_name), allocation.named("first-available"))
    assert (done.start_s == alone.start_s).all() and (done.end_s == alone.end_s).all()


@settings(max_examples=50, deadline=None)
@given(jobs=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), min_size=1, max_size=4), busy=PARTS)
def test_where_nobody_waits_links_end_no_job_earlier(jobs, busy):
    """At most twelve nodes in four jobs, which are spread over the switches."""
    work = work_of([(submit_s, run_s, 3) for submit_s, run_s in sorted(jobs)], DEEP)
    nodes = [np.arange(i, 12, 4) for i in range(4)]
    which = np.arange(len(jobs)) % 2
    done, _ = run(work, busy, which, nodes=nodes, on=DEEP, by="fcfs")
    assert (done.start_s == work.log.submit_s).all()
    assert (done.end_s >= work.log.submit_s + work.log.run_s - 1e-9).all()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"ep": {1: 0.1}}, "t.csv has none of the programs that the jobs run \\(lu, cg\\)"),
        ({"lu": {1: -0.1}}, "level 1 of lu is -0.1"),
        ({"lu": {3: 0.1}}, "lu uses level 3, but the machine's links only have levels 0 to 2"),
    ],
)
def test_bad_utilisation(table, words):
    with pytest.raises(DataError, match=words):
        utilisation_files.of_programs(("lu", "cg"), table, 3, "t.csv")


def test_utilisation_of_programs():
    found = utilisation_files.of_programs(("lu", "cg"), {"cg": {1: 0.25, 2: 1.2}, "ep": {1: 0.1}}, 3, "t.csv")
    assert found.tolist() == [[0, 0, 0], [0, 0.25, 1]]
