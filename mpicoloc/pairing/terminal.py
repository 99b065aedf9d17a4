"""Output of plans, slowdown models, predictions and campaigns, for a terminal or as JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from mpicoloc import messages
from mpicoloc.bubble.model import BubbleModel
from mpicoloc.core.bubbles import MAX_LEVEL
from mpicoloc.core.plain_values import plain_prediction
from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import CORES, TURNS, JobFeatures
from mpicoloc.core.units import counted
from mpicoloc.errors import printable
from mpicoloc.pairing import model_file, policies
from mpicoloc.pairing.cores_plan import Preference
from mpicoloc.pairing.fitted import COVERAGE
from mpicoloc.pairing.model_file import StoredModel
from mpicoloc.pairing.policies import Plan
from mpicoloc.pairing.sharing_plan import Action, Commit
from mpicoloc.pairing.spread_plan import Shape
from mpicoloc.show.table import Column, console, interval, interval_notes, listing

if TYPE_CHECKING:
    from mpicoloc.pairing.campaign import Experiment
    from mpicoloc.pairing.corun import Slowdown
    from mpicoloc.show.table import Listing


def plan_json(
    plan: Plan, slots: Sequence[policies.Slot], ids: Sequence[str], runtime_s: Sequence[float]
) -> dict[str, Any]:
    """The plan as plain values. Unproven bounds and missing reasons are None."""
    return {
        "policy": plan.policy,
        "n_jobs": len(ids),
        "n_nodes_used": len({slot.node for slot in slots}),
        "serial_s": float(sum(runtime_s)),
        "cost_s": plan.cost_s,
        "lower_bound_s": None if math.isnan(plan.lower_bound_s) else plan.lower_bound_s,
        "gap_frac": None if math.isnan(plan.gap_frac) else plan.gap_frac,
        "makespan_s": _makespan_s(plan, slots),
        "groups": [
            {
                "jobs": [ids[job] for job in group.jobs],
                "duration_s": group.duration_s,
                "serial_s": float(sum(runtime_s[job] for job in group.jobs)),
                "node": slot.node,
                "start_s": slot.start_s,
                "why_alone": group.why or None,
            }
            for group, slot in zip(plan.groups, slots, strict=True)
        ],
        "notes": list(plan.notes),
    }


def show_plan(
    plan: Plan, slots: Sequence[policies.Slot], ids: Sequence[str], runtime_s: Sequence[float]
) -> None:
    """Print a row for each group, in order of nodes, and the totals."""
    columns = (
        Column("jobs", lambda row: " + ".join(ids[job] for job in row[0].jobs)),
        Column("node", lambda row: row[1].node),
        Column("start s", lambda row: row[1].start_s, ".1f"),
        Column("together s", lambda row: row[0].duration_s, ".1f"),
        Column("one after the other s", lambda row: sum(runtime_s[job] for job in row[0].jobs), ".1f"),
        Column("alone because", lambda row: row[0].why),
    )
    rows = sorted(zip(plan.groups, slots, strict=True), key=lambda row: (row[1].node, row[1].start_s))
    out = console()
    if rows:
        out.print(listing(columns, rows))
    words = _plan_summary(plan, slots, sum(runtime_s))
    out.print(words, soft_wrap=not out.is_terminal, markup=False)


def _plan_summary(plan: Plan, slots: Sequence[policies.Slot], serial_s: float) -> str:
    n_shared = sum(len(group.jobs) for group in plan.groups if len(group.jobs) > 1)
    n_jobs = sum(len(group.jobs) for group in plan.groups)
    words = f"{n_shared} of {counted(n_jobs, 'job')} share; {plan.cost_s:.1f} s of nodes"
    words += f", {serial_s:.1f} s without sharing"
    if not math.isnan(plan.gap_frac) and plan.groups:
        words += f", at most {100 * plan.gap_frac:.3f} % above the least possible"
    return f"{words}; makespan {_makespan_s(plan, slots):.1f} s"


def _makespan_s(plan: Plan, slots: Sequence[policies.Slot]) -> float:
    return policies.makespan_s([group.duration_s for group in plan.groups], slots)


def show_action(action: Action | Preference) -> None:
    """Print one decision of the pairing service immediately."""
    if isinstance(action, Shape):
        told = f"may be spread over {','.join(action.nodes)}" if action.nodes else "packed again"
        print(f"{action.job} {told}")
    elif isinstance(action, Preference):
        print(f"{action.job} prefers {','.join(action.nodes) or 'no nodes'}")
    elif isinstance(action, Commit):
        *leader, job = action.share.jobs
        beside = f" beside {leader[0]}" if leader else ""
        after = f" after {', '.join(map(str, action.after))}" if action.after else ""
        print(f"{job}{beside} on {','.join(action.share.nodes)}{after}: {action.why}")
    else:
        print(f"{action.job} alone: {action.why}")
    sys.stdout.flush()


_SCORES = {
    "R2": ("known", "r2"),
    "error": ("known", "mae"),
    "R2 new": ("new", "r2"),
    "error new": ("new", "mae"),
    "cost new": ("new", "cost"),
    "under new": ("new", "under_frac"),
    "worst new": ("new", "worst_under"),
    "inside new": ("new", "coverage"),
    "width new": ("new", "width"),
}
"""Each column's set of rows (known or new programs), and the field of `pairing.fitted.Scores` in it."""
_LEFT_OUT = {"width new": 1, "error": 2, "worst new": 3}
_SHORT = ("model", "error new", "cost new")
"""The columns that show whether a model is useful."""


def show_card(card: Mapping[str, Any], with_all: bool = False) -> None:
    """Print the card of a model.

    A model file may come from anybody. If its card is malformed, this function raises `LookupError`,
    `TypeError`, `ValueError` or `AttributeError`.
    """
    training, machine = card["training"], card["machine"]
    where = "an unknown machine"
    if machine is not None:
        gib = float(machine["memory_bytes"]) / 2**30
        where = f"{machine['cpu_model']}, {counted(int(machine['n_cpus']), 'CPU')}, {gib:.0f} GiB"
    programs = [str(name) for name in training["programs"]]
    layouts = {CORES: ", each job on processors of its own", TURNS: ", both jobs on the same processors"}
    sources = ", ".join(f"{int(n)} of {source}" for source, n in training["sources"].items())
    features = [str(feature["name"]) for feature in card["features"]]
    names = f": {', '.join(features)}" if with_all else ""
    held = 1.0 if card.get("held") is None else float(card["held"])
    short = {"intervals": f"hold {100 * held:.1f} % of new programs, not 95 %"} if held < COVERAGE else {}
    out = console()
    for name, words in {
        "model": card["kind"],
        "machine": where,
        "trained on": f"{counted(int(training['n_rows']), 'slowdown')} ({sources}) of "
        + counted(len(programs), "program")
        + layouts.get(card.get("layout", ""), ""),
        "features": f"{len(features)}{names}",
        "made": f"{card.get('date', 'no date')}, seed {card['seed']}",
        **short,
    }.items():
        out.print(f"[bold]{name:12}[/bold] {escape(printable(str(words)))}", soft_wrap=not out.is_terminal)
    out.print(_scores(card["scores"], card["choice"], with_all))


def print_model(model: StoredModel, *, is_json: bool) -> None:
    """Print a model's card or curves. Raises the errors of `show_card`."""
    if is_json:
        print(json.dumps(model_file.card(model), indent=2, allow_nan=False))
    elif isinstance(model, BubbleModel):
        show_bubbles(model)
    else:
        show_card(model_file.card(model), messages.is_verbose())


def _scores(scores: Sequence[Mapping[str, Any]], choice: Mapping[str, Any], with_all: bool) -> Listing:
    columns = [
        Column("model"),
        Column("cost", form=".3f"),
        *(Column(name, form=".3f", left_out=_LEFT_OUT.get(name, 0)) for name in _SCORES),
    ]
    rows = [
        {"model": score["kind"], "cost": score.get("cost")}
        | {name: score[part].get(field) for name, (part, field) in _SCORES.items()}
        for score in [*scores, {"kind": "(chosen)", "known": {}, "new": choice}]
    ]
    return listing(
        columns if with_all else [column for column in columns if column.header in _SHORT],
        rows,
        "Scores, least cost in the search first; new: on programs left out of the search too",
        () if with_all else ("all scores: -v",),
    )


Pair = tuple[JobFeatures, Sequence[JobFeatures], Estimate]


def predictions_json(
    kind: str, jobs: Sequence[JobFeatures], pairs: Sequence[Pair], layout: str
) -> dict[str, Any]:
    """Jobs and predictions as `mpicoloc pair` reads them, unless they are beside several co-runners."""
    return {
        "model": kind,
        "jobs": [
            {"id": job.id, "program": job.program, "runtime_s": job.runtime_s, "n_cores": job.n_cores}
            for job in jobs
        ],
        "slowdowns": [
            as_row((target.id, target.kind), [(job.id, job.kind) for job in co_runners], found, layout)
            for target, co_runners, found in pairs
        ],
    }


Named = tuple[str, str | None]
"""A job or program, and its kind (`JobFeatures.kind`), or None if unknown."""


def as_row(target: Named, co_runners: Sequence[Named], slowdown: Estimate, layout: str) -> dict[str, Any]:
    """One measured or predicted slowdown, beside one or several jobs or programs."""
    row: dict[str, Any] = {"target": target[0], "target_kind": target[1]}
    if len(co_runners) == 1:
        row |= {"co_runner": co_runners[0][0], "co_runner_kind": co_runners[0][1]}
    else:
        row |= {"co_runners": [name for name, _ in co_runners]}
        row |= {"co_runner_kinds": [kind for _, kind in co_runners]}
    return row | {"slowdown": plain_prediction(slowdown), "layout": layout or None}


def show_predictions(pairs: Sequence[Pair]) -> None:
    """Print a row for each prediction."""
    columns = (
        Column("job", lambda pair: _name(pair[0]), is_name=True),
        Column("beside", lambda pair: ", ".join(map(_name, pair[1])) or "nobody", is_name=True),
        Column("slowdown", lambda pair: pair[2], ".3f"),
        Column("95 %", lambda pair: pair[2], interval),
    )
    notes = interval_notes(found for *_, found in pairs)
    console().print(listing(columns, pairs, "Predicted slowdown", notes))


def _name(job: JobFeatures) -> str:
    return job.id if job.id == job.program else f"{job.id} {job.program}"


def show_bubbles(model: BubbleModel) -> None:
    """Print the pressure score and sensitivity of each program in a model of curves."""
    columns = (
        Column("program"),
        Column("score", form=".2f"),
        Column("slowdown at level 4", lambda one: model.curve(one.program).at(MAX_LEVEL / 2), ".3f"),
        Column("at level 8", lambda one: model.curve(one.program).at(MAX_LEVEL), ".3f"),
        Column("uneven pressures", "policy", missing="not known"),
    )
    out = console()
    out.print(listing(columns, model.programs.values()))
    out.print(
        f"bubble: {counted(model.n_rows, 'program')}, several co-runners by {model.combine}", markup=False
    )


def show_experiments(
    todo: Sequence[Experiment], expected_s: Sequence[float | None], *, is_json: bool
) -> None:
    """Print the experiments that would be run. The JSON output also has their expected durations, s."""
    if not is_json:
        for each in todo:
            print(f"{each.i_round} {each.kind} {' '.join(each.names)}")
        return
    rows = [
        {"round": each.i_round, "names": each.names, "expected_s": time_s}
        for each, time_s in zip(todo, expected_s, strict=True)
    ]
    print(json.dumps({"experiments": rows}, indent=2, allow_nan=False))


def campaign_json(found: Sequence[Slowdown], kinds: Mapping[str, str], layout: str) -> dict[str, Any]:
    """All slowdowns with their intervals, and with programs and sizes (`JobFeatures.kind`) if known."""
    return {
        "slowdowns": [
            as_row(
                (each.target, kinds.get(each.target)),
                [(each.co_runner, kinds.get(each.co_runner))],
                each.slowdown,
                layout,
            )
            for each in found
        ]
    }


def show_campaign(found: Sequence[Slowdown], names: Sequence[str]) -> None:
    """Print a row for each program, with its slowdown beside each program."""
    by_names = {(each.target, each.co_runner): each.slowdown for each in found}
    columns = [
        Column("beside", itemgetter(0)),
        *(Column(printable(name), itemgetter(i), _text) for i, name in enumerate(names, 1)),
    ]
    rows = [(target, *(by_names.get((target, co_runner)) for co_runner in names)) for target in names]
    console().print(listing(columns, rows, "slowdown, 95 %"))


def _text(cell: Estimate) -> str:
    return f"{cell.value:.2f} ({cell.low:.2f}-{cell.high:.2f})"
