"""Runs side by side: what of them is compared, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import printable
from mpicoloc.model.compare import Comparison
from mpicoloc.report.listing import Listing
from mpicoloc.report.table import amount, seconds
from mpicoloc.report.terminal import console
from mpicoloc.store.frames import Frames

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
"""What is compared beside the time in each MPI function: times outside MPI and in it are those of all ranks
together, the imbalance is the longest time of computation of a rank over the mean one."""
N_FUNCTIONS = 8
_Value = float | Estimate | None


def quantities(job: Frames) -> dict[str, _Value]:
    """What one run gives to compare: `UNITS`, and seconds in each MPI function by its name."""
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
    """The values of each quantity, run by run; a function that a run never called took no time in it."""
    return {name: [run.get(name, None if name in UNITS else 0.0) for run in runs] for name in names}


def functions(runs: Sequence[Mapping[str, _Value]]) -> list[str]:
    """The MPI functions of the runs, those that took most time first."""
    names = sorted({name for run in runs for name in run if name not in UNITS})
    return sorted(names, key=lambda name: -sum(_time_s(run, name) for run in runs))


def _time_s(run: Mapping[str, _Value], name: str) -> float:
    time_s = run.get(name)
    return time_s if isinstance(time_s, float) else 0.0


def as_json(found: Sequence[Comparison], regressions: Sequence[str]) -> dict[str, Any]:
    """The keys of ``mpicoloc compare --json``."""
    rows = [{**asdict(row), "verdict": row.verdict} for row in found]
    return {"quantities": rows, "regressions": list(regressions)}


def show(found: Sequence[Comparison], titles: tuple[str, str]) -> None:
    """Print the comparison of two groups of runs."""
    columns = ("quantity", *titles, "ratio", "95 %", "verdict")
    table = Listing(None, columns, lesser=("95 %", "verdict"))
    n_shown = len(UNITS) + N_FUNCTIONS
    for row in found[:n_shown]:
        ends = f"{row.low:.3f} to {row.high:.3f}" if row.is_judged else ""
        numbers = [_number(row.before, row.unit), _number(row.after, row.unit)]
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
        word = "" if row.ratio is None else row.verdict
        table.add_row(escape(printable(row.name)), *numbers, ratio, ends, word)
    if len(found) > n_shown:
        table.caption = f"{len(found) - n_shown} more functions (--json)"
    output = console()
    output.print(table)
    if not any(row.is_judged and row.name not in ("slowdown",) for row in found):
        output.print("not judged: one run tells nothing of how far runs scatter; give several of each.")


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return seconds(value)
    return amount(value) if unit == "bytes" else f"{value:,.4g}" if value < 1e6 else f"{value:,.0f}"
