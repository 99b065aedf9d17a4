"""What bubbles in some of a job's shutters tell of it, as its profile has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mpicoloc.bubble import shutters as bubbled_shutters
from mpicoloc.bubble.shutters import BUBBLED, Bubbled, bubbled_slowdowns, level_on_all_nodes, probe_score
from mpicoloc.core.bubbles import MAX_LEVEL
from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import Table, table, text
from mpicoloc.errors import DataError
from mpicoloc.measure.count_paces import instants
from mpicoloc.measure.meter_choice import pass_ns

_NOT_YET = "no shutter had counts yet"
"""Begin of the reason of a node agent that only waits (csrc/agent/bubbles/bubbling.c)."""


def ran_any(profile: Profile) -> bool:
    """Whether a bubble or the probe ran in a shutter of the job."""
    return bubbled_shutters.ran_any(profile.tables["shutters"])


def why_none(profile: Profile) -> str:
    """Why no bubble ran in the job's shutters; empty where none was wanted, or some ran."""
    nodes = profile.tables["nodes"]
    reasons = [(text(node["hostname"]), reason) for node in nodes if (reason := text(node["bubble_reason"]))]
    if reasons:
        # That of one node keeps bubbles off all: on the others none has run yet.
        host, reason = next((one for one in reasons if not one[1].startswith(_NOT_YET)), reasons[0])
        return f"{host}: {reason}" if len(nodes) > 1 else reason
    shutters = profile.tables["shutters"]
    n_told = len(np.unique(instants(shutters)[shutters["verdict"] == BUBBLED]))
    if n_told and not ran_any(profile):
        return (
            f"in {n_told} shutters bubbles were to run, but none began in time and had its processors: other "
            "programs wanted them, or the co-runner that was asked could not press"
        )
    return ""


def of_profile(profile: Profile, program: str) -> Bubbled:
    """Curve and score of a job, by `bubbled_slowdowns` and `probe_score`; `program` is its name."""
    return of_tables(profile.tables, program)


def of_job(tables: Mapping[str, Table]) -> Bubbled | None:
    """As `of_tables`, when a job ends: None where the node's calibration is no such one."""
    try:
        return of_tables(tables, "")
    except DataError:  # it costs no job its profile
        return None


def summary(bubbled: Bubbled) -> dict[str, Any]:
    """The fields of `Interference` that bubbles fill, as far as they are known."""
    found = {"bubble_score": bubbled.score, "bubble_slowdown": bubbled.slowdown_at(MAX_LEVEL)}
    ends = (("", "value"), ("_low", "low"), ("_high", "high"))
    return {
        f"{name}{end}": float(getattr(one, part))
        for name, one in found.items()
        if one is not None
        for end, part in ends
    }


def lost_s(bubbled: Bubbled, shutters: Table) -> float:
    """Time by which bubbles have held the job up, s."""
    if bubbled.curve is None:
        return 0.0
    level = level_on_all_nodes(shutters)
    _, first = np.unique(instants(shutters), return_index=True)
    pressed_s = (shutters["t1_ns"][first] - shutters["epoch"][first]).astype(float) * 1e-9
    known = zip(bubbled.curve.levels[1:], bubbled.curve.slowdown[1:], strict=True)
    return sum(
        float(pressed_s[level[first] == one].sum()) * max(0.0, 1 - 1 / slowdown) for one, slowdown in known
    )


def curve_table(bubbled: Bubbled) -> Table:
    """The profile's table "sensitivity", empty where there is no curve."""
    if bubbled.curve is None:
        return table("sensitivity")
    names = {"level": "levels", "slowdown": "slowdown", "low": "low", "high": "high"}
    return table("sensitivity", {column: getattr(bubbled.curve, name) for column, name in names.items()})


def of_tables(tables: Mapping[str, Table], program: str) -> Bubbled:
    """As `of_profile`, of a profile's tables."""
    found = bubbled_slowdowns(program, tables["shutters"], tables["counts"], cost_ns=pass_ns(tables))
    score, reason = probe_score(tables["shutters"], tables["bubble_levels"])
    return replace(found, score=score, score_reason=reason)
