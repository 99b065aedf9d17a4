"""A plan of who shares a node with whom, as JSON and as a table."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from mpicoloc.core.tables import printable
from mpicoloc.pairing import nodes
from mpicoloc.pairing.policies import Group, Plan
from mpicoloc.pairing.sharing_plan import Action, Commit
from mpicoloc.show.listing import Listing
from mpicoloc.show.output import console


def as_json(
    plan: Plan, slots: Sequence[nodes.Slot], ids: Sequence[str], runtime_s: Sequence[float]
) -> dict[str, Any]:
    """The plan; what was not proved or has no reason is None."""
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


def show(plan: Plan, slots: Sequence[nodes.Slot], ids: Sequence[str], runtime_s: Sequence[float]) -> None:
    """Print a row for each group, nodes in order, and the sums."""
    table = Listing(None, ("jobs", "node", "start s", "together s", "one after the other s", "alone because"))
    order = sorted(range(len(slots)), key=lambda i: (slots[i].node, slots[i].start_s))
    for i in order:
        group, slot = plan.groups[i], slots[i]
        serial_s = sum(runtime_s[job] for job in group.jobs)
        cells = (f"{slot.start_s:.1f}", f"{group.duration_s:.1f}", f"{serial_s:.1f}", group.why)
        table.add_row(_names(group, ids), str(slot.node), *cells)
    out = console()
    if plan.groups:
        out.print(table)
    out.print(_summary(plan, slots, sum(runtime_s)), soft_wrap=True, markup=False)


def _names(group: Group, ids: Sequence[str]) -> str:
    from rich.markup import escape

    return escape(printable(" + ".join(ids[job] for job in group.jobs)))


def _summary(plan: Plan, slots: Sequence[nodes.Slot], serial_s: float) -> str:
    n_shared = sum(len(group.jobs) for group in plan.groups if len(group.jobs) > 1)
    n_jobs = sum(len(group.jobs) for group in plan.groups)
    words = (
        f"{n_shared} of {n_jobs} jobs share; {plan.cost_s:.1f} s of nodes, {serial_s:.1f} s without sharing"
    )
    if not math.isnan(plan.gap_frac) and plan.groups:
        words += f", at most {100 * plan.gap_frac:.3f} % above the least possible"
    return f"{words}; makespan {_makespan_s(plan, slots):.1f} s"


def _makespan_s(plan: Plan, slots: Sequence[nodes.Slot]) -> float:
    return nodes.makespan_s([group.duration_s for group in plan.groups], slots)


def show_action(action: Action) -> None:
    """Print one decision of the pairing service, at once."""
    if isinstance(action, Commit):
        *leader, job = action.share.jobs
        beside = f" beside {leader[0]}" if leader else ""
        after = f" after {', '.join(map(str, action.after))}" if action.after else ""
        print(f"{job}{beside} on {','.join(action.share.nodes)}{after}: {action.why}")
    else:
        print(f"{action.job} alone: {action.why}")
    sys.stdout.flush()
