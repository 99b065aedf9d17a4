"""Compare quantities of runs, and find those that grew by more than a limit."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from mpicoloc import messages
from mpicoloc.core.profile import Estimate
from mpicoloc.core.progress import steps
from mpicoloc.core.slowdown import program_name
from mpicoloc.core.units import amount, counted, ends, seconds
from mpicoloc.errors import DataError, UsageError, printable
from mpicoloc.measure import processor
from mpicoloc.measure.statistics import Comparison, compare_all
from mpicoloc.profile.frames import Frames, open_profile
from mpicoloc.show.table import Column, console, listing

if TYPE_CHECKING:
    from mpicoloc.show.table import Listing

UNITS = {
    "wall_s": "s",
    "comp_s": "s",
    "mpi_s": "s",
    "mpi_frac": "1",
    "imbalance": "1",
    "slowdown": "1",
    "fair_su": "SU",
    "n_calls": "1",
    "sent_bytes": "bytes",
}
"""Quantities to compare, besides the time in each MPI function. The imbalance is the longest computation time
of a rank divided by the mean."""
_OF_RANKS = ("comp_s", "mpi_s")
"""Times outside and in MPI, summed over all ranks like the times in functions."""
_Value = float | Estimate | None


def compare(
    groups: Mapping[str, Sequence[str]], limits: Mapping[str, float]
) -> tuple[dict[str, list[Comparison]], list[tuple[str, Comparison]]]:
    """Compare groups of runs with the first group.

    Raises `UsageError` if a limit names an unknown quantity. Raises `DataError` if a file is not a profile,
    or if a quantity with a limit was not measured.
    """
    files = [file for of_group in groups.values() for file in of_group]
    opened = [open_profile(file) for file in steps(files, "reading", unit="profiles")]
    _warn_of_differences(opened)
    starved = []
    for file, job in zip(files, opened, strict=True):
        if job.profile.partial:
            _refuse_partial(file, limits)
        if (note := processor.delay_note(job.profile)) is not None:
            starved.append(f"job {job.profile.job.id}: {note}; its times include these waits")
    if starved:
        more = f", and so do those of {counted(len(starved) - 1, 'more job')}" if len(starved) > 1 else ""
        messages.note(starved[0] + more)
    jobs = iter(opened)
    runs = [[quantities(next(jobs)) for _ in of_group] for of_group in groups.values()]
    names = [*UNITS, *functions_by_time([run for group in runs for run in group])]
    _check_names(limits, names)
    units = {name: UNITS.get(name, "s") for name in names}
    first, *others = (columns(group, names) for group in runs)
    found = dict(zip(list(groups)[1:], compare_all(first, others, units), strict=True))
    for rows in found.values():
        _check_measured(limits, rows)
    grown = [
        (name, row)
        for name, rows in found.items()
        for row in rows
        if row.name in limits and row.is_above(limits[row.name])
    ]
    return found, grown


def growth(row: Comparison) -> str:
    """The growth of a quantity as text."""
    return "above 0, its value before" if row.ratio is None else f"{row.ratio:.3f} times what it was"


def _refuse_partial(file: str, limits: Mapping[str, float]) -> None:
    """Refuse partial profiles if there are limits: a killed job's time is too short to show a regression."""
    text = f"{file} is partial: the job did not end normally"
    if limits:
        raise DataError(f"{text}, so it cannot show a regression; leave it out")
    messages.note(f"{text}, so its times and amounts are too small")


def _check_names(limits: Mapping[str, float], names: Sequence[str]) -> None:
    for name in limits:
        if name in names:
            continue
        close = difflib.get_close_matches(name, names, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        if not name.startswith("MPI_"):
            known = ", ".join(names[:9])
            raise UsageError(
                f"--regression {name!r} is not a quantity{hint}; give {known}, or an MPI function"
            )
        # Not an error: a new version of the program may not call this function any more.
        messages.note(f"no run calls {name}{hint}")


def _check_measured(limits: Mapping[str, float], found: Sequence[Comparison]) -> None:
    for row in found:
        if row.name in limits and (row.before is None or row.after is None):
            which = "the first group" if row.before is None else "a later group"
            raise DataError(
                f"--regression {row.name}: no run of {which} measured this quantity; choose another"
            )


def _warn_of_differences(jobs: Sequence[Frames]) -> None:
    """Warn if runs differ in program or size, because such runs are rarely compared on purpose."""
    programs = dict.fromkeys(program_name(job.profile.job.command) for job in jobs)
    if len(programs) > 1:
        messages.note(f"these are runs of different programs: {', '.join(map(printable, programs))}")
    sizes = sorted({job.profile.job.n_ranks for job in jobs})
    if len(sizes) > 1:
        messages.note(f"these are runs of different sizes: {', '.join(map(str, sizes))} ranks")


def quantities(job: Frames) -> dict[str, _Value]:
    """The quantities of one run: those of `UNITS`, and the seconds in each MPI function, by name."""
    profile = job.profile
    ranks = profile.tables["ranks"]
    comp_s = ranks["comp_ns"].astype(float) * 1e-9
    mean_s = comp_s.mean() if len(comp_s) else 0.0
    found: dict[str, _Value] = {
        "wall_s": profile.job.wall_s,
        "comp_s": float(comp_s.sum()),
        "mpi_s": float(ranks["mpi_ns"].sum()) * 1e-9,
        "mpi_frac": profile.mpi.time_frac,
        "imbalance": float(comp_s.max() / mean_s) if mean_s else None,
        "slowdown": profile.interference.slowdown,
        "fair_su": None if profile.price is None else profile.price.fair_su,
        "n_calls": profile.mpi.n_calls,
        "sent_bytes": profile.mpi.sent_bytes,
    }
    calls = job.calls
    return found | dict(zip(calls["call"], calls["time_s"].astype(float), strict=True))


def columns(runs: Sequence[Mapping[str, _Value]], names: Sequence[str]) -> dict[str, list[_Value]]:
    """The values of each quantity, run by run. If a run never called a function, its time there is 0 s."""
    return {name: [run.get(name, None if name in UNITS else 0.0) for run in runs] for name in names}


def functions_by_time(runs: Sequence[Mapping[str, _Value]]) -> list[str]:
    """The MPI functions of the runs, in descending order of their time."""
    names = sorted({name for run in runs for name in run if name not in UNITS})
    return sorted(names, key=lambda name: -sum(_time_s(run, name) for run in runs))


def _time_s(run: Mapping[str, _Value], name: str) -> float:
    time_s = run.get(name)
    return time_s if isinstance(time_s, float) else 0.0


_N_SHOWN = 10
N_SIDE_BY_SIDE = 4
"""Largest number of groups in one table; more groups would not fit 80 columns."""


def as_json(
    groups: Mapping[str, Sequence[str]],
    found: Mapping[str, Sequence[Comparison]],
    regressions: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """The output of ``mpicoloc compare --json``; `regressions` are pairs of group and quantity names."""
    rows = [
        {
            **asdict(row),
            "verdict": row.verdict,
            "group": name,
            "is_regression": (name, row.name) in regressions,
        }
        for name, rows in found.items()
        for row in rows
    ]
    return {
        "groups": [{"name": name, "files": list(files)} for name, files in groups.items()],
        "quantities": rows,
        "regressions": list(dict.fromkeys(quantity for _, quantity in regressions)),
    }


def show(found: Mapping[str, Sequence[Comparison]], first: str) -> None:
    """Print the comparisons of groups of runs with the first group."""
    output = console()
    names = list(found)
    for i in range(0, len(names), N_SIDE_BY_SIDE):
        for are_sums in (False, True):
            parts = {
                name: [row for row in found[name] if _is_sum(row) is are_sums]
                for name in names[i : i + N_SIDE_BY_SIDE]
            }
            title = "all ranks together" if are_sums else "the job"
            output.print(
                _pair(parts, first, title) if len(found) == 1 else _side_by_side(parts, first, title)
            )
    judged = [row for rows in found.values() for row in rows if row.is_judged]
    if not any(row.name != "slowdown" for row in judged):
        rows = [row for rows in found.values() for row in rows]
        is_single = all(max(row.n_before, row.n_after) <= 1 for row in rows)
        output.print(f"no verdict: {'one run each' if is_single else 'too few runs'}, give at least 3")
    elif len(found) > 1:
        output.print(
            f"verdicts by Holm, {len(found)} comparisons with {escape(first)}: if a quantity is the same "
            "in all groups, a false verdict has a chance of 5 %. Intervals: --json"
        )


def _is_sum(row: Comparison) -> bool:
    return row.name in _OF_RANKS or row.name not in UNITS


def _pair(found: Mapping[str, Sequence[Comparison]], first: str, title: str) -> Listing:
    [(name, rows)] = found.items()
    columns = (
        Column("quantity", "name"),
        Column(first, lambda row: _number(row.before, row.unit)),
        Column(name, lambda row: _number(row.after, row.unit)),
        Column("ratio", form=".3f"),
        Column("95 %", lambda row: ends(row.low, row.high) if row.is_judged else "", left_out=1),
        Column("verdict", lambda row: "" if row.ratio is None else row.verdict, left_out=2),
    )
    return listing(columns, rows[:_N_SHOWN], title, notes=_more(rows))


def _side_by_side(found: Mapping[str, Sequence[Comparison]], first: str, title: str) -> Listing:
    """The values of the first group, and the ratio of each other group to it."""
    several = list(zip(*found.values(), strict=True))
    columns = (
        Column("quantity", lambda rows: rows[0].name),
        Column(first, lambda rows: _number(rows[0].before, rows[0].unit)),
        *(Column(name, lambda rows, i=i: _ratio(rows[i])) for i, name in enumerate(found)),  # type: ignore[misc]
    )
    return listing(columns, several[:_N_SHOWN], title, notes=_more(several))


def _ratio(row: Comparison) -> str:
    if row.ratio is None:
        return _number(row.after, row.unit)
    return f"{row.ratio:.3f} {row.verdict}" if row.is_judged else f"{row.ratio:.3f}"


def _more(rows: Sequence[Any]) -> list[str]:
    return [f"{counted(len(rows) - _N_SHOWN, 'more function')} (--json)"] if len(rows) > _N_SHOWN else []


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return seconds(value)
    return amount(value) if unit == "bytes" else f"{value:.4g}" if value < 1e3 else f"{value:,.0f}"
