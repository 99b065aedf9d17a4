"""A propagation matrix and a program's policy, on a terminal and as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from mpicoloc.core.bubbles import PropagationMatrix
from mpicoloc.core.tables import printable
from mpicoloc.core.units import counted
from mpicoloc.report.terminal.listing import Listing
from mpicoloc.report.terminal.output import console
from mpicoloc.slowdown.bubbles.uneven import PolicyChoice


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
