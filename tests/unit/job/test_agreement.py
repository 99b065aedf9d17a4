"""Coordinators of several nodes reach the same decisions from the values that they exchange."""

import pytest
from hypothesis import given, strategies as st
from willing_agent import MS, VALID, Agent

from mpicoloc.job import agreement
from mpicoloc.job.agreement import Agreement, Offer, apart_ns, bubble_of_all, plan, verdict_of_all
from mpicoloc.pmpi import contract

BUBBLED = contract.MC_VERDICT_BUBBLED
LEVEL_2, PROBE = 2001, 1


@st.composite
def _offers(draw):
    return [
        Offer(
            n_jobs=draw(st.integers(1, 8)),
            period_ns=draw(st.integers(20, 60_000)) * MS,
            duration_ns=draw(st.integers(200, 100_000)) * 1000,
            now_ns=10**15 + draw(st.integers(0, 500)) * MS,
            bound_ns=draw(st.integers(0, 2 * MS)),
            max_ns=400 * MS,
        )
        for _ in range(draw(st.integers(2, 5)))
    ]


@given(_offers(), st.integers(1, 1 << 40), st.integers(0, 3000), st.integers(300, 10_000))
def test_a_plan_leaves_time_to_agree_and_keeps_the_pace(offers, i, since_ms, slack_ms):
    last_ns = offers[0].now_ns - since_ms * MS
    found = plan(offers, i, last_ns, slack_ms * MS)
    if all(offer.n_jobs == 1 for offer in offers):
        assert found is None
        return
    wanted_ns = max(offer.duration_ns for offer in offers)
    if found is None:
        assert apart_ns(offers) > wanted_ns / 4
        return
    period_ns = max(offer.period_ns for offer in offers)
    assert found.t0_ns >= max(offer.now_ns for offer in offers) + slack_ms * MS + 2 * period_ns
    assert found.t0_ns - last_ns >= max(offer.n_jobs * offer.period_ns for offer in offers)
    assert wanted_ns <= found.duration_ns <= 4 * wanted_ns
    # What is left of the shutter when each edge may be this far off is most of it.
    assert 2 * apart_ns(offers) <= found.duration_ns / 4
    assert found == plan(offers[::-1], i, last_ns, slack_ms * MS)


@pytest.mark.parametrize(
    ("own", "others", "whole"),
    [
        (VALID, [VALID, VALID], VALID),
        (VALID, [VALID, contract.MC_VERDICT_MOVED], contract.MC_VERDICT_ELSEWHERE),
        (contract.MC_VERDICT_LATE, [VALID], contract.MC_VERDICT_LATE),
        (contract.MC_VERDICT_MOVED, [contract.MC_VERDICT_SILENT], contract.MC_VERDICT_MOVED),
        (BUBBLED, [BUBBLED], BUBBLED),
        (BUBBLED, [VALID], contract.MC_VERDICT_ELSEWHERE),
        (VALID, [BUBBLED], contract.MC_VERDICT_ELSEWHERE),
    ],
)
def test_a_shutter_counts_on_all_nodes_or_on_none(own, others, whole):
    offers = [Offer(verdict=verdict) for verdict in (own, *others)]
    assert verdict_of_all(own, offers) == whole


@pytest.mark.parametrize(
    ("bubble", "is_wanted", "n_jobs", "others", "result"),
    [
        (LEVEL_2, True, 2, 8001, LEVEL_2),
        (LEVEL_2, False, 2, 8001, 0),  # for the slowdown beside co-runners
        (LEVEL_2, False, 1, PROBE, LEVEL_2),
        (LEVEL_2, True, 2, 0, 0),
        (PROBE, True, 2, LEVEL_2, PROBE),
        (0, True, 1, LEVEL_2, 0),
    ],
)
def test_a_bubble_runs_on_all_nodes_or_on_none(bubble, is_wanted, n_jobs, others, result):
    first = Offer(n_jobs=n_jobs, period_ns=40 * MS, duration_ns=30 * MS, max_ns=400 * MS, bubble=bubble,
                  is_bubble_wanted=is_wanted)  # fmt: skip
    offers = [first, first._replace(n_jobs=1, bubble=others)]
    assert bubble_of_all(offers) == result
    found = plan(offers, 1, 0, 0)
    assert (found is not None) == (n_jobs > 1 or result > 0)
    assert found is None or (found.bubble, found.for_bubble) == (result, n_jobs == 1)


def test_a_clock_is_known_less_and_less_well():
    found = agreement.Offset(offset_ns=5, error_ns=1000, t_ns=0)
    assert found.bound_ns(0) == 1000
    assert found.bound_ns(10**9) == 1000 + 50_000


class Clock:
    """Tells a later time at each look: no test depends on how busy the machine is."""

    LOOK_NS = 20_000

    def __init__(self):
        self.at_ns = 10**15

    def __call__(self):
        self.at_ns += self.LOOK_NS
        return self.at_ns


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    """Coordinators of one process take turns: who waits for another waits in vain until its next turn."""
    monkeypatch.setattr(agreement, "_LOOKS", 1)
    monkeypatch.setattr(agreement, "clock_ns", Clock())


class World:
    """Communicators of so many coordinators in one process, each taking a step in turn."""

    def __init__(self, n):
        self.calls = [[] for _ in range(n)]
        self.mail = {}


class Comm:
    def __init__(self, world, rank):
        self.world, self.rank = world, rank

    def Get_size(self):
        return len(self.world.calls)

    def Get_rank(self):
        return self.rank

    def Iallgather(self, mine, everybody):
        calls = self.world.calls
        i = len(calls[self.rank])
        calls[self.rank].append(mine)
        return Request(calls, i, everybody)

    def Send(self, message, other, tag):
        self.world.mail.setdefault((self.rank, other), []).append(message)

    def Iprobe(self, source, tag):
        return bool(self.world.mail.get((source, self.rank)))

    def Recv(self, message, source, tag):
        message[:] = self.world.mail[source, self.rank].pop(0)


class Request:
    def __init__(self, calls, i, everybody):
        self.calls, self.i, self.everybody = calls, i, everybody

    def Test(self):
        if any(len(own) <= self.i for own in self.calls):
            return False
        width = {len(own[self.i]) for own in self.calls}
        assert len(width) == 1, "coordinators are in different calls"
        n = width.pop()
        for k, own in enumerate(self.calls):
            self.everybody[k * n : (k + 1) * n] = own[self.i]
        return True


def live(agents, seconds=1.2):
    """The coordinators of these agents until all have ended, one of them when the time is over."""
    world = World(len(agents))
    all_of_them = [Agreement(Comm(world, k), agent) for k, agent in enumerate(agents)]
    end_ns = agreement.clock_ns() + int(seconds * 1e9)
    limit_ns = agreement.clock_ns() + 20 * 10**9
    while any(one.is_active for one in all_of_them) and agreement.clock_ns() < limit_ns:
        for k, one in enumerate(all_of_them):
            one.step(is_over=k == 0 and agreement.clock_ns() > end_ns)
        agreement.clock_ns.at_ns += MS
    assert not any(one.is_active for one in all_of_them)


def test_all_nodes_take_the_same_shutters_and_hear_the_same_of_them():
    agents = [Agent(), Agent(n_jobs=1), Agent()]
    live(agents)
    assert len(agents[0].begins) >= 1
    # one clock in all of them, as far as it is known
    for agent in agents[1:]:
        assert agent.begins == pytest.approx(agents[0].begins, abs=5e6)
    assert all(verdict == VALID for agent in agents for _, verdict in agent.confirmed)
    assert all(agent.shared for agent in agents)


def test_a_job_without_company_has_shutters_for_bubbles_only():
    agents = [Agent(n_jobs=1, drawn=drawn, verdict=BUBBLED) for drawn in (LEVEL_2, 8001, PROBE)]
    live(agents, 8.0)
    assert len(agents[0].had) > 1 and set(agents[0].had) == {LEVEL_2}
    assert all(agent.had == agents[0].had and agent.shared is False for agent in agents)
    assert all(verdict == BUBBLED for agent in agents for _, verdict in agent.confirmed)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_no_node_has_a_bubble_when_one_cannot(n_jobs):
    agents = [Agent(n_jobs=n_jobs, drawn=LEVEL_2, can_bubble=can) for can in (True, False)]
    live(agents, 4.0)
    for agent in agents:
        assert set(agent.wanted) == {LEVEL_2}
        assert not any(agent.had) and bool(agent.begins) == (n_jobs > 1)


def test_no_node_takes_a_shutter_when_one_is_not_free():
    agents = [Agent(), Agent(is_free=False)]
    live(agents)
    assert agents[0].asked > 0
    assert [agent.begins for agent in agents] == [[], []]


def test_what_was_not_valid_on_one_node_is_so_on_none():
    agents = [Agent(), Agent(verdict=contract.MC_VERDICT_MOVED)]
    live(agents, 2.0)
    assert {verdict for _, verdict in agents[0].confirmed} == {contract.MC_VERDICT_ELSEWHERE}
    assert {verdict for _, verdict in agents[1].confirmed} == {contract.MC_VERDICT_MOVED}


@pytest.mark.parametrize(
    ("name", "rank"), [("ask", 0), ("share", 1), ("ask", 1), ("decide", 1), ("confirm", 1), ("common", 1)]
)
def test_what_fails_on_one_node_ends_the_agreement_and_hangs_nobody(capfd, name, rank):
    def fail(*_):
        raise OverflowError("too large")

    agents = [Agent(), Agent(), Agent()]
    broken = type("Broken", (Agent,), {name: property(fail) if name == "common" else fail})
    agents[rank] = broken()
    live(agents, 30.0)
    assert capfd.readouterr().err.count("no more shutters because of an error: OverflowError: too large") == 1


def test_without_an_agent_on_one_node_there_is_no_agreement():
    agents = [Agent(), None]
    live(agents)
    assert agents[0].agreed is False
    assert agents[0].asked == 0
