"""Pairing policies: Zacarias et al. 2021, section 3.5, and the policies that it is compared with.

Also their input: the waiting jobs, and the cores and memory of a node.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mpicoloc.core.profile import Bools, Floats
from mpicoloc.core.progress import steps
from mpicoloc.core.slowdown import LEAST_SLOWDOWN
from mpicoloc.errors import DataError, UsageError
from mpicoloc.pairing import blossom


@dataclass(frozen=True)
class Queue:
    """n jobs in order of arrival.

    Parameters
    ----------
    runtime_s : array_like, shape (n,)
        Run time alone, s, > 0.
    slowdown : array_like, shape (n, n)
        At [i, j] the slowdown of job i beside job j, T_co / T_solo; NaN: not known. The diagonal is not read.
        Values below 1 count as 1 (Zacarias et al. 2021, section 3.2).
    high : array_like, shape (n, n), optional
        Upper ends of the intervals of `slowdown`; NaN: not known.
    n_cores, memory_bytes : array_like, shape (n,), optional
        Cores and memory that each job needs on a node.
    intensity : array_like, shape (n,), optional
        Load of each job on shared resources, in any unit, for the policy ``di``; NaN: not known.

    Raises
    ------
    DataError
        If shapes differ or a number is out of range.
    """

    runtime_s: Floats
    slowdown: Floats
    high: Floats | None = None
    n_cores: Floats | None = None
    memory_bytes: Floats | None = None
    intensity: Floats | None = None

    def __post_init__(self) -> None:
        n = np.size(self.runtime_s)
        for field in fields(self):
            given = getattr(self, field.name)
            if given is None:
                continue
            is_matrix = field.name in ("slowdown", "high")
            array = np.array(given, np.float64)
            if array.shape != ((n, n) if is_matrix else (n,)) and array.size + n:
                need = (n, n) if is_matrix else (n,)
                raise DataError(f"queue of {n} jobs: {field.name} has shape {array.shape}, need {need}")
            array = array.reshape((n, n) if is_matrix else (n,))
            if is_matrix:
                np.fill_diagonal(array, np.nan)
            _check(field.name, array)
            if is_matrix:
                array = np.maximum(array, 1.0)
            array.flags.writeable = False
            object.__setattr__(self, field.name, array)

    def __len__(self) -> int:
        return len(self.runtime_s)

    def part(self, chosen: slice) -> Queue:
        """The queue of the jobs `chosen`."""
        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        parts: dict[str, Any] = {
            name: array if array is None else array[chosen, chosen] if array.ndim == 2 else array[chosen]
            for name, array in given.items()
        }
        return Queue(**parts)

    def counted_on(self, *, is_cautious: bool, prior_slowdown: float | None) -> Queue:
        """The queue with the slowdowns on which decisions are based."""
        slowdown = self.slowdown
        if is_cautious and self.high is not None:
            slowdown = np.fmax(slowdown, self.high)
        if prior_slowdown is not None:
            slowdown = np.where(np.isnan(slowdown), prior_slowdown, slowdown)
        return replace(self, slowdown=slowdown)


def _check(name: str, array: Floats) -> None:
    """Raise `DataError` if a number is out of its quantity's range."""
    # A run time of NaN fails too, because all its comparisons are false.
    rules: dict[str, tuple[Callable[[Floats], Bools], str]] = {
        "runtime_s": (lambda a: (a > 0) & (a < np.inf), "a number > 0"),
        "n_cores": (lambda a: (a >= 1) & (a < np.inf), "a number >= 1"),
        "memory_bytes": (lambda a: (a >= 0) & (a < np.inf), "a number >= 0"),
        "intensity": (lambda a: ~np.isinf(a), "a number, or NaN"),
    }
    least = f"a ratio of run times >= {LEAST_SLOWDOWN}, or NaN (a degradation d is a slowdown of 1 / (1 - d))"
    is_right, need = rules.get(name, (lambda a: np.isnan(a) | ((a >= LEAST_SLOWDOWN) & (a < np.inf)), least))
    wrong = ~is_right(array)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise DataError(f"queue: {name} of job {', '.join(map(str, where))} is {array[where]}; need {need}")


@dataclass(frozen=True)
class Room:
    """Cores and memory of a node, for all jobs on it together; infinite: no limit.

    Raises
    ------
    DataError
        If a number is not above 0.
    """

    n_cores: float = np.inf
    memory_bytes: float = np.inf

    def __post_init__(self) -> None:
        for name in ("n_cores", "memory_bytes"):
            if not getattr(self, name) > 0:
                raise DataError(f"node: {name} must be > 0, got {getattr(self, name)}")

    def check(self, queue: Queue) -> None:
        """Raise DataError if a job does not fit a node."""
        too_large = np.flatnonzero(~np.diag(self.fits(queue, [(job,) for job in range(len(queue))])))
        if len(too_large):
            raise DataError(
                f"job {too_large[0]} does not fit a node of {self.n_cores:g} cores "
                f"and {self.memory_bytes:g} bytes of memory: leave it out"
            )

    def fits(self, queue: Queue, groups: Sequence[Sequence[int]]) -> Bools:
        """Whether two groups fit a node together, shape (n_groups, n_groups); diagonal: each group alone.

        A job of unknown size fits everywhere.
        """
        fits = np.ones((len(groups), len(groups)), np.bool_)
        for needed, room in ((queue.n_cores, self.n_cores), (queue.memory_bytes, self.memory_bytes)):
            if needed is not None:
                of_group = np.array([needed[list(group)].sum() for group in groups])
                both = of_group[:, None] + of_group
                np.fill_diagonal(both, of_group)
                fits &= both <= room
        return fits


def duration_s(queue: Queue, jobs: Sequence[int]) -> float:
    """Duration of `jobs` that begin together on one node, s; NaN where a slowdown is not known.

    The duration is the longest of the jobs' degraded run times, computed as if all jobs ran all the time. For
    two jobs, this is the term max(RunTime_i Deg_ij, RunTime_j Deg_ji) of Zacarias et al. 2021, section 3.5.
    For more than two jobs, the times lost to each co-runner are added up, as in `slowdown.together`.
    """
    chosen = list(jobs)
    lost = queue.slowdown[np.ix_(chosen, chosen)] - 1.0
    np.fill_diagonal(lost, 0.0)
    return float((queue.runtime_s[chosen] * (1.0 + lost.sum(axis=1))).max())


@dataclass(frozen=True)
class Graph:
    """The degradation graph over groups of jobs.

    Parameters
    ----------
    weights : ndarray, shape (n, n)
        Duration of two groups together, s; infinite: they must not share a node.
    alone : ndarray, shape (n,)
        Duration of each group without the other, s.
    """

    weights: Floats
    alone: Floats


def degradation_graph(
    queue: Queue, groups: Sequence[Sequence[int]], room: Room, n_per_node: int, threshold_frac: float | None
) -> Graph:
    """Durations of each pair of `groups` together (Zacarias et al. 2021, section 3.5 and Figure 4)."""
    if not groups:
        return Graph(np.empty((0, 0)), np.empty(0))
    jobs = np.array([job for group in groups for job in group], np.int64)
    sizes = np.array([len(group) for group in groups], np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    lost = queue.slowdown[np.ix_(jobs, jobs)] - 1.0
    np.fill_diagonal(lost, 0.0)
    # [i, B]: slowdown of job i by all jobs of group B, minus 1.
    lost_to = np.add.reduceat(lost, starts, axis=1)
    own = lost_to[np.arange(len(jobs)), np.repeat(np.arange(len(groups)), sizes)]
    degraded_s = queue.runtime_s[jobs, None] * (1.0 + own[:, None] + lost_to)
    longest_s = np.maximum.reduceat(degraded_s, starts, axis=0)
    alone = np.maximum.reduceat(queue.runtime_s[jobs] * (1.0 + own), starts)
    weights = np.maximum(longest_s, longest_s.T)
    allowed = ~np.isnan(weights) & (sizes[:, None] + sizes <= n_per_node) & room.fits(queue, groups)
    if threshold_frac is not None:
        allowed &= weights <= threshold_frac * (alone[:, None] + alone)
    weights[~allowed] = np.inf
    np.fill_diagonal(weights, 0.0)
    return Graph(weights, alone)


@dataclass(frozen=True)
class Slot:
    """Node and start time of a group."""

    node: int
    start_s: float


def assign_nodes(durations_s: Sequence[float], n_nodes: int) -> list[Slot]:
    """Place the longest groups first, each on the node that becomes free first.

    Result: in the order of `durations_s`. Raises `UsageError` if `n_nodes` is less than 1.

    Graham 1969: the makespan is at most 4/3 - 1/(3 n_nodes) of the least possible one.
    """
    if n_nodes < 1:
        raise UsageError(f"nodes must be >= 1, got {n_nodes}")
    free = [(0.0, node) for node in range(n_nodes)]
    slots = [Slot(0, 0.0)] * len(durations_s)
    for i in sorted(range(len(durations_s)), key=lambda i: (-durations_s[i], i)):
        start_s, node = heapq.heappop(free)
        slots[i] = Slot(node, start_s)
        heapq.heappush(free, (start_s + durations_s[i], node))
    return slots


def makespan_s(durations_s: Sequence[float], slots: Sequence[Slot]) -> float:
    """End of the last group, s."""
    ends = (slot.start_s + length for slot, length in zip(slots, durations_s, strict=True))
    return max(ends, default=0.0)


POLICIES = {
    "blossom": "the pairs with the least total time, by minimum-weight matching",
    "greedy": "repeatedly the pair with the earliest end",
    "di": "the least intensive job beside the most intensive one (Distributed Intensity)",
    "fifo-shared": "two by two in order of arrival, without regard to slowdowns",
    "fifo": "one after the other",
}
WINDOW = 2000
"""Largest number of jobs planned at once. A longer queue is planned in parts of this size."""


@dataclass(frozen=True)
class Rules:
    """Rules for a plan.

    Parameters
    ----------
    policy : str
        One of `POLICIES`.
    threshold_frac : float or None
        Jobs share only if they then take at most this fraction of the time that they would take one after the
        other. None: jobs share whenever their slowdowns are known and nodes have room. Ignored by ``di`` and
        ``fifo-shared``.
    n_per_node : int
        Largest number of jobs on a node; above 2 only for ``blossom`` and ``greedy`` with a threshold.
    is_cautious : bool
        Whether to use the upper ends of the slowdowns' intervals.
    prior_slowdown : float or None
        Slowdown to assume for pairs whose slowdown is not known. None: jobs of unknown slowdown run alone.
    room : Room
        Cores and memory of a node.
    tolerance_frac : float
        Largest accepted gap to the optimum for the policy ``blossom``.

    Raises
    ------
    UsageError
        If a value is out of its range.
    """

    policy: str = "blossom"
    threshold_frac: float | None = 1.0
    n_per_node: int = 2
    is_cautious: bool = False
    prior_slowdown: float | None = None
    room: Room = Room()
    tolerance_frac: float = blossom.TOLERANCE_FRAC

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"no policy {self.policy!r}; the policies are {', '.join(POLICIES)}")
        # A threshold above 1 would have no effect: jobs that take longer together than one after the other
        # never reduce the total.
        if self.threshold_frac is not None and not 0 < self.threshold_frac <= 1:
            raise UsageError(f"the threshold must be in (0, 1], got {self.threshold_frac}")
        if self.n_per_node < 2:
            raise UsageError(
                f"the number of jobs per node must be >= 2, got {self.n_per_node}; for 1, use the policy fifo"
            )
        if self.n_per_node > 2 and (self.policy not in ("blossom", "greedy") or self.threshold_frac is None):
            raise UsageError("more than 2 jobs on a node need the policy blossom or greedy, and a threshold")
        if self.prior_slowdown is not None and not 1 <= self.prior_slowdown < np.inf:
            raise UsageError(f"the prior slowdown must be >= 1, got {self.prior_slowdown}")


@dataclass(frozen=True)
class Group:
    """Jobs that begin together on one node, and their duration; `why` says why a job is alone."""

    jobs: tuple[int, ...]
    duration_s: float
    why: str = ""


@dataclass(frozen=True)
class Plan:
    """The jobs that share nodes.

    Parameters
    ----------
    groups : tuple of Group
        Every job once, in order of arrival of the groups' first jobs.
    lower_bound_s : float
        Proven lower bound of `cost_s` over all plans; NaN without a proof. If the queue was planned in parts,
        the bound holds only for plans in which no group has jobs of different parts.
    policy : str
    notes : tuple of str
        Notes for the reader of the plan.
    """

    groups: tuple[Group, ...]
    lower_bound_s: float
    policy: str
    notes: tuple[str, ...] = ()

    @property
    def cost_s(self) -> float:
        """Sum of all durations: the makespan if groups run one after the other on one node."""
        return sum((group.duration_s for group in self.groups), 0.0)

    @property
    def gap_frac(self) -> float:
        """Largest possible gap between cost and optimum, relative to the optimum; NaN without a proof."""
        if not self.groups:
            return 0.0
        return max(self.cost_s / self.lower_bound_s - 1, 0.0) if self.lower_bound_s > 0 else np.nan


def plan(queue: Queue, rules: Rules | None = None) -> Plan:
    """Plan all jobs of `queue`.

    Raises `DataError` if a job does not fit a node, or the policy needs an intensity that is missing. Raises
    `EnvironmentFault` if the policy is ``blossom`` and rustworkx is not installed.

    Zacarias et al. 2021, section 3.5: minimum-weight perfect matching of the degradation graph. The paper
    first matches, then splits pairs that would take longer together than one after the other. Here the
    matching itself may leave a job alone, so the total is never larger.
    """
    return plan_parts(len(queue), queue.part, rules)


def plan_parts(n_jobs: int, part_of: Callable[[slice], Queue], rules: Rules | None = None) -> Plan:
    """`plan` for a queue whose pairs do not all fit into memory: `part_of` returns a part of the queue."""
    rules = rules or Rules()
    plans = []
    starts = range(0, n_jobs, WINDOW)
    for start in steps(starts, "planning", unit="parts") if n_jobs > WINDOW else starts:
        made = _plan_once(part_of(slice(start, min(start + WINDOW, n_jobs))), rules)
        shifted = tuple(
            Group(tuple(start + job for job in group.jobs), group.duration_s, group.why)
            for group in made.groups
        )
        plans.append(Plan(shifted, made.lower_bound_s, made.policy))
    groups = tuple(group for made in plans for group in made.groups)
    found = Plan(groups, float(sum(made.lower_bound_s for made in plans)), rules.policy)
    return replace(found, notes=tuple(_notes(found, n_jobs, rules)))


def _notes(found: Plan, n_jobs: int, rules: Rules) -> Iterator[str]:
    if n_jobs > WINDOW:
        yield (
            f"{n_jobs:,} jobs, planned in parts of {WINDOW:,} in order of arrival: no pair crosses parts, "
            "and 'the least possible' means the least for such plans"
        )
    # False without a proof, because the gap is then NaN.
    if found.gap_frac > rules.tolerance_frac:
        yield (
            f"the plan may take up to {100 * found.gap_frac:.2f} % more than the least possible: "
            f"no proof was found that the gap is at most {100 * rules.tolerance_frac:g} %"
        )


def _plan_once(queue: Queue, rules: Rules) -> Plan:
    rules.room.check(queue)
    queue = queue.counted_on(is_cautious=rules.is_cautious, prior_slowdown=rules.prior_slowdown)
    singles = [(job,) for job in range(len(queue))]
    fits = rules.room.fits(queue, singles)
    threshold_frac = None if rules.policy in ("di", "fifo-shared") else rules.threshold_frac
    graph = degradation_graph(queue, singles, rules.room, 2, threshold_frac)
    bound_s = np.nan
    if rules.policy in ("blossom", "greedy"):
        found = _matched(graph, rules)
        # The bound holds for pairs only.
        bound_s = found.lower_bound if rules.n_per_node == 2 else np.nan
        groups = [*_merged(singles, graph, found.partner)]
        for _ in range(rules.n_per_node - 2):
            larger = degradation_graph(queue, groups, rules.room, rules.n_per_node, threshold_frac)
            groups = [*_merged(groups, larger, _matched(larger, rules).partner)]
    else:
        pairs = [pair for pair in _blind_pairs(queue, rules) if np.isfinite(graph.weights[pair])]
        paired = {job for pair in pairs for job in pair}
        groups = [*pairs, *(single for single in singles if single[0] not in paired)]
    made = [
        Group(tuple(sorted(group)), duration_s(queue, group), "" if len(group) > 1 else "left over")
        for group in groups
    ]
    made = [_with_reason(group, queue, graph, fits, rules) for group in made]
    made.sort(key=lambda group: group.jobs)
    return Plan(tuple(made), bound_s, rules.policy)


def _matched(graph: Graph, rules: Rules) -> blossom.Matching:
    serial = graph.alone[:, None] + graph.alone
    weights = np.where(np.isfinite(graph.weights), graph.weights, serial)
    must_pair = rules.threshold_frac is None
    if rules.policy == "greedy":
        return blossom.greedy(weights, graph.alone, must_pair=must_pair)
    return blossom.match(weights, graph.alone, must_pair=must_pair, tolerance_frac=rules.tolerance_frac)


def _merged(
    groups: Sequence[tuple[int, ...]], graph: Graph, partner: blossom.Ints
) -> Iterator[tuple[int, ...]]:
    for i, j in enumerate(partner.tolist()):
        if i == j or not np.isfinite(graph.weights[i, j]):
            yield groups[i]
        elif i < j:
            yield groups[i] + groups[j]


def _blind_pairs(queue: Queue, rules: Rules) -> list[tuple[int, int]]:
    """Pairs chosen by the policies that ignore slowdowns. Jobs without a known slowdown are left out."""
    if rules.policy == "fifo":
        return []
    known = np.flatnonzero(_is_known(queue))
    if rules.policy == "fifo-shared":
        return [*zip(known[::2].tolist(), known[1::2].tolist(), strict=False)]
    if queue.intensity is None:
        raise DataError("the policy di needs an intensity of each job, such as its cache misses per second")
    known = known[~np.isnan(queue.intensity[known])]
    # Footnote 1 of section 4.4.2: sort in ascending order, and pair the lowest with the highest.
    ranked = known[np.argsort(queue.intensity[known], kind="stable")]
    half = len(ranked) // 2
    return [*zip(ranked[:half].tolist(), ranked[::-1][:half].tolist(), strict=True)]


def _is_known(queue: Queue) -> Bools:
    """Whether each job has a known slowdown both as target and as co-runner."""
    known = ~np.isnan(queue.slowdown)
    return np.asarray(known.any(axis=0) & known.any(axis=1))


def _with_reason(group: Group, queue: Queue, graph: Graph, fits: Bools, rules: Rules) -> Group:
    """The same group, with the reason if its job runs alone."""
    if len(group.jobs) > 1:
        return group
    job = group.jobs[0]
    others = np.arange(len(queue)) != job
    if rules.policy == "fifo":
        why = "policy"
    elif len(queue) == 1:
        why = "no other job"
    elif not _is_known(queue)[job]:
        why = "no profile"
    elif not fits[job, others].any():
        why = "no room beside any other"
    elif not np.isfinite(graph.weights[job, others]).any():
        why = "no partner is worth it"
    else:
        why = group.why
    return Group(group.jobs, group.duration_s, why)
