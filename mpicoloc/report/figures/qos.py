"""Pictures of what a search for weights of lanes has found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpicoloc.core.tables import printable
from mpicoloc.network.qos.search import SearchResult
from mpicoloc.report.figures.figures import Figure, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def contention(jobs: Sequence[str], found: SearchResult) -> Figure:
    """Contention of each job under each policy, on top of each other, as Figures 5.12 to 5.17 of the thesis.

    Parameters
    ----------
    jobs : sequence of str
        Their names.
    found : SearchResult
    """
    names = [printable(job) for job in jobs]
    labels = [tried.trial.name for tried in found.tried]
    times_s = [tried.contention_s for tried in found.tried]

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import bars

        bars.stacked(picture, labels, names, times_s, labels.index(found.best.trial.name))

    header = ("trial", *(f"contention_{name}_s" for name in names), "total_contention_s")
    rows: tuple[Row, ...] = tuple(
        (label, *tried.contention_s, tried.total_contention_s)
        for label, tried in zip(labels, found.tried, strict=True)
    )
    text = (
        "T_sharing - T_alone of each job, simulated, by the packets that each lane may send in its turn; "
        "from favouring the lane that sends most to favouring the one that sends least. A line is at the "
        "sweet spot, "
        f"{found.best.trial.name} (Jokanovic 2014, Figures 5.12 to 5.17)."
    )
    size = (6.0, 3.8)
    return Figure("contention", "Contention by weights of lanes", text, header, rows, draw, size)
