"""Figure of what bubbles in a job's shutters did to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpicoloc.core.profile import Profile
from mpicoloc.measure import production_bubbles
from mpicoloc.report.figures.figures import Figure, Gap

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from mpicoloc.measure.bubbles.shutters import Bubbled


def sensitivity(profile: Profile) -> Figure | Gap | None:
    """The slowdown beside bubbles of each level, and the job's own score; None: the job wanted no bubbles."""
    name, title = "bubbles", "Slowdown beside bubbles"
    if not production_bubbles.ran_any(profile):
        why = production_bubbles.why_none(profile)
        return Gap(name, title, f"no bubble ran in the job's shutters: {why}") if why else None
    found = production_bubbles.of_profile(profile, profile.job.command)
    if found.curve is None:
        return Gap(name, title, f"{found.reason}. {_score_words(found)}")
    columns = (found.curve.levels, found.curve.slowdown, found.curve.low, found.curve.high)
    rows = tuple(zip(*(column.tolist() for column in columns), strict=True))

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import lines

        lines.with_intervals(picture, rows, "level of the bubble", "T_bubble / T_alone")

    description = (
        f"The job's slowdown beside bubbles of each level, with 95 % intervals, from {found.n_used} of its "
        f"shutters (Han et al. 2016, section 2). {_score_words(found)}"
    )
    return Figure(name, title, description, ("level", "slowdown", "low", "high"), rows, draw)


def _score_words(found: Bubbled) -> str:
    score = found.score
    if score is None:
        return f"How much it presses itself is not known: {found.score_reason}."
    return (
        f"It presses like a bubble of level {score.value:.1f} itself ({score.low:.1f} to {score.high:.1f})."
    )
