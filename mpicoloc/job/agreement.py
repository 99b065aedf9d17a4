"""Shutters of a job on several nodes: each takes place at the same instant on all of its nodes, or on none.

If co-runners paused on one node only, the ranks there would wait for those on other nodes, and the shutter
would show no speed-up. So the coordinators, one per node, agree over MPI. Each coordinator sends an offer to
all others and computes the instant of the next shutter from all offers. It then asks its node agent whether
the board is free at that instant, and the shutter is taken if all boards are free. Afterwards the
coordinators exchange verdicts, because a shutter counts either on all nodes or on none.

Every coordinator makes the same collective calls in the same order, even if something fails on its node.
Otherwise the other coordinators, and with them the application, would wait for it in MPI_Finalize.
"""

from __future__ import annotations

import array
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mpicoloc import config
from mpicoloc.errors import print_to_stderr
from mpicoloc.pmpi import contract, node_agent

if TYPE_CHECKING:
    from mpi4py import MPI


# Offsets between the clocks of a job's nodes, by Cristian's method over MPI.
#
# Each node has its own CLOCK_MONOTONIC, which began when the node was booted. The first coordinator exchanges
# messages with each of the others in turn; half the round trip of the quickest exchange bounds the error. A
# receiver polls for some milliseconds, sleeping between polls, and then gives up until its next step,
# because a coordinator has other duties and its partner may be paused.


N_MIN, N_MAX = 8, 48
"""Least and largest number of exchanges with each node."""
GOOD_NS = 100_000
"""Error below which further exchanges are not worth their time."""
TAG = 77
DRIFT = 50e-6
"""Upper bound of the drift between the clocks of two computers, s per s."""
UNKNOWN_NS = 1 << 60
_END = 0
_LOOK_S, _LOOKS = 0.00003, 700
"""Time between two polls, s, and number of polls; all polls together outlast a coordinator's step."""
_NAP_S = 0.0005

OffsetSteps = Generator[None, None, "Offset"]


class Offset(NamedTuple):
    """This node's clock minus that of the first node, measured at `t_ns`, with an error up to `error_ns`."""

    offset_ns: int
    error_ns: int
    t_ns: int
    drift: float = DRIFT

    def bound_ns(self, at_ns: int) -> int:
        """The largest possible error of the offset at the time `at_ns`."""
        return self.error_ns + int(abs(at_ns - self.t_ns) * self.drift)

    def better(self, new: Offset, at_ns: int) -> Offset:
        """The better of this offset and a new one: on a crowded node the older one may be more accurate."""
        is_contradicted = abs(new.offset_ns - self.offset_ns) > self.bound_ns(new.t_ns) + new.error_ns
        return new if is_contradicted or new.bound_ns(at_ns) <= self.bound_ns(at_ns) else self


FIRST = Offset(0, 0, 0, 0.0)
"""Offset of the first node, by definition."""


def clock_ns() -> int:
    """CLOCK_MONOTONIC, as in all of mpicoloc."""
    return time.monotonic_ns()


def offset(comm: MPI.Comm) -> OffsetSteps:
    """This node's offset. Collective over `comm`, whose first rank is on the first node."""
    if comm.Get_rank() > 0:
        return (yield from _answer(comm))
    for other in range(1, comm.Get_size()):
        yield from _measure(comm, other)
    return FIRST


def _measure(comm: MPI.Comm, other: int) -> Generator[None, None, None]:
    back = array.array("q", [0, 0])
    best = Offset(0, UNKNOWN_NS, 0)
    for i in range(1, N_MAX + 1):
        t0 = clock_ns()
        comm.Send(array.array("q", [i, 0]), other, TAG)
        while not _is_there(comm, other, _LOOKS if i > 1 else 1):
            yield
        comm.Recv(back, other, TAG)
        t1 = clock_ns()
        best = min(best, Offset(back[1] - (t0 + t1) // 2, (t1 - t0 + 1) // 2, 0), key=lambda o: o.error_ns)
        if i >= N_MIN:
            if best.error_ns <= GOOD_NS:
                break
            time.sleep(_NAP_S)  # by then, a process that delayed the messages may be gone
    comm.Send(array.array("q", [_END, 0]), other, TAG)
    comm.Send(array.array("q", [best.offset_ns, best.error_ns]), other, TAG)


def _answer(comm: MPI.Comm) -> OffsetSteps:
    message = array.array("q", [_END, 0])
    n_looks = 1
    while True:
        while not _is_there(comm, 0, n_looks):
            yield
        n_looks = _LOOKS
        comm.Recv(message, 0, TAG)
        if message[0] == _END:
            break
        comm.Send(array.array("q", [message[0], clock_ns()]), 0, TAG)
    comm.Recv(message, 0, TAG)
    return Offset(message[0], message[1], clock_ns())


def _is_there(comm: MPI.Comm, source: int, n_looks: int) -> bool:
    """Whether a message arrives. Sleeps between polls: a process that spins on a full node is preempted."""
    for i in range(n_looks):
        if i:
            time.sleep(_LOOK_S)
        if comm.Iprobe(source, TAG):
            return True
    return False


REST_NS = 500_000_000
"""Time between two checks whether a node has co-runners."""
ANSWER_WITHIN_NS = 2_000_000_000
"""Time limit for the answer of an agent, which looks for questions every 50 ms."""
DEAF_NS = 10_000_000_000
"""Time before an agent that did not answer is asked again: such an agent is stopped, or has no board."""
CLOCKS_EVERY_NS = 4_000_000_000
CLOCKS_PART = 50
"""At most 1 / `CLOCKS_PART` of the time is spent on measuring clocks."""
CLOCKS_AHEAD_NS = 5_000_000_000
"""Usual time between the agreement on a shutter and its start."""
SLACK_NS = 300_000_000
"""Time allowed for the first agreement; it is doubled after each agreement that came too late."""
MOST_SLACK_NS = 10_000_000_000
BOUNDS_IN_SHUTTER = 8
"""Least ratio of a shutter's length to the largest difference between clocks."""
MOST_LENGTHENING = 4
"""`BOUNDS_IN_SHUTTER` lengthens a shutter at most by this factor; beyond it, none until clocks are better."""

_COUNTING_VERDICTS = (contract.MC_VERDICT_VALID, contract.MC_VERDICT_BUBBLED)
Steps = Generator[None, None, Any]


class Offer(NamedTuple):
    """A coordinator's message to the others before each shutter; times are on the first node's clock."""

    is_over: int = 0
    """Whether the node's ranks are in MPI_Finalize or gone."""
    n_jobs: int = 0
    period_ns: int = 0
    duration_ns: int = 0
    now_ns: int = 0
    bound_ns: int = 0
    max_ns: int = 0
    """Length of the longest shutter that this node accepts."""
    verdict: int = 0
    """Verdict on this node's last shutter; `elsewhere` if the agreement on it came too late."""
    is_clock_old: int = 0
    """Whether clocks must be measured again; only the first coordinator, which measures them, sets this."""
    bubble: int = 0
    """Bubble drawn on this node for the next common shutter (see `mc_common`); the first node's applies."""
    is_bubble_wanted: int = 0
    """Whether a bubble is wanted even beside co-runners. Without co-runners shutters are for bubbles only."""


class Plan(NamedTuple):
    """A shutter for all nodes, with its start by the first node's clock. `i` counts from 1.

    `bubble` is the bubble that runs beside the job on all nodes (0: none). If `for_bubble`, no node has
    co-runners, so the shutter is for the bubble alone.
    """

    i: int
    t0_ns: int
    duration_ns: int
    bubble: int = 0
    for_bubble: bool = False


def is_shared(offers: Sequence[Offer]) -> bool:
    """Whether the job has co-runners on any node."""
    return any(offer.n_jobs > 1 for offer in offers)


def apart_ns(offers: Sequence[Offer]) -> int:
    """Largest difference between the clocks of two nodes."""
    return sum(sorted(offer.bound_ns for offer in offers)[-2:])


def plan(offers: Sequence[Offer], i: int, last_ns: int, slack_ns: int) -> Plan | None:
    """The next shutter, or None; all coordinators compute the same result from the same offers.

    There is no next shutter if the job has no co-runners and no bubble can run on all nodes, if the clocks
    are too inaccurate, or if an agent cannot measure or has not looked for jobs yet.
    """
    bubble = bubble_of_all(offers)
    if not (is_shared(offers) or bubble) or any(offer.n_jobs == 0 for offer in offers):
        return None
    wanted_ns = max(offer.duration_ns for offer in offers)
    duration_ns = max(wanted_ns, BOUNDS_IN_SHUTTER * apart_ns(offers))
    if duration_ns > min(MOST_LENGTHENING * wanted_ns, *(offer.max_ns for offer in offers)):
        return None
    period_ns = max(offer.period_ns for offer in offers)
    # Shutters are as frequent as the job's turns on the node with most jobs, or less frequent if they must be
    # longer.
    turn_ns = max(
        offer.n_jobs * offer.period_ns * duration_ns // max(offer.duration_ns, 1) for offer in offers
    )
    # Agents must be told of a shutter one and a half periods ahead.
    soonest_ns = max(offer.now_ns for offer in offers) + slack_ns + 2 * period_ns
    # Jitter, as on single nodes, so that shutters do not follow a rhythm of the job.
    shake_ns = (i * 0x9E3779B97F4A7C15 % (1 << 64) >> 11) * 3 * period_ns // (10 << 53)
    t0_ns = max(last_ns + turn_ns, soonest_ns) + shake_ns
    return Plan(i, t0_ns, duration_ns, bubble, not is_shared(offers))


def bubble_of_all(offers: Sequence[Offer]) -> int:
    """The bubble drawn on the first node if a bubble is wanted and all nodes can run bubbles, else 0."""
    is_due = offers[0].is_bubble_wanted or not is_shared(offers)
    return offers[0].bubble if is_due and all(offer.bubble for offer in offers) else 0


def what_follows(offers: Sequence[Offer], taken: Plan | None) -> str:
    """The next common step of all coordinators: to end, measure clocks, vote, or exchange offers."""
    if any(offer.is_over for offer in offers):
        return "end"
    if offers[0].is_clock_old:
        return "clocks"
    return "vote" if taken else "offers"


def verdict_of_all(own: int, offers: Sequence[Offer]) -> int:
    """Verdict on a shutter for all nodes: this node's own, or `elsewhere` if that of another node differs."""
    if own not in _COUNTING_VERDICTS:
        return own
    is_same = all(offer.verdict == own for offer in offers)
    return own if is_same else int(contract.MC_VERDICT_ELSEWHERE)


class Agreement:
    """One coordinator's side of the agreement; `step` is called repeatedly and does not block."""

    def __init__(self, comm: MPI.Comm, agent: node_agent.Agent | None) -> None:
        self._comm = comm
        self._agent = agent
        self._is_over = False
        self._verdict = 0
        self._clock_until_ns = 0
        self._clock = Offset(0, UNKNOWN_NS, 0)
        self._max_ns = int(float(config.get("shutter.max_s") or 0) * 1e9)
        self._slack_ns = SLACK_NS
        self._steps = self._agree()
        self._next = "offers"
        self._has_resigned = False
        self.is_active = comm.Get_size() > 1

    def step(self, is_over: bool) -> None:
        """Advance as far as possible without blocking. `is_over`: this node's ranks need no more shutters."""
        self._is_over = is_over
        if not self.is_active:
            return
        try:
            self.is_active = next(self._steps, "ended") != "ended"
        except Exception as error:
            if self._has_resigned:
                raise
            self._has_resigned = True
            self._steps = self._resign()
            print_to_stderr(f"no more shutters because of an error: {type(error).__name__}: {error}")

    def _agree(self) -> Steps:
        can = yield from self._all_gather([self._agent is not None])
        agent = self._agent
        if agent is None or not all(flag for (flag,) in can):
            if agent is not None:
                agent.agree(False)
            return
        agent.agree(True)
        i, last_ns = 1, 0
        while True:
            self._next = "offers"
            own = self._offer(agent)
            offers = [Offer(*row) for row in (yield from self._all_gather(own))]
            self._learn(offers)
            taken = plan(offers, i, last_ns, self._slack_ns)
            self._next = what_follows(offers, taken)
            if own.verdict:
                agent.confirm(i - 1, verdict_of_all(own.verdict, offers))
            self._verdict = contract.MC_VERDICT_UNKNOWN
            if self._next == "end":
                return
            if self._next == "clocks":
                yield from self._set_clock()
                continue
            agent.share(is_shared(offers))
            if taken is None:
                yield from self._wait(lambda: False, REST_NS)
                continue
            agent.set_clock(self._clock.offset_ns, apart_ns(offers))
            if (yield from self._take(agent, taken)):
                last_ns = taken.t0_ns
            i += 1

    def _resign(self) -> Steps:
        """Complete the collective calls in which the others wait, and tell them that shutters have ended."""
        if self._next == "clocks":
            yield from offset(self._comm)
        if self._next == "vote":
            yield from self._all_gather([False, False, False])
        if self._next != "end":
            yield from self._all_gather(Offer(is_over=1))

    def _offer(self, agent: node_agent.Agent) -> Offer:
        common, now_ns = agent.common, clock_ns()
        return Offer(
            is_over=self._is_over,
            n_jobs=common.n_jobs,
            period_ns=common.period_ns,
            duration_ns=common.duration_ns,
            now_ns=now_ns - self._clock.offset_ns,
            bound_ns=self._clock.bound_ns(now_ns + CLOCKS_AHEAD_NS),
            max_ns=self._max_ns,
            verdict=self._verdict,
            is_clock_old=self._comm.Get_rank() == 0 and now_ns > self._clock_until_ns,
            bubble=common.drawn_bubble,
            is_bubble_wanted=common.is_bubble_wanted,
        )

    def _set_clock(self) -> Steps:
        began_ns = clock_ns()
        found = yield from offset(self._comm)
        now_ns = clock_ns()
        self._clock_until_ns = now_ns + max(CLOCKS_EVERY_NS, CLOCKS_PART * (now_ns - began_ns))
        self._clock = self._clock.better(found, now_ns + CLOCKS_AHEAD_NS)

    def _learn(self, offers: Sequence[Offer]) -> None:
        """Adapt the slack to whether the last agreement came in time."""
        verdicts = {offer.verdict for offer in offers}
        if contract.MC_VERDICT_ELSEWHERE in verdicts:
            self._slack_ns = min(2 * self._slack_ns, MOST_SLACK_NS)
        elif verdicts.intersection(_COUNTING_VERDICTS):
            self._slack_ns = max(self._slack_ns * 9 // 10, SLACK_NS)

    def _take(self, agent: node_agent.Agent, taken: Plan) -> Steps:
        """Agree on a shutter and wait for its verdict; returns whether all nodes agreed."""
        t0_ns = taken.t0_ns + self._clock.offset_ns
        t1_ns = t0_ns + taken.duration_ns
        agent.ask(taken.i, t0_ns, t1_ns, taken.bubble)
        yield from self._wait(lambda: agent.common.i_answered == taken.i, ANSWER_WITHIN_NS)
        answer = agent.common
        is_heard = answer.i_answered == taken.i
        rows = yield from self._all_gather([is_heard, is_heard and answer.is_free, answer.can_bubble])
        self._next = "offers"
        are_heard, are_free, can_bubble = (all(column) for column in zip(*rows, strict=True))
        has_bubble = taken.bubble > 0 and can_bubble
        is_firm = are_free and (has_bubble or not taken.for_bubble)
        agent.decide(taken.i, is_firm, has_bubble)
        if not is_firm:
            yield from self._wait(lambda: False, DEAF_NS if not are_heard else REST_NS * taken.for_bubble)
            return False
        limit_ns = max(0, t1_ns - clock_ns()) + ANSWER_WITHIN_NS
        yield from self._wait(lambda: agent.common.i_judged == taken.i, limit_ns)
        said = agent.common
        self._verdict = said.verdict if said.i_judged == taken.i else int(contract.MC_VERDICT_SILENT)
        return True

    def _wait(self, condition: Callable[[], bool], limit_ns: int) -> Steps:
        end_ns = clock_ns() + limit_ns
        while not condition() and clock_ns() < end_ns and not self._is_over:
            yield

    def _all_gather(self, numbers: Iterable[int]) -> Steps:
        """The numbers of all coordinators, one row per coordinator."""
        mine = array.array("q", numbers)
        everybody = array.array("q", bytes(8 * len(mine) * self._comm.Get_size()))
        request = self._comm.Iallgather(mine, everybody)
        while not request.Test():
            yield
        return [tuple(everybody[k : k + len(mine)]) for k in range(0, len(everybody), len(mine))]
