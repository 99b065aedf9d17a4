"""Picture of a sweep of replays: how much longer each job takes in each combination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpicoloc.core.tables import printable
from mpicoloc.report.figures.blocks import short
from mpicoloc.report.figures.figures import WIDTH, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

_MOST_LABELS = 60


def slowdowns(rows: Sequence[dict[str, Any]]) -> Figure:
    """T_sharing of each job, over T_base where that is known in all rows, else over T_alone.

    `rows` are what ``mpicoloc replay --sweep --json`` prints. Jobs of one place in the list have one colour.
    """
    is_based = all(job["normalised"] is not None for row in rows for job in row["jobs"])
    column, unit = ("normalised", "T_base") if is_based else ("slowdown", "T_alone")
    labels = [" ".join(printable(value) for value in row["settings"].values()) for row in rows]
    flags = tuple(rows[0]["settings"])
    data = tuple(
        (*row["settings"].values(), printable(job["name"]), job[column])
        for row in rows
        for job in row["jobs"]
    )

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import drawing

        axes = picture.subplots()
        for i in range(max(len(row["jobs"]) for row in rows)):
            at = [k for k, row in enumerate(rows) if i < len(row["jobs"])]
            names = dict.fromkeys(printable(rows[k]["jobs"][i]["name"]) for k in at)
            name = short(next(iter(names))) if len(names) == 1 else f"job {i + 1}"
            axes.plot(at, [rows[k]["jobs"][i][column] for k in at], "o", label=name, **_colour(i))
        axes.set_ylabel(f"T_sharing / {unit}")
        step = -(-len(rows) // _MOST_LABELS)
        shown = [short(label) for label in labels[::step]]
        axes.set_xticks(range(0, len(rows), step), shown)
        drawing.turn_if_crowded(axes, shown)
        axes.set_xlabel(", ".join(flags))
        drawing.legend_below(picture, *axes.get_legend_handles_labels())

    description = f"Time of each job with the others over {unit}, for each combination of {', '.join(flags)}."
    size = (max(WIDTH, min(2 + 0.25 * len(rows), 14.0)), 3.8)
    return Figure("sweep", "Sweep", description, (*flags, "job", column), data, draw, size)


def _colour(i: int) -> dict[str, Any]:
    from mpicoloc.report.figures import drawing

    return {"color": drawing.colour(i)["color"]}
