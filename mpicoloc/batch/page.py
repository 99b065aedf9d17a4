"""Comparison of sharing policies: metrics as JSON, table and sentences, and one self-contained HTML page.

The page shows the machine's map at any instant, Gantt charts and curves over time.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

import mpicoloc
from mpicoloc.batch import comparison
from mpicoloc.batch.comparison import Centre, SharedRun
from mpicoloc.batch.inputs import Machine, Workload
from mpicoloc.bill.price import Tariff
from mpicoloc.core.plain_values import plain
from mpicoloc.core.profile import Estimate, Floats
from mpicoloc.core.units import seconds
from mpicoloc.errors import printable

_CONFIDENCE_FRAC = 0.95
_DAY_S = 86400
N_USERS = 10
"""Number of users with the largest bills to list."""
_UNITS = {
    "completion_s": "s",
    "utilisation_frac": "1",
    "wait_mean_s": "s",
    "sharing_jobs_mean": "1",
    "sharing_jobs_frac": "1",
    "slowdown_mean": "1",
    "shared_frac": "1",
    "lost_node_hours": "node hours",
}
"""Metrics of each run, with their units."""


def percent(value: Estimate) -> str:
    """A fraction in percent, with its interval if there is one."""
    ends = f" ({100 * value.low:.1f} to {100 * value.high:.1f})" if value.n > 1 else ""
    return f"{100 * value.value:.1f} %{ends}"


def number(value: Estimate, n_digits: int = 0) -> str:
    """A number, with its interval if there is one."""
    if abs(value.value) < 10:
        n_digits = max(n_digits, 2)
    ends = f" ({value.low:,.{n_digits}f} to {value.high:,.{n_digits}f})" if value.n > 1 else ""
    return f"{value.value:,.{n_digits}f}{ends}"


def duration(value_s: float) -> str:
    """A duration as text; a duration of at least one day is in days."""
    return f"{value_s / _DAY_S:,.2f} days" if value_s >= _DAY_S else seconds(value_s)


def _time(value: Estimate) -> str:
    return duration(value.value)


_ROWS: tuple[tuple[str, str, Callable[[Estimate], str]], ...] = (
    ("completion", "completion_s", _time),
    ("nodes with a job", "utilisation_frac", percent),
    ("of these shared", "shared_frac", percent),
    ("wait, mean", "wait_mean_s", _time),
    ("wait, mean, in the log", "log_wait_mean_s", _time),
    ("slowdown of a job, mean", "slowdown_mean", functools.partial(number, n_digits=3)),
    ("lost to interference, node hours", "lost_node_hours", number),
    ("of these to links", "links_lost_node_hours", number),
    (
        "E(P) of links against the other allocation",
        "links_effectiveness",
        functools.partial(number, n_digits=2),
    ),
    ("E(P) against blind", "effectiveness", functools.partial(number, n_digits=2)),
    ("saved of the machine", "saved_frac", percent),
)
"""Rows of the table: name, metric and format; rows of links appear only if links delay jobs."""


@dataclass(frozen=True)
class PolicyFigures:
    """Metrics of one policy over all of its seeds.

    Parameters
    ----------
    sharing : str
    figures : dict of str to Estimate or None
        By their names in JSON; None: not measured. `saved_frac` is the fraction of the machine's node hours
        that sharing saves, `effectiveness` is E(P) against blind sharing (Jokanovic 2014, Eq. 2.4),
        `links_lost_node_hours` is the loss because jobs share links, and `links_effectiveness` is E(P) of
        this loss against another allocation.
    charged_su : dict of str to Estimate
        Service units of all jobs, by price function.
    users : dict of str to dict of str or int to float
        Mean service units of the users with the largest bills, by price function and by user name or number.
    """

    sharing: str
    figures: dict[str, Estimate | None]
    charged_su: dict[str, Estimate]
    users: dict[str, dict[str | int, float]]


def over_seeds(values: Sequence[float], unit: str, least: float = -np.inf, most: float = np.inf) -> Estimate:
    """Mean of a metric over seeds, with its 95 % interval by Student's t; a single seed has no interval."""
    array = np.asarray(values, np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return Estimate(mean, mean, mean, 1, unit, "one seed")
    error = float(array.std(ddof=1)) / np.sqrt(len(array))
    from scipy import stats  # imported here because it takes half a second, and only several seeds need it

    half = float(stats.t.ppf(0.5 + _CONFIDENCE_FRAC / 2, len(array) - 1)) * error
    return Estimate(mean, max(mean - half, least), min(mean + half, most), len(array), unit, "over seeds")


def ratio_over_seeds(values: Sequence[float | None]) -> Estimate | None:
    """Geometric mean of a ratio over seeds, with its 95 % interval, by `over_seeds` of its logarithm.

    None if a seed has no ratio.
    """
    known = [value for value in values if value]
    if not known or len(known) < len(values):
        return None
    found = over_seeds(np.log(known).tolist(), "1")
    value, low, high = np.exp((found.value, found.low, found.high)).tolist()
    return Estimate(value, low, high, found.n, "1", found.method)


def of_runs(centre: Centre, runs: Sequence[SharedRun], tariffs: Sequence[Tariff]) -> list[PolicyFigures]:
    """Metrics of each policy in `runs`, in the order of their first run."""
    by_name: dict[str, list[SharedRun]] = {}
    for run in runs:
        by_name.setdefault(run.sharing, []).append(run)
    return [_policy(centre, name, by_name, tariffs) for name in by_name]


def _policy(
    centre: Centre, name: str, by_name: Mapping[str, Sequence[SharedRun]], tariffs: Sequence[Tariff]
) -> PolicyFigures:
    own = by_name[name]
    rows = [_row(run) for run in own]
    most = {"utilisation_frac": 1.0}
    found: dict[str, Estimate | None] = {
        key: over_seeds([row[key] for row in rows], unit, 0.0, most.get(key, np.inf))
        for key, unit in _UNITS.items()
    }
    bills = {tariff.pricing: [_bill(centre, run, tariff) for run in own] for tariff in tariffs}
    return PolicyFigures(
        name,
        found | {"log_wait_mean_s": _of_log(own)} | _compared(name, own, by_name),
        {word: over_seeds([float(su.sum()) for su in each], "SU", 0.0) for word, each in bills.items()},
        {word: _users(centre, np.mean(each, axis=0)) for word, each in bills.items()},
    )


def _of_log(runs: Sequence[SharedRun]) -> Estimate | None:
    """Mean wait recorded in the log; it is the same for all seeds."""
    wait_s = runs[0].outcome.log_wait_mean_s
    return None if wait_s is None else Estimate(wait_s, wait_s, wait_s, 1, "s", "log")


def _row(run: SharedRun) -> dict[str, Any]:
    found, costs = run.outcome, run.costs
    shared_frac = costs.shared_node_hours / costs.busy_node_hours
    return vars(found) | vars(costs) | {"wait_mean_s": found.wait_mean_s or 0.0, "shared_frac": shared_frac}


def _compared(
    name: str, own: Sequence[SharedRun], by_name: Mapping[str, Sequence[SharedRun]]
) -> dict[str, Estimate | None]:
    """Savings and losses of a policy compared with others, by seed: policies share the draws of a seed."""
    alone = by_name.get("none", [None])[0]
    saved = (
        []
        if alone is None or name == "none"
        else [comparison.saved_frac(alone.costs, run.costs) for run in own]
    )
    blind = {} if name in ("none", "blind") else {run.seed: run.costs for run in by_name.get("blind", ())}
    lost = [run.links_lost_node_hours for run in own if run.links_lost_node_hours is not None]
    return {
        "saved_frac": over_seeds(saved, "1") if saved else None,
        "effectiveness": ratio_over_seeds(
            [
                comparison.effectiveness(blind[run.seed].lost_node_hours, run.costs.lost_node_hours)
                for run in own
                if blind
            ]
        ),
        "links_lost_node_hours": over_seeds(lost, "node hours", 0.0) if lost else None,
        "links_effectiveness": ratio_over_seeds(
            [comparison.effectiveness(run.against_node_hours, run.links_lost_node_hours) for run in own]
        ),
    }


def _bill(centre: Centre, run: SharedRun, tariff: Tariff) -> Floats:
    """The charge for each job, SU (Breslow et al. 2013, Eq. 2)."""
    work, schedule = centre.workload, run.schedule
    wall_s = schedule.end_s - schedule.start_s
    slowdown = np.maximum(comparison.slowdowns(work, schedule), 1.0)
    jobs = zip(run.n_cores.tolist(), wall_s.tolist(), slowdown.tolist(), strict=True)
    return np.array([tariff.shared_su(*job) for job in jobs])


def _users(centre: Centre, su: Floats) -> dict[str | int, float]:
    log = centre.workload.log
    users, which = np.unique(log.user, return_inverse=True)
    sums = np.bincount(which, weights=su)
    first = np.argsort(-sums, kind="stable")[:N_USERS]
    return {log.name("user", int(users[i])): float(sums[i]) for i in first}


def as_json(found: Sequence[PolicyFigures]) -> dict[str, Any]:
    """The policies for JSON; unmeasured values are None."""
    return {
        "policies": [
            {
                "sharing": each.sharing,
                **plain(each.figures),
                "charged_su": plain(each.charged_su),
                "users_su": {
                    name: [{"user": user, "su": su} for user, su in users.items()]
                    for name, users in each.users.items()
                },
            }
            for each in found
        ],
        "n_seeds": max(value.n for each in found for value in each.figures.values() if value is not None),
        "sentences": sentences(found),
    }


def table(found: Sequence[PolicyFigures]) -> list[list[str]]:
    """Metrics as text: a column for each policy, the header row first."""
    rows = [["", *(each.sharing for each in found)]]
    for name, key, words in _ROWS:
        values = [each.figures[key] for each in found]
        if any(values) or not key.startswith("links_"):
            rows.append([name, *("-" if value is None else words(value) for value in values)])
    for name in found[0].charged_su:
        rows.append([f"charged by {name}, SU", *(number(each.charged_su[name]) for each in found)])
    return rows


def sentences(found: Sequence[PolicyFigures]) -> list[str]:
    """A sentence for each policy on the savings or cost of sharing."""
    words = {
        "blind": "blindly",
        "model": "by model",
        "service": "as the pairing service decides",
        "cores": "by cores",
        "cores-model": "by cores and model",
        "spread": "spread over twice the nodes",
        "spread-model": "spread over twice the nodes by model",
    }
    lines = []
    for each in found:
        if (saved := each.figures["saved_frac"]) is not None:
            is_cost = round(saved.value, 3) < 0
            low, high = (-saved.high, -saved.low) if is_cost else (saved.low, saved.high)
            ends = f", 95 % interval {100 * low:.1f} to {100 * high:.1f} over {saved.n} seeds"
            lines.append(
                f"Sharing {words[each.sharing]} would have {'cost' if is_cost else 'saved'} "
                f"{abs(100 * saved.value):.1f} % of this machine{ends if saved.n > 1 else ''}."
            )
    return lines


N_DRAWN = 3000
"""Largest number of jobs drawn node by node; a longer log shows the period with the longest waits."""
N_BINS = 300
"""Number of points of a curve over time."""
_WIDTH, _HEIGHT = 600, 130
"""Size of a curve in SVG units."""


def page(title: str, centre: Centre, runs: Sequence[SharedRun], figures: Sequence[PolicyFigures]) -> str:
    """HTML without any network access; `runs` has one run of each policy."""
    from mpicoloc.show.templates import template

    workload, machine, window = centre.workload, centre.machine, _window(runs)
    return template("batch_page.html").render(
        title=printable(title),
        machine=printable(machine.name),
        n_nodes=machine.n_nodes,
        n_jobs=len(workload),
        is_part=len(workload) > N_DRAWN,
        span=duration(_span_s(runs)),
        names=[run.sharing for run in runs],
        table=table(figures),
        sentences=[printable(line) for line in sentences(figures)],
        curves=_curves(machine, runs),
        width=_WIDTH,
        height=_HEIGHT,
        window=[(time_s - _begin_s(runs)) / _span_s(runs) for time_s in window],
        data=_script_data(_data(workload, machine, runs, window)),
        version=mpicoloc.__version__,
    )


def _script_data(data: Any) -> Markup:
    """JSON with < escaped, so that no text in it can close the script element."""
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def _begin_s(runs: Sequence[SharedRun]) -> float:
    return float(runs[0].schedule.arrival_s.min())


def _span_s(runs: Sequence[SharedRun]) -> float:
    """From the first arrival to the last end under any policy, s."""
    return max(float(run.schedule.end_s.max()) for run in runs) - _begin_s(runs)


def _window(runs: Sequence[SharedRun]) -> tuple[float, float]:
    """Period drawn node by node, s: all, or arrivals of the `N_DRAWN` consecutive jobs that waited most."""
    schedule = runs[0].schedule
    n = len(schedule.arrival_s)
    if n <= N_DRAWN:
        return _begin_s(runs), _begin_s(runs) + _span_s(runs)
    order = np.argsort(schedule.arrival_s, kind="stable")
    waited_s = np.cumsum((schedule.start_s - schedule.arrival_s)[order])
    sums = waited_s[N_DRAWN - 1 :] - np.concatenate(([0.0], waited_s[:-N_DRAWN]))
    first = int(np.argmax(sums))
    arrival_s = schedule.arrival_s[order]
    begin_s, end_s = float(arrival_s[first]), float(arrival_s[first + N_DRAWN - 1])
    return begin_s, max(end_s, begin_s + 1.0)


def _data(
    workload: Workload, machine: Machine, runs: Sequence[SharedRun], window: tuple[float, float]
) -> dict[str, Any]:
    """Data that the page's script draws; times in s since the start of the window."""
    begin_s, end_s = window
    policies = []
    for run in runs:
        schedule = run.schedule
        inside = np.flatnonzero((schedule.end_s > begin_s) & (schedule.start_s < end_s))
        slowdown = comparison.slowdowns(workload, schedule)
        policies.append(
            {
                "name": run.sharing,
                "number": workload.log.number[inside].tolist(),
                "start": np.round(schedule.start_s[inside] - begin_s, 1).tolist(),
                "end": np.round(schedule.end_s[inside] - begin_s, 1).tolist(),
                "slowdown": np.round(slowdown[inside], 3).tolist(),
                "nodes": [
                    [word for pair in run.record.runs[job] for word in pair] for job in inside.tolist()
                ],
            }
        )
    return {
        "span_s": end_s - begin_s,
        "offset_s": begin_s - _begin_s(runs),
        "n_nodes": machine.n_nodes,
        "racks": [*machine.starts[0].tolist(), machine.n_nodes],
        "subtrees": machine.switch_subtree().tolist(),
        "policies": policies,
    }


def _curves(machine: Machine, runs: Sequence[SharedRun]) -> list[dict[str, Any]]:
    """Quantities over time under each policy, as points of SVG polylines."""
    edges = _begin_s(runs) + np.linspace(0.0, _span_s(runs), N_BINS + 1)
    busy, waiting = [], []
    for run in runs:
        times_s, counts = (np.array(column, np.float64) for column in zip(*run.record.busy, strict=True))
        busy.append(mean_in_bins(times_s, counts / machine.n_nodes, edges))
        schedule = run.schedule
        changes_s = np.concatenate((schedule.arrival_s, schedule.start_s))
        steps = np.repeat((1.0, -1.0), len(schedule.arrival_s))
        order = np.argsort(changes_s, kind="stable")
        waiting.append(mean_in_bins(changes_s[order], np.cumsum(steps[order]), edges))
    most = max(float(np.max(waiting)), 1.0)
    return [
        {"title": "Nodes with a job", "top": "100 %", "lines": [_points(one, 1.0) for one in busy]},
        {"title": "Jobs that wait", "top": f"{most:,.0f}", "lines": [_points(one, most) for one in waiting]},
    ]


def mean_in_bins(times_s: Floats, values: Floats, edges_s: Floats) -> Floats:
    """Mean over time, in each bin, of a quantity that changes at `times_s` to `values`; 0 before.

    Shapes: `times_s`, `values` (n,), `edges_s` (n_bins + 1,).
    """
    integral = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(times_s))))
    place = np.searchsorted(times_s, edges_s, side="right") - 1
    is_after = place >= 0
    place = np.maximum(place, 0)
    at_edges = np.where(is_after, integral[place] + values[place] * (edges_s - times_s[place]), 0.0)
    return np.asarray(np.diff(at_edges) / np.diff(edges_s))


def _points(values: Floats, most: float) -> str:
    x = (np.arange(len(values)) + 0.5) / len(values) * _WIDTH
    y = _HEIGHT * (1 - np.minimum(values / most, 1.0))
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
