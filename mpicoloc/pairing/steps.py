"""Runs of whole jobs out of profiles: copies counted once, and the steps of one job taken together."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.run import Moments, Run

GAP_S = 86400.0
"""A step that begins so long after the others have ended is of another job: numbers begin anew after months,
and between two steps a job may do other things for hours."""
_PEAKS = ("rss_bytes",)
"""What the job needs at once is that of the step that needs most, however short it is."""


class RunLike(Protocol):
    """What is asked of anything that tells of a run."""

    @property
    def id(self) -> str:
        """Of its job."""

    @property
    def n_ranks(self) -> int:
        """How many ranks it had."""

    @property
    def start_unix_s(self) -> float:
        """When it began, s since 1970; 0: not known."""

    @property
    def wall_s(self) -> float:
        """How long it took, s."""

    @property
    def partial(self) -> bool:
        """Whether it is not known to its end."""


R = TypeVar("R", bound=RunLike)


def distinct(found: Iterable[R]) -> list[R]:
    """Each run once: the user's own file, a signed copy and what was recovered may all be there.

    Result: in the same order. Of several with the job's id and the same start, one that knows its end.
    """
    kept: dict[Hashable, R] = {}
    for run in found:
        # Without a start nothing but the time tells two runs apart.
        key = (run.id, run.start_unix_s, 0.0 if run.start_unix_s else run.wall_s)
        if key not in kept or (kept[key].partial and not run.partial):
            kept[key] = run
    return list(kept.values())


def jobs(found: Iterable[R]) -> list[list[R]]:
    """The runs of one user's jobs of one name, those of one job together.

    A batch job may start several: `srun` after `srun` gives them its number, `mpicoloc run` a number of its
    own behind that.

    Result: jobs in the order in which they began, the steps of each too.
    """
    open_jobs: dict[str, tuple[list[R], float]] = {}
    result: list[list[R]] = []
    for run in sorted(distinct(found), key=_start):
        name = number(run)
        steps, end_s = open_jobs.get(name, ([], 0.0))
        if not steps or run.start_unix_s > end_s + GAP_S:
            steps, end_s = [], 0.0
            result.append(steps)
        steps.append(run)
        open_jobs[name] = steps, max(end_s, run.start_unix_s + run.wall_s)
    return result


def number(run: RunLike) -> str:
    """The batch system's number of a run's job; the run's own name, where it has none."""
    return number_of(run.id)


def number_of(name: str) -> str:
    """The batch system's number in the name of a run."""
    found = re.match(r"\d+(?=-|$)", name)
    return found[0] if found else name


def _start(run: RunLike) -> float:
    return run.start_unix_s


def n_ranks(steps: Sequence[RunLike]) -> int:
    """Most ranks of a job's steps at one instant."""
    return _at_once(steps, lambda step: step.n_ranks)


def _at_once(steps: Sequence[R], of: Callable[[R], int]) -> int:
    return max(
        sum(of(other) for other in steps if other is step or _lasts_at(other, step.start_unix_s))
        for step in steps
    )


def _lasts_at(step: RunLike, unix_s: float) -> bool:
    return step.start_unix_s <= unix_s < step.start_unix_s + step.wall_s


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
        n_ranks=n_ranks(steps),
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
    """Time of all steps over their time alone; None where that of a step is not known."""
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
    """Those of all steps but the steps themselves, and how long they were there, s."""
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
        else weighted(of)
        for name, of in parts.items()
    }


def weighted(parts: Sequence[tuple[Moments, float]]) -> Moments:
    """Moments of a quantity over parts of a run, each counting for its share of the time.

    Result: of as many values as the part with most: a job of many steps counts no more than one of few.
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
