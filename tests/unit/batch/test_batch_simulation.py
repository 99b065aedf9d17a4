"""The batch simulator: what holds for every schedule, and the small examples of Jokanovic 2014, chapter 4."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpicoloc.batch import allocation, engine, inputs, log_files, order
from mpicoloc.batch.links import SharedLinks
from mpicoloc.core.network import parse_xgft
from mpicoloc.errors import DataError, UsageError


def tree(notation):
    topology = parse_xgft(notation, 1e9)
    return inputs.of_hosts(topology, np.arange(topology.n_hosts))


MACHINE = tree("XGFT(3;3,2,2;1,1,1)")


def log_of(rows):
    """A log of jobs (submission, run time, limit, nodes), one core a node."""
    lines = [
        f"{i} {s} -1 {r} {n} -1 -1 {n} {e} -1 1 1 1 1 1 1 -1 -1" for i, (s, r, e, n) in enumerate(rows, 1)
    ]
    return log_files.parse_swf(lines, "log")[0]


class Watch:
    """Checks that no node has two jobs, and counts node seconds."""

    def __init__(self):
        self.owner, self.node_s, self.begun = {}, 0.0, {}

    def began(self, simulation, job, nodes):
        assert len(set(nodes.tolist())) == simulation.workload.n_nodes[job]
        assert not self.owner.keys() & set(nodes.tolist())
        self.owner |= dict.fromkeys(nodes.tolist(), job)
        self.begun[job] = simulation.now_s

    def ended(self, simulation, job, nodes):
        for node in nodes.tolist():
            assert self.owner.pop(node) == job
        self.node_s += (simulation.now_s - self.begun[job]) * len(nodes)


JOBS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 30), st.integers(1, 12)),
    min_size=1,
    max_size=25,
)


@pytest.mark.parametrize("order_name", order.ORDERS)
@pytest.mark.parametrize("allocation_name", allocation.ALLOCATIONS)
@settings(max_examples=25, deadline=None)
@given(jobs=JOBS)
def test_no_node_is_used_twice_and_all_jobs_end(order_name, allocation_name, jobs):
    work = inputs.workload(log_of(sorted(jobs)), 1, MACHINE.n_nodes)
    watch, shared = Watch(), SharedLinks(MACHINE, len(work))
    done = engine.simulate(
        work, MACHINE, order.named(order_name), allocation.named(allocation_name), [watch, shared]
    )
    assert (done.start_s >= work.log.submit_s).all()
    assert np.allclose(done.end_s - done.start_s, work.log.run_s)
    assert watch.node_s == pytest.approx((work.log.run_s * work.n_nodes).sum())
    if allocation_name == "exclusive":
        assert not shared.n_sharers.any()


@settings(max_examples=50, deadline=None)
@given(jobs=JOBS)
def test_backfilling_never_delays_the_first_job(jobs):
    """The begin that EASY promises the first job when it must wait is kept, with every allocation."""
    for chosen in allocation.ALLOCATIONS.values():
        promised = {}

        def watched(view, promised=promised):
            place = order.easy(view)
            if place != 0:
                job = int(view.queue["job"][0])
                promised.setdefault(job, view.reservation(0).start_s)
            return place

        work = inputs.workload(log_of(sorted(jobs)), 1, MACHINE.n_nodes)
        done = engine.simulate(work, MACHINE, watched, chosen)
        assert all(done.start_s[job] <= start_s for job, start_s in promised.items())


def most_sharing_jobs(n_nodes, n_together, subtree_nodes):
    """Jobs that one can share links with, with so many of its nodes in each subtree below them (Eq. 4.1)."""
    return n_nodes // n_together * (subtree_nodes - n_together)


@pytest.mark.parametrize(
    ("nodes", "together", "most"), [((0, 2, 4, 6), (1, 2), (4, 4)), ((0, 4), (1, 1), (2, 6))]
)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_no_job_shares_links_with_more_jobs_than_figure_4_6_allows(nodes, together, most, data):
    """The job A of both examples on XGFT(3;2,2,2;1,1,1), with jobs of one and more nodes on the others."""
    assert tuple(most_sharing_jobs(len(nodes), n, 2**level) for level, n in enumerate(together, 1)) == most
    small = tree("XGFT(3;2,2,2;1,1,1)")
    others = data.draw(st.permutations(sorted({*range(8)} - {*nodes})))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(others) - 1))))
    shared = SharedLinks(small, len(cuts) + 2)
    shared.began(SimpleNamespace(now_s=0.0), 0, np.array(nodes))
    for job, own in enumerate(np.split(np.array(others), cuts), 1):
        shared.began(SimpleNamespace(now_s=0.0), job, np.sort(own))
    assert shared.n_subtrees[0].tolist() == [len(nodes) // together[0], len(nodes) // together[1], 1]
    assert shared.n_sharers[0] <= sum(most)


def test_three_jobs_of_figure_4_10():
    """A in subtrees 2 and 5, B in subtree 2 alone, C in both: A and B, B and C, A and C share links."""
    marenostrum = inputs.named("MareNostrum")
    shared = SharedLinks(marenostrum, 3)
    second, fifth = 324, 4 * 324
    shared.began(SimpleNamespace(now_s=0.0), 0, np.array([second, fifth]))
    shared.began(SimpleNamespace(now_s=0.0), 1, np.array([second + 1, second + 18]))
    shared.began(SimpleNamespace(now_s=0.0), 2, np.array([second + 19, fifth + 18]))
    assert shared.n_sharers.tolist() == [2, 2, 2] and shared.n_pairs == {1: 2, 2: 1}
    assert marenostrum.n_nodes == 3096 and marenostrum.n_switches == 172


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2 x 1", "line 2: it does not have 18 numbers"),
        ("2 5 -1 -7 1 -1 -1 1 9 -1 1 1 1 1 1 1 -1 -1", "line 2: a run time of -7 s is negative"),
    ],
)
def test_a_damaged_line_is_told_with_its_number(line, words):
    good = "1 5 -1 7 1 -1 -1 1 9 -1 1 1 1 1 1 1 -1 -1"
    with pytest.raises(DataError, match=words):
        log_files.parse_swf([good, line], "log")
    assert log_files.parse_swf([good, line], "log", skip_damaged=True)[1] == (2,)


def test_a_log_in_the_order_of_ends_is_sorted_and_says_so(capsys):
    lines = [
        f"{job} {submit} 1 7 1 -1 -1 1 9 -1 1 1 1 1 1 1 -1 -1" for job, submit in ((2, 9), (1, 5), (3, 9))
    ]
    log, damaged = log_files.parse_swf(lines, "log")
    assert (log.number.tolist(), log.submit_s.tolist(), damaged) == ([1, 2, 3], [5, 9, 9], ())
    assert "log: sorted by submission, which in 1 line was before" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["root:x:0:0:root:/root:/bin/bash", "id;program;n_nodes", "\x7fELF\0"])
def test_a_file_that_is_no_log_is_told_what_is(line):
    for skip in (False, True):
        with pytest.raises(
            DataError, match=r"log is not a log: its first line is .*18 numbers a line, or .*sacct"
        ):
            log_files.parse([line, "x", ""], "log", skip_damaged=skip)


def test_bad_input():
    with pytest.raises(DataError, match="needs 13 nodes"):
        inputs.workload(log_of([(0, 1, 1, 13)]), 1, 12)
    with pytest.raises(DataError, match="no job in it"):
        log_files.parse_swf(["; Version: 2.2"], "log")
    with pytest.raises(UsageError, match="allocation 'x' is unknown"):
        allocation.named("x")
    with pytest.raises(UsageError, match="order 'x' is unknown"):
        order.named("x")


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
    work = inputs.workload(log_of([(s, r, -1, 1) for s, r in [(0, run_s), *others]]), 1, 64)
    chosen = order.named("fcfs"), allocation.named("first-available")
    return engine.simulate(work, tree("XGFT(1;64;1)"), *chosen, [pacer]).end_s


def test_half_the_speed_for_20_s_ends_10_s_later_and_a_job_may_be_faster_too():
    assert ends_s(100, [(50, 20)], Pacer([0.5])).tolist() == [110, 70]
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
