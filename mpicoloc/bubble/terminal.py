"""Bubbles on a terminal and as JSON."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from mpicoloc.bubble.calibration import Calibration
from mpicoloc.bubble.propagation import PolicyChoice
from mpicoloc.bubble.shutters import Bubbled
from mpicoloc.core.bubbles import LEVELS, PropagationMatrix, SensitivityCurve
from mpicoloc.core.plain_values import plain
from mpicoloc.core.tables import printable
from mpicoloc.core.units import amount, counted
from mpicoloc.show.table import Listing, console

if TYPE_CHECKING:
    from mpicoloc.bubble.sensitivity import Scored


def as_json(name: str, matrix: PropagationMatrix, choice: PolicyChoice | None) -> dict[str, Any]:
    """The matrix by rows, one for each level, from 1 node on; the policy None if it was not sought."""
    return {
        "program": name,
        "n_nodes": matrix.n_nodes,
        "levels": list(range(1, matrix.n_pressures + 1)),
        "slowdown": matrix.times[:, 1:].tolist(),
        "is_measured": matrix.is_measured[:, 1:].tolist(),
        "cost_frac": matrix.cost_frac,
        "policy": None if choice is None else dataclasses.asdict(choice),
    }


def show(name: str, matrix: PropagationMatrix, choice: PolicyChoice | None) -> None:
    """Print a row for each level; what was run has a star."""
    nodes = range(1, matrix.n_nodes + 1)
    table = Listing(None, ("level", *(f"{n} disturbed" if n == 1 else str(n) for n in nodes)))
    for i, (times, is_measured) in enumerate(zip(matrix.times, matrix.is_measured, strict=True)):
        cells = (f"{times[n]:.3f}{'*' if is_measured[n] else ' '}" for n in nodes)
        table.add_row(str(i + 1), *cells)
    out = console()
    out.print(table)
    n_run = 1 + int(matrix.is_measured[:, 1:].sum())
    words = f"{printable(name)}: slowdown by level and disturbed nodes; * {counted(n_run, 'run')}, "
    out.print(f"{words}{100 * matrix.cost_frac:.0f} % of all", soft_wrap=True, markup=False)
    if choice is not None:
        out.print(_policy(choice), soft_wrap=True, markup=False)


def _policy(choice: PolicyChoice) -> str:
    errors = ", ".join(f"{policy} {100 * error:.1f} %" for policy, error in choice.error.items())
    more = "" if choice.is_stable else ", not the same one for long: more --uneven-runs may choose another"
    return f"policy {choice.policy} after {counted(choice.n_samples, 'uneven run')}{more}; errors: {errors}"


def levels_json(one: Calibration) -> dict[str, Any]:
    """A calibration for JSON."""
    return {
        "machine": {"cpu_model": one.cpu_model, "n_cpus": one.n_cpus},
        "n_bubble_cpus": one.n_bubble_cpus,
        "levels": list(LEVELS),
        "working_set_bytes": [setting.working_set_bytes for setting in one.settings],
        "lines_per_s": [setting.lines_per_s for setting in one.settings],
        "probe_slowdown": one.curve.slowdown.tolist(),
        "probe_low": one.curve.low.tolist(),
        "probe_high": one.curve.high.tolist(),
    }


def show_levels(one: Calibration) -> None:
    """A table of the levels."""
    print(f"{one.cpu_model}, {one.n_cpus} CPUs, bubble on {one.n_bubble_cpus}")
    print("level  working set  lines per s   slowdown of the probe")
    rows = zip(LEVELS, one.settings, one.curve.slowdown, one.curve.low, one.curve.high, strict=True)
    for level, setting, value, low, high in rows:
        size = amount(setting.working_set_bytes) if setting.working_set_bytes else "-"
        print(f"{level:5}  {size:>11}  {setting.lines_per_s:11.3g}   {value:.3f} [{low:.3f}, {high:.3f}]")


def curve_json(curve: SensitivityCurve, way: str) -> dict[str, Any]:
    """A sensitivity curve for JSON."""
    return {
        "program": curve.program,
        "levels": curve.levels.tolist(),
        "slowdown": curve.slowdown.tolist(),
        "low": curve.low.tolist(),
        "high": curve.high.tolist(),
        "n": curve.n,
        "method": way,
    }


def show_curve(curve: SensitivityCurve, way: str) -> None:
    """A table of a sensitivity curve."""
    print(f"{curve.program}: slowdown beside bubbles, by {way}")
    for row in zip(curve.levels, curve.slowdown, curve.low, curve.high, strict=True):
        print("level {:4g}   {:.3f} [{:.3f}, {:.3f}]".format(*row))


def production_json(name: str, found: Bubbled) -> dict[str, Any]:
    """What jobs' own shutters tell of a program, for JSON; None where nothing is known."""
    names = ("levels", "slowdown", "low", "high", "n")
    curve = {} if found.curve is None else curve_json(found.curve, "")
    return {
        "program": name,
        **{key: curve.get(key) for key in names},
        "score": plain(found.score),
        "method": "production",
    }


def show_production(name: str, found: Bubbled, n_runs: int) -> None:
    """A table of what jobs' own shutters tell of a program."""
    if found.curve is None:
        print(f"{name}: no curve")
    else:
        show_curve(found.curve, f"{counted(n_runs, 'run')}, in their own shutters")
    if found.score is not None:
        print(f"score      {found.score.value:.2f} [{found.score.low:.2f}, {found.score.high:.2f}]")


def score_json(found: Scored) -> dict[str, Any]:
    """A score for JSON."""
    return {
        "score": found.score.value,
        "low": found.score.low,
        "high": found.score.high,
        "n": found.score.n,
        "is_beyond_largest": found.is_beyond,
        "probe_slowdown": plain(found.probe_slowdown),
    }


def show_score(name: str, found: Scored) -> None:
    """One line for a score."""
    score, slower = found.score, found.probe_slowdown.value
    more = ", more than the largest bubble" if found.is_beyond else ""
    print(
        f"{name}: score {score.value:.2f} [{score.low:.2f}, {score.high:.2f}]{more}; "
        f"the probe beside it is {slower:.3f} times slower"
    )
