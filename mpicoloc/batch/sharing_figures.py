"""Figures of sharing policies side by side: with intervals over seeds, as JSON, as rows, as sentences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpicoloc.batch import metrics
from mpicoloc.batch.comparison import Centre, SharedRun
from mpicoloc.bill.price import Tariff
from mpicoloc.core.plain_values import plain
from mpicoloc.core.profile import Estimate, Floats
from mpicoloc.core.units import seconds

_CONFIDENCE_FRAC = 0.95
N_USERS = 10
"""Users whose bills are told: those who use most."""
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
"""Figures of each run."""


def percent(value: Estimate) -> str:
    """A part in percent, with its interval if there is one."""
    ends = f" ({100 * value.low:.1f} to {100 * value.high:.1f})" if value.n > 1 else ""
    return f"{100 * value.value:.1f} %{ends}"


def number(value: Estimate, n_digits: int = 0) -> str:
    """A number, with its interval if there is one."""
    if abs(value.value) < 10:
        n_digits = max(n_digits, 2)
    ends = f" ({value.low:,.{n_digits}f} to {value.high:,.{n_digits}f})" if value.n > 1 else ""
    return f"{value.value:,.{n_digits}f}{ends}"


def _time(value: Estimate) -> str:
    return seconds(value.value)


_ROWS: tuple[tuple[str, str, Callable[[Estimate], str]], ...] = (
    ("completion", "completion_s", _time),
    ("nodes with a job", "utilisation_frac", percent),
    ("of these with two", "shared_frac", percent),
    ("wait, mean", "wait_mean_s", _time),
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
"""Rows of the table: name, figure, and how it is written; those of links where links delay jobs."""


@dataclass(frozen=True)
class PolicyFigures:
    """Figures of one policy over all of its seeds.

    Parameters
    ----------
    sharing : str
    figures : dict of str to Estimate or None
        By their names in JSON; None: not measured. `saved_frac` is the part of the machine's node hours that
        is free and was not without sharing, `effectiveness` E(P) against blind sharing (Jokanovic 2014,
        Eq. 2.4), `links_lost_node_hours` what is lost because jobs share links, and `links_effectiveness`
        E(P) of that against another allocation.
    charged_su : dict of str to Estimate
        Service units of all jobs, by price function.
    users : dict of str to dict of str or int to float
        Mean service units of the users who are billed most, by price function; by their names or numbers.
    """

    sharing: str
    figures: dict[str, Estimate | None]
    charged_su: dict[str, Estimate]
    users: dict[str, dict[str | int, float]]


def over_seeds(values: Sequence[float], unit: str, least: float = -np.inf) -> Estimate:
    """Mean of one figure over seeds, with its 95 % interval by Student's t; one seed has none."""
    array = np.asarray(values, np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return Estimate(mean, mean, mean, 1, unit, "one seed")
    error = float(array.std(ddof=1)) / np.sqrt(len(array))
    from scipy import stats  # half a second, which a log without sharing need not wait

    half = float(stats.t.ppf(0.5 + _CONFIDENCE_FRAC / 2, len(array) - 1)) * error
    return Estimate(mean, max(mean - half, least), mean + half, len(array), unit, "over seeds")


def ratio_over_seeds(values: Sequence[float | None]) -> Estimate | None:
    """Geometric mean of a ratio over seeds, with its 95 % interval: its logarithm as `over_seeds`.

    None: there is none, or not for each seed.
    """
    known = [value for value in values if value]
    if not known or len(known) < len(values):
        return None
    found = over_seeds(np.log(known).tolist(), "1")
    value, low, high = np.exp((found.value, found.low, found.high)).tolist()
    return Estimate(value, low, high, found.n, "1", found.method)


def of_runs(centre: Centre, runs: Sequence[SharedRun], tariffs: Sequence[Tariff]) -> list[PolicyFigures]:
    """Figures of each policy of `runs`, in their order."""
    by_name: dict[str, list[SharedRun]] = {}
    for run in runs:
        by_name.setdefault(run.sharing, []).append(run)
    return [_policy(centre, name, by_name, tariffs) for name in by_name]


def _policy(
    centre: Centre, name: str, by_name: Mapping[str, Sequence[SharedRun]], tariffs: Sequence[Tariff]
) -> PolicyFigures:
    own = by_name[name]
    rows = [_row(run) for run in own]
    least = {"slowdown_mean": 1.0}
    found: dict[str, Estimate | None] = {
        key: over_seeds([row[key] for row in rows], unit, least.get(key, 0.0)) for key, unit in _UNITS.items()
    }
    bills = {tariff.pricing: [_bill(centre, run, tariff) for run in own] for tariff in tariffs}
    return PolicyFigures(
        name,
        found | _compared(name, own, by_name),
        {word: over_seeds([float(su.sum()) for su in each], "SU", 0.0) for word, each in bills.items()},
        {word: _users(centre, np.mean(each, axis=0)) for word, each in bills.items()},
    )


def _row(run: SharedRun) -> dict[str, Any]:
    found, costs = run.outcome, run.costs
    shared_frac = costs.shared_node_hours / costs.busy_node_hours
    return vars(found) | vars(costs) | {"wait_mean_s": found.wait_mean_s or 0.0, "shared_frac": shared_frac}


def _compared(
    name: str, own: Sequence[SharedRun], by_name: Mapping[str, Sequence[SharedRun]]
) -> dict[str, Estimate | None]:
    """What a policy saves and loses beside others, seed by seed: these have the same programs and truths."""
    alone = by_name.get("none", [None])[0]
    saved = (
        [] if alone is None or name == "none" else [metrics.saved_frac(alone.costs, run.costs) for run in own]
    )
    blind = {} if name in ("none", "blind") else {run.seed: run.costs for run in by_name.get("blind", ())}
    lost = [run.links_lost_node_hours for run in own if run.links_lost_node_hours is not None]
    return {
        "saved_frac": over_seeds(saved, "1") if saved else None,
        "effectiveness": ratio_over_seeds(
            [
                metrics.effectiveness(blind[run.seed].lost_node_hours, run.costs.lost_node_hours)
                for run in own
                if blind
            ]
        ),
        "links_lost_node_hours": over_seeds(lost, "node hours", 0.0) if lost else None,
        "links_effectiveness": ratio_over_seeds(
            [metrics.effectiveness(run.against_node_hours, run.links_lost_node_hours) for run in own]
        ),
    }


def _bill(centre: Centre, run: SharedRun, tariff: Tariff) -> Floats:
    """What each job is charged, SU (Breslow et al. 2013, Eq. 2)."""
    work, schedule = centre.workload, run.schedule
    n_cores, wall_s = work.n_nodes * work.cores_per_node, schedule.end_s - schedule.start_s
    slowdown = metrics.slowdowns(work, schedule)
    jobs = zip(n_cores.tolist(), wall_s.tolist(), slowdown.tolist(), strict=True)
    return np.array([tariff.shared_su(*job) for job in jobs])


def _users(centre: Centre, su: Floats) -> dict[str | int, float]:
    log = centre.workload.log
    users, which = np.unique(log.user, return_inverse=True)
    sums = np.bincount(which, weights=su)
    first = np.argsort(-sums, kind="stable")[:N_USERS]
    return {log.name("user", int(users[i])): float(sums[i]) for i in first}


def as_json(found: Sequence[PolicyFigures]) -> dict[str, Any]:
    """The policies side by side for programs; what was not measured is None."""
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
    """Figures as words: a column for each policy, the head first."""
    rows = [["", *(each.sharing for each in found)]]
    for name, key, words in _ROWS:
        values = [each.figures[key] for each in found]
        if any(values) or not key.startswith("links_"):
            rows.append([name, *("-" if value is None else words(value) for value in values)])
    for name in found[0].charged_su:
        rows.append([f"charged by {name}, SU", *(number(each.charged_su[name]) for each in found)])
    return rows


def sentences(found: Sequence[PolicyFigures]) -> list[str]:
    """What sharing would have saved, a sentence for each policy."""
    words = {"blind": "blindly", "model": "by model", "service": "as the pairing service decides"}
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
