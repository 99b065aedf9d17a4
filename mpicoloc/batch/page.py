"""One self-contained page of a simulated machine: its map at any instant, Gantt charts, curves over time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

import mpicoloc
from mpicoloc.batch import metrics, sharing_figures
from mpicoloc.batch.comparison import Centre, SharedRun
from mpicoloc.batch.job_log import Workload
from mpicoloc.batch.machine import Machine
from mpicoloc.batch.sharing_figures import PolicyFigures
from mpicoloc.core.profile import Floats
from mpicoloc.errors import printable
from mpicoloc.show.templates import template

N_DRAWN = 3000
"""Jobs whose time is drawn node by node; of longer logs, the ones among which jobs waited longest."""
N_BINS = 300
"""Points of a curve over time."""
_WIDTH, _HEIGHT = 600, 130
"""Of a curve, in its own units."""


def page(title: str, centre: Centre, runs: Sequence[SharedRun], figures: Sequence[PolicyFigures]) -> str:
    """HTML that asks for nothing over the network; `runs` are one of each policy."""
    workload, machine, window = centre.workload, centre.machine, _window(runs)
    return template("batch_page.html").render(
        title=printable(title),
        machine=printable(machine.name),
        n_nodes=machine.n_nodes,
        n_jobs=len(workload),
        is_part=len(workload) > N_DRAWN,
        days=_span_s(runs) / 86400,
        names=[run.sharing for run in runs],
        table=sharing_figures.table(figures),
        sentences=[printable(line) for line in sharing_figures.sentences(figures)],
        curves=_curves(machine, runs),
        width=_WIDTH,
        height=_HEIGHT,
        window=[(time_s - _begin_s(runs)) / _span_s(runs) for time_s in window],
        data=_script_data(_data(workload, machine, runs, window)),
        version=mpicoloc.__version__,
    )


def _script_data(data: Any) -> Markup:
    """JSON that ends no script element, whatever is in it."""
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def _begin_s(runs: Sequence[SharedRun]) -> float:
    return float(runs[0].schedule.arrival_s.min())


def _span_s(runs: Sequence[SharedRun]) -> float:
    """From the first arrival to the last end under any policy, s."""
    return max(float(run.schedule.end_s.max()) for run in runs) - _begin_s(runs)


def _window(runs: Sequence[SharedRun]) -> tuple[float, float]:
    """Time that is drawn node by node, s: all of it, or as long as `N_DRAWN` jobs arrived and waited most."""
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
    """What the page's script draws; times in s since the begin of the window."""
    begin_s, end_s = window
    policies = []
    for run in runs:
        schedule = run.schedule
        inside = np.flatnonzero((schedule.end_s > begin_s) & (schedule.start_s < end_s))
        slowdown = metrics.slowdowns(workload, schedule)
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
