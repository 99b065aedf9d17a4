"""Slowdowns to learn from, out of the runs that were made anyway: those that met one other job.

Nobody has to measure anything for them: shutters tell what each run lost (Breslow et al. 2013, Eq. 7), and
the other job's profile tells what it was beside.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.features import JobFeatures
from mpicoloc.core.run import Run
from mpicoloc.core.training import Row, key_of
from mpicoloc.model import steps
from mpicoloc.model.corun import of_time
from mpicoloc.model.features import job_features

MAIN_FRAC = 0.9
"""Part of the shared time that the one co-runner was there at least, and others at most the rest."""


def rows_of(runs: Sequence[Run]) -> tuple[list[Row], Counter[str]]:
    """Slowdowns of runs beside one known other job.

    Parameters
    ----------
    runs : sequence of Run
        All that there are, also those alone: they tell best what a job is like.

    Returns
    -------
    rows : list of Row
        Slowdown while the other job was there, not over the whole run. Features of both are those of their
        command at their size, from its runs but this one.
    others : Counter of str
        Of how many runs there is no row, and why.
    """
    by_kind: dict[tuple[str, int, int], list[Run]] = defaultdict(list)
    by_id: dict[str, list[Run]] = defaultdict(list)
    n_given, runs = len(runs), steps.distinct(runs)
    for run in runs:
        if not run.partial and run.solo_s > 0:
            by_kind[run.kind].append(run)
            by_id[run.id].append(run)
    for same in by_kind.values():
        same.sort(key=_start)
    features = {kind: job_features(same) for kind, same in by_kind.items()}
    by_others = {key: job for same in by_kind.values() for key, job in _by_others(same)}
    rows, others = [], Counter[str]()
    if n_given > len(runs):
        others["given twice"] = n_given - len(runs)
    for run in runs:
        found = _row(run, by_id, features, by_others)
        if isinstance(found, str):
            others[found] += 1
        else:
            rows.append(found)
    return rows, others


def _start(run: Run) -> float:
    return run.start_unix_s


def _by_others(same: Sequence[Run]) -> Iterator[tuple[int, JobFeatures | None]]:
    """Each run's identity, and features of its kind from other runs; None: there are no others.

    Of a run that was never alone, rates are per second of its time over its slowdown: they would tell a model
    the slowdown that it is asked for. Where no run was alone, each half of them tells of the other half. (All
    but one would tell it again, the other way round.)
    """
    if any(run.was_alone for run in same):
        told = job_features(same)
        yield from ((id(run), told) for run in same)
        return
    ordered = sorted(same, key=lambda run: run.slowdown is None)
    halves = ordered[::2], ordered[1::2]
    for half, rest in (halves, halves[::-1]):
        told_by_rest = job_features(rest) if rest else None
        yield from ((id(run), told_by_rest) for run in half)


def _row(
    run: Run,
    by_id: dict[str, list[Run]],
    features: dict[tuple[str, int, int], JobFeatures],
    by_others: dict[int, JobFeatures | None],
) -> Row | str:
    """The run's row, or why there is none."""
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
    if name is None:
        return "several co-runners"
    beside = [other for other in by_id.get(name, ()) if _met(run, other)]
    if not beside:
        return "no profile of the co-runner"
    if len({other.kind for other in beside}) > 1:
        return "several steps of the co-runner"
    mine = by_others[id(run)]
    if mine is None:
        return "no other run of the same job"
    # Beside another run of its own kind the co-runner's features must not know this run either.
    co_runner = mine if beside[0].kind == run.kind else features[beside[0].kind]
    key = key_of("production", run.id, run.start_unix_s, run.wall_s)
    return Row(mine, co_runner, slowdown, "production", key)


def _while_shared(run: Run, slowdown: Estimate, shared_s: float) -> Estimate | None:
    """From the whole run's slowdown that of its shared part."""
    shared_s = min(shared_s, run.wall_s)
    ends = [
        of_time(run.wall_s, shared_s, run.wall_s / end)
        for end in (slowdown.low, slowdown.value, slowdown.high)
    ]
    low, value, high = (0.0 if end is None else end for end in ends)
    if not (0 < low <= value <= high):
        return None
    return Estimate(value, low, high, slowdown.n, "1", slowdown.method)


def _main_co_runner(co_runners: Iterable[tuple[str, float]], shared_s: float) -> str | None:
    ordered = sorted(co_runners, key=lambda found: found[1], reverse=True)
    if not ordered or ordered[0][1] < MAIN_FRAC * shared_s:
        return None
    rest_s = sum(overlap_s for _, overlap_s in ordered[1:])
    return ordered[0][0] if rest_s <= (1 - MAIN_FRAC) * shared_s else None


def _met(one: Run, other: Run) -> bool:
    """Both ran at some instant, for numbers of jobs begin anew one day."""
    ends = (run.start_unix_s + run.wall_s for run in (one, other))
    return other is not one and max(one.start_unix_s, other.start_unix_s) < min(ends)
