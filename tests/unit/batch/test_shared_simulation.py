"""Two jobs a node in simulation: what they cost each other is exact, and no work is lost."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpicoloc.batch import allocation, comparison, engine, order, page, shared_simulation
from mpicoloc.batch.inputs import JobLog, of_hosts, workload
from mpicoloc.batch.shared_simulation import NO_JOB, SharedSimulation
from mpicoloc.batch.sharing_rules import Joining
from mpicoloc.core.network import Topology

FOUR_NODES = of_hosts(Topology((2, 2), (1, 2), (1e9, 1e9)), np.arange(4))
BLIND, MODEL = Joining(is_blind=True), Joining(is_blind=False)


def log_of(submit_s, run_s, n_nodes, limit_s=None, user=None, program=None):
    n = len(submit_s)
    whole = {
        name: np.full(n, -1) for name in ("n_processors", "user", "program", "queue", "partition", "previous")
    }
    whole["user"] = np.full(n, 1) if user is None else np.array(user)
    whole["program"] = np.zeros(n, int) if program is None else np.array(program)
    return JobLog(
        number=np.arange(1, n + 1),
        submit_s=np.array(submit_s, float),
        run_s=np.array(run_s, float),
        limit_s=np.array(run_s if limit_s is None else limit_s, float),
        n_nodes=np.array(n_nodes),
        think_s=np.zeros(n),
        **whole,
    )


class Watch:
    """Observer that checks every node at every change."""

    def __init__(self):
        self.on = {}
        self.most = 0

    def began(self, simulation, job, nodes):
        assert len(set(nodes.tolist())) == len(nodes)
        for node in nodes.tolist():
            self.on.setdefault(node, set()).add(job)
            self.most = max(self.most, len(self.on[node]))
        self.check(simulation)

    def ended(self, simulation, job, nodes):
        for node in nodes.tolist():
            self.on[node].remove(job)
        self.check(simulation)

    def check(self, simulation):
        for node in range(simulation.view.machine.n_nodes):
            here = set(simulation.jobs_on[:, node].tolist()) - {NO_JOB}
            assert here == self.on.get(node, set())
            assert (simulation.view.uses[node] == 0) == (not here)
        assert simulation.view.n_free == int((simulation.view.uses == 0).sum())
        assert (
            int(simulation.releases["n_nodes"].sum())
            == simulation.view.machine.n_nodes - simulation.view.n_free
        )


def run(
    log, sharing, true, programs=None, believed=None, by="easy", chosen="first-available", machine=FOUR_NODES
):
    """The schedule, the simulation and what was watched."""
    true = np.array(true, float)
    work = workload(log, 1, machine.n_nodes)
    which = np.zeros(len(log), int) if programs is None else np.array(programs)
    told = shared_simulation.Slowdowns(true if believed is None else np.array(believed, float), true)
    if sharing.is_blind:
        told = shared_simulation.blind(told)
    watch = Watch()
    simulation = SharedSimulation(
        work, machine, order.named(by), allocation.named(chosen), (watch,), which, told, sharing
    )
    return simulation.run(), simulation, watch


def test_two_jobs_that_slow_each_other_end_at_the_closed_form_times():
    """1,000 s and 400 s of work: the second ends after 400 s x 1.5, the first has 600 left then."""
    schedule, simulation, _ = run(log_of([0, 0], [1000, 400], [4, 4]), BLIND, [[1.5]])
    assert schedule.start_s.tolist() == [0, 0]
    assert schedule.end_s == pytest.approx([600 + 600, 600])
    assert simulation.busy_node_s == pytest.approx(4 * 1200)
    assert simulation.shared_node_s == pytest.approx(4 * 600)


def test_a_job_that_joins_later_slows_only_what_is_left():
    """Program 0 suffers 2 beside 1, and 1 suffers 1.25 beside 0."""
    true = [[1, 2], [1.25, 1]]
    schedule, _, _ = run(log_of([0, 100], [1000, 400], [4, 4]), BLIND, true, [0, 1])
    # Second: 100 + 400 x 1.25 = 600. First: 100 + 500 / 2 done by then, 650 left.
    assert schedule.end_s == pytest.approx([600 + 650, 600])


def test_a_job_goes_as_fast_as_on_its_slowest_node():
    """A job of four nodes beside two of two nodes each, of which one ends earlier."""
    true = [[1, 1.2, 3], [1, 1, 1], [1, 1, 1]]
    log = log_of([0, 1, 1], [1000, 3000, 299], [4, 2, 2])
    schedule, _, _ = run(log, BLIND, true, [0, 1, 2])
    # 1 s alone, 299 s at 1/3, then at 1/1.2.
    assert schedule.end_s[2] == pytest.approx(300)
    assert schedule.end_s[0] == pytest.approx(300 + (1000 - 1 - 299 / 3) * 1.2)


def test_a_model_keeps_apart_what_gains_nothing_together():
    slow = run(log_of([0, 0], [1000, 400], [4, 4]), MODEL, [[2.1]])[0]
    fast = run(log_of([0, 0], [1000, 400], [4, 4]), MODEL, [[1.9]])[0]
    assert slow.start_s.tolist() == [0, 1000]
    assert fast.start_s.tolist() == [0, 0]


def test_a_model_counts_what_a_wide_job_loses_on_all_of_its_nodes():
    """One node joins a job of four nodes: 1 / 1.1 is won, 4 (1 - 1 / 1.5) = 1.33 is lost."""
    true = [[1, 1.5], [1.1, 1]]
    log = log_of([0, 0], [1000, 100], [4, 1])
    assert run(log, MODEL, true, [0, 1])[0].start_s.tolist() == [0, 1000]
    true[0][1] = 1.25  # 4 (1 - 1 / 1.25) = 0.8
    assert run(log, MODEL, true, [0, 1])[0].start_s.tolist() == [0, 0]


def test_the_model_takes_the_better_of_two_partners():
    true = [[1, 1, 1.9], [1, 1, 1.1], [1.9, 1.1, 1]]
    log = log_of([0, 0, 1], [1000, 1000, 100], [2, 2, 2])
    _, simulation, _ = run(log, MODEL, true, [0, 1, 2])
    assert simulation.schedule.end_s == pytest.approx([1000, 101 + 10 + 1000 - 1 - 100 - 0, 111], abs=1e-6)


def test_who_joins_does_not_delay_the_first_job_of_the_queue():
    """A job of three nodes runs to 100, one of four waits for that, a third would join until 400."""
    log = log_of([0, 1, 2], [100, 50, 300], [3, 4, 1])
    true = [[1.0, 3.0, 1.0], [3.0, 1.0, 3.0], [1.0, 3.0, 1.0]]
    schedule, _, _ = run(log, MODEL, true, [0, 1, 2])
    assert schedule.start_s[1] == pytest.approx(100)
    assert schedule.start_s[2] >= 100


def test_packing_leaves_nodes_free():
    log = log_of([0, 0], [100, 100], [2, 2])
    spread, packed = (run(log, Joining(is_blind=False, packs=packs), [[1.25]])[1] for packs in (False, True))
    assert spread.schedule.end_s.tolist() == [100, 100]
    assert spread.busy_node_s == pytest.approx(400)
    assert packed.schedule.end_s == pytest.approx([125, 125])
    assert packed.busy_node_s == pytest.approx(250)


@st.composite
def queues(draw):
    n = draw(st.integers(1, 14))
    times = st.integers(1, 40)
    submit_s = np.cumsum(draw(st.lists(st.integers(0, 20), min_size=n, max_size=n)))
    run_s = draw(st.lists(times, min_size=n, max_size=n))
    extra_s = draw(st.lists(st.integers(0, 30), min_size=n, max_size=n))
    sizes = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    programs = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    values = draw(st.lists(st.sampled_from([1.0, 1.1, 1.5, 2.0, 3.5]), min_size=4, max_size=4))
    limit_s = [a + b for a, b in zip(run_s, extra_s, strict=True)]
    return log_of(submit_s, run_s, sizes, limit_s), programs, np.reshape(values, (2, 2))


@settings(max_examples=150, deadline=None)
@given(
    queues(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["fcfs", "easy"]),
    st.sampled_from(["first-available", "first-contiguous", "best-fit", "exclusive", "virtual-blocks"]),
)
def test_work_is_conserved_and_all_jobs_end(queue, is_blind, packs, by, chosen):
    log, programs, true = queue
    sharing = Joining(is_blind, overtakes=by != "fcfs", packs=packs)
    schedule, simulation, watch = run(log, sharing, true, programs, by=by, chosen=chosen)
    took_s = schedule.end_s - schedule.start_s
    work = simulation.workload
    assert watch.most <= 2
    assert (schedule.start_s >= log.submit_s).all()
    assert (took_s >= log.run_s - 1e-6).all()
    assert (took_s <= log.run_s * true.max() + 1e-6).all()
    occupied_s = (took_s * work.n_nodes).sum()
    assert simulation.busy_node_s + simulation.shared_node_s == pytest.approx(occupied_s)
    told = comparison.of_schedule(
        work, schedule, 4, work.n_nodes, simulation.busy_node_s, simulation.shared_node_s
    )
    assert told.lost_node_hours * 3600 == pytest.approx(
        occupied_s - (log.run_s * work.n_nodes).sum(), abs=1e-6
    )


@settings(max_examples=150, deadline=None)
@given(queues(), st.booleans())
def test_without_slowdown_first_come_first_served_never_ends_later(queue, is_blind):
    """Two jobs a node at full speed are a machine with more room: in order of arrival, nobody is later."""
    log, programs, _ = queue
    shared = run(
        log, Joining(is_blind, overtakes=False), np.ones((2, 2)), programs, np.ones((2, 2)), by="fcfs"
    )[0]
    alone = engine.simulate(
        workload(log, 1, 4), FOUR_NODES, order.named("fcfs"), allocation.named("first-available")
    )
    assert (shared.end_s <= alone.end_s + 1e-9).all()


@settings(max_examples=150, deadline=None)
@given(queues())
def test_a_model_that_is_right_never_delays_the_first_job(queue):
    """The reservation that the first job of the queue has when it comes first is kept."""
    log, programs, true = queue
    reserved = {}

    class Reservations:
        def began(self, simulation, job, nodes):
            self.look(simulation)

        def ended(self, simulation, job, nodes):
            pass

        def look(self, simulation):
            view = simulation.view
            if len(simulation.waiting) and not view.can_start(0):
                first = int(simulation.waiting["job"][0])
                reserved.setdefault(first, view.reservation(0).start_s)

    work = workload(log, 1, 4)
    told = shared_simulation.Slowdowns(true, true)
    simulation = SharedSimulation(
        work, FOUR_NODES, order.named("easy"), allocation.named("first-available"), (Reservations(),),
        np.array(programs), told, MODEL,
    )  # fmt: skip
    schedule = simulation.run()
    for job, start_s in reserved.items():
        assert schedule.start_s[job] <= start_s + 1e-6


def test_figures_over_seeds_have_an_interval():
    found = page.over_seeds([1.0, 2.0, 3.0], "1")
    assert found.value == 2
    # Student's t of two degrees of freedom is 4.3027; the error of the mean is 1 / sqrt 3.
    assert (found.low, found.high) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-3)
    assert page.over_seeds([5.0], "1").method == "one seed"
    assert page.over_seeds([1.0, 1.2], "1", 1.0).low == 1.0
    ratio = page.ratio_over_seeds([2.0, 8.0])
    assert ratio.value == pytest.approx(4)
    assert 0 < ratio.low < 4 < ratio.high
