"""Figures of sharing policies side by side: with intervals over seeds, as JSON, as rows, as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.batch import costs
from mpicoloc.batch.comparison import Centre, SharedRun
from mpicoloc.bill.price import Tariff
from mpicoloc.core.estimate import Estimate, estimate_json
from mpicoloc.core.units import seconds

Floats = NDArray[np.float64]


def charged_su(tariff: Tariff, n_cores: NDArray[np.int64], wall_s: Floats, slowdown: Floats) -> Floats:
    """What each job is charged, SU.

    Shapes: `n_cores` (n,), `wall_s`, `slowdown` (n,). Raises `UsageError` if the price function fails.

    Breslow et al. 2013, Eq. 2.
    """
    jobs = zip(n_cores.tolist(), wall_s.tolist(), slowdown.tolist(), strict=True)
    return np.array([tariff.shared_su(*job) for job in jobs])


_FIGURES = {
    "completion_s": "s",
    "utilisation_frac": "1",
    "wait_mean_s": "s",
    "sharing_jobs_mean": "1",
    "sharing_jobs_frac": "1",
    "slowdown_mean": "1",
    "shared_frac": "1",
    "lost_node_hours": "node hours",
}
_LEAST = {"slowdown_mean": 1.0}
"""What a figure cannot be below, if not 0."""
N_USERS = 10
"""Users whose bills are told: those who use most."""


@dataclass(frozen=True)
class PolicyFigures:
    """Figures of one policy over all of its seeds.

    Parameters
    ----------
    sharing : str
    figures : dict of str to Estimate
    saved : Estimate or None
        Part of the machine's node hours that is free and was not without sharing; None: nothing to compare.
    effectiveness : Estimate or None
        E(P) against blind sharing (Jokanovic 2014, Eq. 2.4); None: that was not run, or nothing was lost.
    charged_su : dict of str to Estimate
        Service units of all jobs, by price function.
    users : dict of str to dict of str or int to float
        Mean service units of the users who are billed most, by price function; by their names or numbers.
    links_lost : Estimate or None
        Node hours lost because jobs share links; None: links delay nobody.
    links_effectiveness : Estimate or None
        E(P) of that against another allocation; None: there is none, or nothing was lost.
    """

    sharing: str
    figures: dict[str, Estimate]
    saved: Estimate | None
    effectiveness: Estimate | None
    charged_su: dict[str, Estimate]
    users: dict[str, dict[str | int, float]]
    links_lost: Estimate | None = None
    links_effectiveness: Estimate | None = None


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
    alone = by_name.get("none", [None])[0]
    saved = None
    if alone is not None and name != "none":
        saved = costs.over_seeds([costs.saved_frac(alone.costs, run.costs) for run in own], "1")
    bills = {tariff.pricing: [_bill(centre, run, tariff) for run in own] for tariff in tariffs}
    return PolicyFigures(
        name,
        {
            key: costs.over_seeds([row[key] for row in rows], unit, _LEAST.get(key, 0.0))
            for key, unit in _FIGURES.items()
        },
        saved,
        _effectiveness(name, own, by_name.get("blind", ())),
        {word: costs.over_seeds([float(su.sum()) for su in each], "SU", 0.0) for word, each in bills.items()},
        {word: _users(centre, np.mean(each, axis=0)) for word, each in bills.items()},
        *_links(own),
    )


def _links(own: Sequence[SharedRun]) -> tuple[Estimate | None, Estimate | None]:
    """Node hours lost to links, and E(P) against another allocation."""
    found = [run.link_costs for run in own if run.link_costs is not None]
    if not found:
        return None, None
    lost = costs.over_seeds([each.lost_node_hours for each in found], "node hours", 0.0)
    known = [each.effectiveness for each in found if each.effectiveness is not None]
    return lost, costs.ratio_over_seeds(known) if len(known) == len(found) else None


def _row(run: SharedRun) -> dict[str, float]:
    found, sharing_costs = run.outcome, run.costs
    return {
        "completion_s": found.completion_s,
        "utilisation_frac": found.utilisation_frac,
        "wait_mean_s": found.waits.mean_s or 0.0,
        "sharing_jobs_mean": found.sharing_jobs_mean,
        "sharing_jobs_frac": found.sharing_jobs_frac,
        "slowdown_mean": sharing_costs.slowdown_mean,
        "shared_frac": sharing_costs.shared_node_hours / sharing_costs.busy_node_hours,
        "lost_node_hours": sharing_costs.lost_node_hours,
    }


def _effectiveness(name: str, own: Sequence[SharedRun], blind: Sequence[SharedRun]) -> Estimate | None:
    """Of each seed, then over seeds: policies with the same seed have the same programs and truths."""
    if name in ("none", "blind") or not blind:
        return None
    of_seed = {run.seed: run.costs for run in blind}
    found = [costs.effectiveness(of_seed[run.seed], run.costs) for run in own]
    known = [each for each in found if each]
    return costs.ratio_over_seeds(known) if len(known) == len(found) else None


def _bill(centre: Centre, run: SharedRun, tariff: Tariff) -> costs.Floats:
    work, schedule = centre.workload, run.schedule
    wall_s = schedule.end_s - schedule.start_s
    n_cores = work.n_nodes * work.cores_per_node
    return charged_su(tariff, n_cores, wall_s, costs.slowdowns(work, schedule))


def _users(centre: Centre, su: costs.Floats) -> dict[str | int, float]:
    log = centre.workload.log
    users, which = np.unique(log.user, return_inverse=True)
    sums = np.bincount(which, weights=su)
    first = np.argsort(-sums, kind="stable")[:N_USERS]
    return {log.name("user", int(users[i])): float(sums[i]) for i in first}


def as_json(found: Sequence[PolicyFigures]) -> dict[str, Any]:
    """The policies side by side for programs; what was not measured is None."""
    return {
        "policies": [_policy_json(each) for each in found],
        "n_seeds": max(each.figures["completion_s"].n for each in found),
        "sentences": sentences(found),
    }


def _policy_json(found: PolicyFigures) -> dict[str, Any]:
    """One policy for programs; what was not measured is None."""
    return {
        "sharing": found.sharing,
        **{key: estimate_json(value) for key, value in found.figures.items()},
        "saved_frac": estimate_json(found.saved),
        "effectiveness": estimate_json(found.effectiveness),
        "links_lost_node_hours": estimate_json(found.links_lost),
        "links_effectiveness": estimate_json(found.links_effectiveness),
        "charged_su": {name: estimate_json(value) for name, value in found.charged_su.items()},
        "users_su": {
            name: [{"user": user, "su": su} for user, su in users.items()]
            for name, users in found.users.items()
        },
    }


def table(found: Sequence[PolicyFigures]) -> list[list[str]]:
    """Figures as words: a column for each policy, the head first."""
    rows = [["", *(each.sharing for each in found)]]
    rows.append(["completion", *(seconds(each.figures["completion_s"].value) for each in found)])
    for name, key in (("nodes with a job", "utilisation_frac"), ("of these with two", "shared_frac")):
        rows.append([name, *(percent(each.figures[key]) for each in found)])
    rows.append(["wait, mean", *(seconds(each.figures["wait_mean_s"].value) for each in found)])
    rows.append(["slowdown of a job, mean", *(number(each.figures["slowdown_mean"], 3) for each in found)])
    rows.append(
        ["lost to interference, node hours", *(number(each.figures["lost_node_hours"], 0) for each in found)]
    )
    if any(each.links_lost is not None for each in found):
        rows.append(["of these to links", *(number(each.links_lost, 0) for each in found)])
    if any(each.links_effectiveness is not None for each in found):
        words = (number(each.links_effectiveness, 2) for each in found)
        rows.append(["E(P) of links against the other allocation", *words])
    rows.append(["E(P) against blind", *(number(each.effectiveness, 2) for each in found)])
    rows.append(["saved of the machine", *(percent(each.saved) for each in found)])
    for name in found[0].charged_su:
        rows.append([f"charged by {name}, SU", *(number(each.charged_su[name], 0) for each in found)])
    return rows


def percent(value: Estimate | None) -> str:
    """A part in percent, with its interval if there is one."""
    if value is None:
        return "-"
    ends = f" ({100 * value.low:.1f} to {100 * value.high:.1f})" if value.n > 1 else ""
    return f"{100 * value.value:.1f} %{ends}"


def number(value: Estimate | None, n_digits: int) -> str:
    """A number, with its interval if there is one."""
    if value is None:
        return "-"
    if abs(value.value) < 10:
        n_digits = max(n_digits, 2)
    ends = f" ({value.low:,.{n_digits}f} to {value.high:,.{n_digits}f})" if value.n > 1 else ""
    return f"{value.value:,.{n_digits}f}{ends}"


def sentences(found: Sequence[PolicyFigures]) -> list[str]:
    """What sharing would have saved, a sentence for each policy."""
    words = {"blind": "blindly", "model": "by model", "service": "as the pairing service decides"}
    lines = []
    for each in found:
        if each.saved is not None:
            saved, seeds = each.saved, each.saved.n
            is_cost = round(saved.value, 3) < 0
            low, high = (-saved.high, -saved.low) if is_cost else (saved.low, saved.high)
            ends = f", 95 % interval {100 * low:.1f} to {100 * high:.1f} over {seeds} seeds"
            lines.append(
                f"Sharing {words[each.sharing]} would have {'cost' if is_cost else 'saved'} "
                f"{abs(100 * saved.value):.1f} % of this machine{ends if seeds > 1 else ''}."
            )
    return lines
