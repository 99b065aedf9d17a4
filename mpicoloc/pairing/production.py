"""Training data from production runs: slowdowns of jobs beside one other job, or beside several jobs if the
slowdown by each is known.

No extra measurements are needed: shutters measure the slowdown of each run (Breslow et al. 2013, Eq. 7), and
the other job's profile describes the co-runner. Also computes the expected slowdown of jobs that have met
before.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from mpicoloc.core import number_lists
from mpicoloc.core.profile import Estimate, Floats
from mpicoloc.core.slowdown import (
    CORES,
    LEAST_SLOWDOWN,
    TURNS,
    JobFeatures,
    Moments,
    PairSlowdowns,
    Row,
    Run,
    key_of,
)
from mpicoloc.pairing.features import job_features

GAP_S = 86400.0
"""A step that begins more than this time after the others have ended belongs to another job, s. A job may do
other work for hours between two steps, but job numbers are only used again after months."""
_PEAKS = ("rss_bytes",)
"""Quantities that a job takes from its most demanding step, even if that step is short."""


class RunLike(Protocol):
    """The attributes that an object must have to describe a run."""

    @property
    def id(self) -> str:
        """Id of the run's job."""

    @property
    def n_ranks(self) -> int:
        """Number of its ranks."""

    @property
    def start_unix_s(self) -> float:
        """Start of the run, s since 1970; 0 if unknown."""

    @property
    def wall_s(self) -> float:
        """Duration of the run, s."""

    @property
    def partial(self) -> bool:
        """Whether the end of the run is missing."""


R = TypeVar("R", bound=RunLike)


def distinct(found: Iterable[R]) -> list[R]:
    """Remove duplicate runs: the user's own file, a signed copy and a recovered profile may all exist.

    Result: in the same order. Of runs with the same job id and start, a complete one is preferred.
    """
    kept: dict[Hashable, R] = {}
    for run in found:
        # If no start is known, only the duration distinguishes two runs.
        key = (run.id, run.start_unix_s, 0.0 if run.start_unix_s else run.wall_s)
        if key not in kept or (kept[key].partial and not run.partial):
            kept[key] = run
    return list(kept.values())


def runs_by_job(found: Iterable[R]) -> list[list[R]]:
    """Group runs by job. All of them belong to jobs of one user that have the same name.

    A batch job may start several runs (steps). `srun` gives each of these the job's number, to which
    `mpicoloc run` appends another number.

    Result: jobs in order of start, with their steps in order of start.
    """
    open_jobs: dict[str, tuple[list[R], float]] = {}
    result: list[list[R]] = []
    for run in sorted(distinct(found), key=attrgetter("start_unix_s")):
        name = job_number(run.id)
        steps, end_s = open_jobs.get(name, ([], 0.0))
        if not steps or run.start_unix_s > end_s + GAP_S:
            steps, end_s = [], 0.0
            result.append(steps)
        steps.append(run)
        open_jobs[name] = steps, max(end_s, run.start_unix_s + run.wall_s)
    return result


def job_number(name: str) -> str:
    """The batch system's job number in the name of a run, or the whole name if it has no number."""
    found = re.match(r"\d+(?=-|$)", name)
    return found[0] if found else name


def peak_ranks(steps: Sequence[RunLike]) -> int:
    """Largest number of ranks that a job's steps had at the same time."""
    return _at_once(steps, lambda step: step.n_ranks)


def _at_once(steps: Sequence[R], of: Callable[[R], int]) -> int:
    return max(
        sum(
            of(other)
            for other in steps
            if other is step or 0 <= step.start_unix_s - other.start_unix_s < other.wall_s
        )
        for step in steps
    )


def run_of_steps(steps: Sequence[Run]) -> Run:
    """The run of a job with these steps."""
    if len(steps) == 1:
        return steps[0]
    longest = max(steps, key=lambda step: step.wall_s)
    steps_s = sum(step.wall_s for step in steps)
    part = _union_s(steps) / steps_s if steps_s > 0 else 0.0
    shared = [step.shared_s for step in steps if step.shared_s is not None]
    return replace(
        longest,
        id=steps[0].id,
        n_ranks=peak_ranks(steps),
        n_nodes=max(step.n_nodes for step in steps),
        n_cores=_at_once(steps, lambda step: step.n_cores),
        start_unix_s=steps[0].start_unix_s,
        wall_s=part * steps_s,
        solo_s=part * sum(step.solo_s for step in steps),
        shared_s=part * sum(shared) if len(shared) == len(steps) else None,
        was_alone=all(step.was_alone for step in steps),
        partial=any(step.partial for step in steps),
        slowdown=_slowdown(steps),
        co_runners=_co_runners(steps),
        slowdown_by={},
        seen=_seen(steps),
    )


def _union_s(steps: Sequence[RunLike]) -> float:
    """Time in which at least one of the steps ran, s."""
    total_s, until_s = 0.0, 0.0
    for step in steps:
        end_s = step.start_unix_s + step.wall_s
        total_s += max(0.0, end_s - max(step.start_unix_s, until_s))
        until_s = max(until_s, end_s)
    return total_s


def _slowdown(steps: Sequence[Run]) -> Estimate | None:
    """Time of all steps divided by the steps' time alone; None if the slowdown of a step is unknown."""
    alone = Estimate(1.0, 1.0, 1.0, 0, "1", "alone")
    told = [step.slowdown or (alone if step.was_alone else None) for step in steps]
    known = [each for each in told if each is not None and each.low > 0]
    if len(known) < len(steps) or all(each is alone for each in known):
        return None
    wall_s = sum(step.wall_s for step in steps)
    low, value, high = (
        wall_s / sum(step.wall_s / getattr(each, end) for step, each in zip(steps, known, strict=True))
        for end in ("low", "value", "high")
    )
    longest = max(known, key=lambda each: each.n)
    return Estimate(value, low, high, longest.n, "1", longest.method)


def _co_runners(steps: Sequence[Run]) -> tuple[tuple[str, float], ...]:
    """Co-runners of all steps, without the job's own steps, and the overlap with each co-runner, s."""
    own = {step.id for step in steps}
    found: dict[str, float] = {}
    for step in steps:
        for name, overlap_s in step.co_runners:
            if name not in own:
                found[name] = found.get(name, 0.0) + overlap_s
    return tuple(found.items())


def _seen(steps: Sequence[Run]) -> dict[str, Moments]:
    parts: dict[str, list[tuple[Moments, float]]] = {}
    for step in steps:
        for name, found in step.seen.items():
            parts.setdefault(name, []).append((found, step.solo_s))
    return {
        name: max((found for found, _ in of), key=lambda found: found.mean)
        if name in _PEAKS
        else weighted_moments(of)
        for name, of in parts.items()
    }


def weighted_moments(parts: Sequence[tuple[Moments, float]]) -> Moments:
    """Moments of a quantity over parts of a run, weighted by their time.

    The result has the number of values of the largest part, so that many steps give a job no extra weight.
    """
    total_s = sum(part_s for _, part_s in parts)
    n = max(found.n for found, _ in parts)
    mean = sum(found.mean * part_s for found, part_s in parts) / total_s
    variance = (
        sum((found.squares / found.n + (found.mean - mean) ** 2) * part_s for found, part_s in parts)
        / total_s
    )
    least, largest = min(found.least for found, _ in parts), max(found.largest for found, _ in parts)
    return Moments(n, mean, least, largest, variance * n)


Company: TypeAlias = tuple[Estimate, Sequence[Run]]
MAIN_FRAC = 0.9
"""Smallest fraction of the shared time that a run spends beside its main co-runner. Its overlaps with other
co-runners together take at most the rest."""
LEAST_SHARED_FRAC = 0.25
"""Smallest fraction of its time that a run must share, because a shorter part may cover only one phase of the
job. A larger fraction is not needed, because shutters measure the shared part itself, and the interval
reflects the error."""


def rows_of(runs: Sequence[Run]) -> tuple[list[Row], Counter[str]]:
    """Rows for runs beside jobs that have profiles, and the number of cases without a row, by reason."""
    by_kind: dict[tuple[str, int, int], list[Run]] = defaultdict(list)
    by_id: dict[str, list[Run]] = defaultdict(list)
    n_given, runs = len(runs), distinct(runs)
    for run in runs:
        if not run.partial and run.solo_s > 0:
            by_kind[run.kind].append(run)
            by_id[run.id].append(run)
    for same in by_kind.values():
        same.sort(key=attrgetter("start_unix_s"))
    rows, others = [], Counter[str]()
    if n_given > len(runs):
        others["given twice"] = n_given - len(runs)
    met = [(run, one) for run in runs for one in _company(run, by_id)]
    told = _by_others(by_kind.values(), met)
    for run, company in met:
        found = company if isinstance(company, str) else _row(run, company, told)
        if isinstance(found, str):
            others[found] += 1
        else:
            rows.append(found)
    return rows, others


def _company(run: Run, by_id: Mapping[str, Sequence[Run]]) -> Iterator[Company | str]:
    """Slowdown of a run beside each other job, with the other job's runs; or why the run cannot be used."""
    found = beside(run)
    if isinstance(found, str):
        yield found
        return
    for name, slowdown in found:
        others = [other for other in by_id.get(name, ()) if _overlap(run, other)]
        if not others:
            yield "no profile of the co-runner"
        elif len({other.kind for other in others}) > 1:
            yield "several steps of the co-runner"
        else:
            yield slowdown, others


def beside(run: Run) -> list[tuple[str, Estimate]] | str:
    """Names of the jobs that a run met, with the slowdown by each; or why the slowdowns are unknown."""
    if run.partial or not run.solo_s > 0:
        return "did not come to its end"
    if run.was_alone:
        return "alone"
    if run.slowdown is None or run.shared_s is None:
        return "slowdown not measured"
    slowdown = _while_shared(run, run.slowdown, run.shared_s)
    if slowdown is None:
        return "most of the time alone"
    name = _main_co_runner(run.co_runners, run.shared_s)
    return [(name, slowdown)] if name is not None else _by_each(run, run.shared_s) or "several co-runners"


def _by_each(run: Run, shared_s: float) -> list[tuple[str, Estimate]]:
    """Slowdown during the overlap with each co-runner whose effect was measured separately."""
    # While the run had no co-runner, it ran at full speed.
    shared_work = 1 - max(run.wall_s - shared_s, 0.0) / run.solo_s
    found = []
    for name, overlap_s in run.co_runners:
        one, part = run.slowdown_by.get(name), shared_work * overlap_s / shared_s
        if one is not None and overlap_s >= LEAST_SHARED_FRAC * run.wall_s and part > 0:
            found.append((name, _of_part(one, part)))
    return [(name, one) for name, one in found if one.low > 0]


def _of_part(whole: Estimate, part: float) -> Estimate:
    """Slowdown of the part of the work that alone accounts for the slowdown of the whole."""
    low, value, high = (1 + (end - 1) / part for end in (whole.low, whole.value, whole.high))
    return Estimate(value, low, high, whole.n, "1", whole.method)


def _row(run: Run, company: Company, told: Mapping[int, JobFeatures | None]) -> Row | str:
    """The run's row, or the reason why it has none."""
    slowdown, beside = company
    mine, co_runner = told[id(run)], told[id(beside[0])]
    if mine is None:
        return "no other run of the same job"
    if co_runner is None:
        return "no other run of the co-runner"
    which = (beside[0].id,) if len(run.co_runners) > 1 else ()
    key = key_of("production", run.id, run.start_unix_s, run.wall_s, *which)
    return Row(mine, co_runner, slowdown, "production", key, layout(run, beside))


def _by_others(
    kinds: Collection[Sequence[Run]], company: Iterable[tuple[Run, Company | str]]
) -> dict[int, JobFeatures | None]:
    """Features of each run's kind, by the run's identity, from runs that it did not meet, even indirectly.

    None if there are no such runs. If a run was never alone, its time alone is computed from its slowdown, so
    rates per second of this time would reveal to a model the slowdown that the model is to predict. The rates
    of the job beside it would reveal the slowdown almost as well, because both jobs share the same
    disturbances. If no run of a kind was alone, the features of each half of the runs therefore come from the
    other half. (Features from all other runs would reveal the slowdown with the opposite sign.)
    """
    group = _together(kinds, company)
    told: dict[int, JobFeatures | None] = {}
    for same in kinds:
        if any(run.was_alone for run in same):
            told |= dict.fromkeys(map(id, same), job_features(same))
            continue
        distinct = {id(group[id(run)]): group[id(run)] for run in same}.values()
        groups = sorted(distinct, key=lambda group: all(run.slowdown is None for run in group))
        halves = [[run for group in groups[i::2] for run in group] for i in (0, 1)]
        for half, rest in (halves, halves[::-1]):
            rest.sort(key=attrgetter("start_unix_s"))
            told |= dict.fromkeys(map(id, half), job_features(rest) if rest else None)
    return told


def _together(
    kinds: Iterable[Sequence[Run]], company: Iterable[tuple[Run, Company | str]]
) -> dict[int, list[Run]]:
    """Groups of runs of one kind that met, or that met the same run of another kind, by run identity."""
    group = {id(run): [run] for same in kinds for run in same}
    met: dict[int, dict[tuple[str, int, int], Run]] = defaultdict(dict)
    for run, found in company:
        first = met[id(run)]
        first.setdefault(run.kind, run)
        for other in [] if isinstance(found, str) else found[1]:
            _join(group, first.setdefault(other.kind, other), other)
    return group


def _join(group: dict[int, list[Run]], one: Run, other: Run) -> None:
    mine, others = group[id(one)], group[id(other)]
    if mine is not others:
        mine += others
        group |= dict.fromkeys(map(id, others), mine)


def layout(run: Run, beside: Sequence[Run]) -> str:
    """Whether a run and the runs beside it had separate processors, on nodes that both profiles describe.

    Result: one of `core.slowdown.LAYOUTS`. The layout is unknown if both runs may use the same processors and
    there are enough of these for both, because the kernel may then move processes from one to another.
    """
    found = {_on_node(run, other, name) for other in beside for name in run.cpus.keys() & other.cpus.keys()}
    return found.pop() if len(found) == 1 else ""


def _on_node(one: Run, other: Run, name: str) -> str:
    mine, others = (number_lists.parse_cpus(run.cpus[name]) for run in (one, other))
    if not mine or not others:
        return ""
    if not mine & others:
        return CORES
    n_wanted = sum(run.n_cores / max(run.n_nodes, 1) for run in (one, other))
    return TURNS if mine == others and n_wanted > len(mine) else ""


def beside_half(slowdown: Estimate, target: Run, co_runner: Run) -> Estimate | None:
    """The slowdown beside a job with half of a node, from that beside one with other processors of its own.

    The excess is proportional to the co-runner's processors (see `cores_plan`). None if the number of
    processors is not known, or the result is not credible.
    """
    machine = target.machine or co_runner.machine
    here = [co_runner.cpus[name] for name in target.cpus.keys() & co_runner.cpus.keys()]
    n_theirs = max((len(number_lists.parse_cpus(cpus)) for cpus in here), default=0)
    if machine is None or not 0 < n_theirs <= machine.n_cpus:
        return None
    scaled = _of_part(slowdown, 2 * n_theirs / machine.n_cpus)
    return scaled if _is_believed(scaled) else None


def _while_shared(run: Run, slowdown: Estimate, shared_s: float) -> Estimate | None:
    """Slowdown of the shared part of a run, from the whole run's slowdown."""
    shared_s = min(shared_s, run.wall_s)
    alone_s = run.wall_s - shared_s
    work_s = [run.wall_s / end - alone_s for end in (slowdown.low, slowdown.value, slowdown.high) if end > 0]
    if shared_s < LEAST_SHARED_FRAC * run.wall_s or len(work_s) < 3 or min(work_s) <= 0:
        return None
    low, value, high = (shared_s / each for each in work_s)
    return Estimate(value, low, high, slowdown.n, "1", slowdown.method)


def _main_co_runner(co_runners: Iterable[tuple[str, float]], shared_s: float) -> str | None:
    ordered = sorted(co_runners, key=lambda found: found[1], reverse=True)
    if not ordered or ordered[0][1] < MAIN_FRAC * shared_s:
        return None
    rest_s = sum(overlap_s for _, overlap_s in ordered[1:])
    return ordered[0][0] if rest_s <= (1 - MAIN_FRAC) * shared_s else None


def _overlap(one: Run, other: Run) -> bool:
    """Whether two runs overlap in time. Job numbers alone do not show this, because they wrap around."""
    ends = (run.start_unix_s + run.wall_s for run in (one, other))
    return other is not one and max(one.start_unix_s, other.start_unix_s) < min(ends)


K = TypeVar("K", bound=Hashable)

RUN_SD = 0.1
"""Standard deviation of a pair's log slowdown from meeting to meeting, even if it is measured exactly."""
GUESS_SD = 0.5
"""Standard deviation of an assumed log slowdown, and of the log slowdowns of pairs with a common job. A
deviation three times as large would be surprising."""
MOST = 1000.0
"""Slowdowns of this size and more are not credible and are ignored."""
_Z = 1.959963984540054


def meetings(job: Sequence[Run]) -> list[tuple[str, Estimate]]:
    """Numbers of the jobs beside which a job's slowdown was measured, with these slowdowns."""
    whole = run_of_steps(job)
    overlap_s: dict[str, float] = defaultdict(float)
    for name, both_s in whole.co_runners:
        overlap_s[job_number(name)] += both_s
    overlap_s.pop(job_number(job[0].id), None)  # the job's own step that left no profile
    n_steps = Counter(job_number(name) for name, _ in whole.co_runners)
    by = {job_number(name): one for name, one in whole.slowdown_by.items() if n_steps[job_number(name)] == 1}
    found = beside(replace(whole, co_runners=tuple(overlap_s.items()), slowdown_by=by))
    return [] if isinstance(found, str) else [one for one in found if _is_believed(one[1])]


def _is_believed(slowdown: Estimate) -> bool:
    return slowdown.low > 0 and slowdown.value >= LEAST_SLOWDOWN and slowdown.high < MOST


def expected_pair_slowdowns(
    kinds: Collection[K],
    measured: Mapping[tuple[K, K], Sequence[Estimate]],
    before: PairSlowdowns | float | None,
) -> tuple[Floats, Floats]:
    """Expected slowdowns of all ordered pairs of kinds of jobs, and the upper ends of their intervals.

    Shapes: result (n, n). Result: at [i, j] the slowdown of the i-th kind beside the j-th; NaN if unknown. An
    assumed slowdown has no interval, so its upper end is NaN.
    """
    place = {kind: i for i, kind in enumerate(kinds)}
    here = {
        (place[target], place[co_runner]): meetings
        for (target, co_runner), meetings in measured.items()
        if target in place and co_runner in place
    }
    value, low, high = np.full((3, len(place), len(place)), np.nan)
    if isinstance(before, PairSlowdowns):
        value, low, high = (np.array(each) for each in (before.value, before.low, before.high))
    elif before is not None:
        value = _typical(before, here, len(place))
    for (i, j), meetings in here.items():
        said = None if before is None else guess(value[i, j])
        if isinstance(before, PairSlowdowns):
            said = Estimate(value[i, j], low[i, j], high[i, j], 0, "1", "predicted")
        found = expected(said, meetings)
        value[i, j], high[i, j] = found.value, found.high
    return value, high


def _typical(assumed: float, measured: Mapping[tuple[int, int], Sequence[Estimate]], n: int) -> Floats:
    """The assumed slowdown of each pair of n kinds.

    It is the weighted geometric mean of `assumed`, with the weight 1, of the target's slowdowns beside other
    jobs, and of other jobs' slowdowns beside the co-runner. The slowdown of a pair has a weight of at most 1,
    even if the pair met often, and a smaller weight if it was measured badly. The amount by which a pair's
    slowdown may exceed `assumed` is capped, because users write the profiles.
    """
    total, count = np.zeros((2, n, n))
    most = _Z * GUESS_SD
    for pair, meetings in measured.items():
        log, variance = _mean(map(_point, meetings))
        count[pair] = GUESS_SD**2 / (GUESS_SD**2 + variance)
        total[pair] = count[pair] * min(max(log, 0.0) - math.log(assumed), most)
    # Leave out the pair's own meetings: `expected` adds them.
    log, weight = (each.sum(axis=1, keepdims=True) + each.sum(axis=0) - 2 * each for each in (total, count))
    return np.maximum(assumed * np.exp(log / (1 + weight)), 1.0)


def guess(slowdown: float) -> Estimate:
    """An assumed slowdown as an estimate."""
    return scattered(slowdown, GUESS_SD, 0, "assumed")


def scattered(slowdown: float, sd: float, n: int, method: str) -> Estimate:
    """A slowdown from `n` measurements; its logarithm has the standard deviation `sd`."""
    factor = math.exp(_Z * sd)
    return Estimate(slowdown, slowdown / factor, slowdown * factor, n, "1", method)


def expected(before: Estimate | None, measured: Sequence[Estimate]) -> Estimate:
    """Expected slowdown of a pair at its next meeting.

    Result: value and ends are at least 1.

    The logarithm is the mean of the logarithms, weighted by inverse variance, as follows from a normal prior
    and normal errors. Meetings vary by `RUN_SD` in addition to their own errors, and the standard deviation
    of a prediction counts as at least `RUN_SD`. Badly measured meetings therefore have little weight, and
    later meetings can always correct earlier ones. The next meeting varies too, so the interval is never
    narrower than `RUN_SD` allows.
    """
    points = list(map(_point, measured))
    if before is not None:
        # The lower end of a prediction is clipped at 1, so only the upper end shows its uncertainty.
        sd = math.log(before.high / before.value) / _Z
        points.append((math.log(before.value), max(sd**2, RUN_SD**2)))
    mean, variance = _mean(points)
    half = _Z * math.sqrt(variance + RUN_SD**2)
    value, low, high = (max(math.exp(log), 1.0) for log in (mean, mean - half, mean + half))
    return Estimate(value, low, high, sum(each.n for each in measured), "1", "met before")


def _point(meeting: Estimate) -> tuple[float, float]:
    """Logarithm of a measured slowdown, and its variance as a sample of the pair's slowdowns."""
    sd = math.log(meeting.high / meeting.low) / (2 * _Z)
    return math.log(meeting.value), sd**2 + RUN_SD**2


def _mean(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Inverse-variance weighted mean of (value, variance) points, and its variance."""
    weighted = [(value / variance, 1 / variance) for value, variance in points]
    total, weight = map(sum, zip(*weighted, strict=True))
    return total / weight, 1 / weight
