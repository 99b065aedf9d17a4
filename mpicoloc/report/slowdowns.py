"""Slowdown models for people: scores of those that competed, and what the best one predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.features import JobFeatures
from mpicoloc.core.tables import printable
from mpicoloc.report.listing import Listing
from mpicoloc.report.terminal import console

_SHOWN_FEATURES = 12
_SCORES = {
    "R2": "r2",
    "error": "mae",
    "R2 new": "r2_new",
    "error new": "mae_new",
    "cost new": "cost_new",
    "under new": "under_frac_new",
    "held new": "coverage_new",
    "width new": "width_new",
}
"""Columns of the table, by the names of `model.fitting.Score`."""


def show_card(card: Mapping[str, Any]) -> None:
    """Print what is known of a model.

    Raises
    ------
    LookupError, TypeError, ValueError, AttributeError
        If it is the card of no model: it may be a stranger's.
    """
    training, machine = card["training"], card["machine"]
    where = "a machine that is not known"
    if machine is not None:
        gib = float(machine["memory_bytes"]) / 2**30
        where = f"{machine['cpu_model']}, {int(machine['n_cpus'])} CPUs, {gib:.0f} GiB"
    programs = [str(name) for name in training["programs"]]
    sources = ", ".join(f"{int(n)} of {source}" for source, n in training["sources"].items())
    features = [str(feature["name"]) for feature in card["features"]]
    more = f" and {len(features) - _SHOWN_FEATURES} more" if len(features) > _SHOWN_FEATURES else ""
    out = console()
    for name, words in {
        "model": card["kind"],
        "machine": where,
        "learnt from": f"{int(training['n_rows'])} slowdowns ({sources}) of {len(programs)} programs",
        "features": f"{len(features)}: {', '.join(features[:_SHOWN_FEATURES])}{more}",
        "made": f"{card.get('date', 'no date')}, seed {card['seed']}",
    }.items():
        out.print(f"[bold]{name:12}[/bold] {escape(printable(str(words)))}", soft_wrap=True)
    out.print(_scores(card["scores"]))


def _scores(scores: Sequence[Mapping[str, Any]]) -> Listing:
    table = Listing(
        "Scores, best first; new: on programs left out", ("model", *_SCORES), lesser=("width new", "error")
    )
    for score in scores:
        numbers = [score[field] for field in _SCORES.values()]
        cells = ["-" if number is None else f"{float(number):.3f}" for number in numbers]
        table.add_row(escape(printable(str(score["kind"]))), *cells)
    return table


Pair = tuple[JobFeatures, Sequence[JobFeatures], Estimate]


def as_json(kind: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Predictions as plain values."""
    rows = []
    for target, co_runners, found in pairs:
        numbers = {name: getattr(found, name) for name in ("value", "low", "high", "n", "method")}
        rows.append({"target": target.id, "co_runners": [job.id for job in co_runners], "slowdown": numbers})
    return {"model": kind, "predictions": rows}


def show(pairs: Sequence[Pair]) -> None:
    """Print a row for each prediction."""
    table = Listing("Predicted slowdown", ("job", "beside", "slowdown", "95 %"), names=("job", "beside"))
    for target, co_runners, found in pairs:
        beside = ", ".join(map(_name, co_runners)) or "nobody"
        interval = f"{found.low:.3f} to {found.high:.3f}"
        table.add_row(escape(_name(target)), escape(beside), f"{found.value:.3f}", interval)
    console().print(table)


def _name(job: JobFeatures) -> str:
    return printable(f"{job.id} {job.program}")
