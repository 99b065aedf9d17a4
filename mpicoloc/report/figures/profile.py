"""The figures of one profile, in the order in which a reader wants them."""

from __future__ import annotations

from collections.abc import Callable

from mpicoloc.core.profile import Profile
from mpicoloc.core.progress import count, stage
from mpicoloc.errors import DataError
from mpicoloc.report.figures import bubbles, interference, messages, mpi
from mpicoloc.report.figures.figures import Figure, Gap

Maker = Callable[..., Figure | Gap | None]
SECTIONS: tuple[tuple[str, tuple[Maker, ...]], ...] = (
    (
        "Interference",
        (
            interference.running_slowdown,
            interference.shutters,
            interference.wall_time,
            interference.slowdown_by_rank,
            bubbles.sensitivity,
        ),
    ),
    (
        "Time in MPI",
        (
            mpi.rank_timeline,
            mpi.calls,
            mpi.calls_by_rank,
            mpi.call_sites,
            mpi.imbalance,
        ),
    ),
    ("Messages", (messages.matrix, messages.sizes, messages.timeline)),
    ("Network", (messages.levels,)),
)
"""Headings, and what makes the figures below them."""
OF_TRACES = (messages.timeline, mpi.rank_timeline)
"""Those that also need to know where the profile was read."""
MOST_RANKS = 10_000_000
DAMAGE = (ArithmeticError, LookupError, ValueError)
"""What NumPy raises on numbers that no job has."""


def figures(profile: Profile, file: str | None = None) -> list[tuple[str, list[Figure | Gap]]]:
    """All figures of a profile, and what is missing, by sections.

    Parameters
    ----------
    profile : Profile
    file : str, optional
        Where it was read: a trace of every call may stand beside it.

    Returns
    -------
    list of tuple
        Heading, and a `Figure` or a `Gap` for each figure that there could be.

    Raises
    ------
    DataError
        If the job has no ranks, or more than `MOST_RANKS`.
    """
    _check_ranks(profile)
    with stage("computing", sum(len(makers) for _, makers in SECTIONS), "figures"):
        made = ((heading, [_made(make, profile, file) for make in makers]) for heading, makers in SECTIONS)
        return [(heading, [one for one in section if one is not None]) for heading, section in made]


def _made(make: Maker, profile: Profile, file: str | None) -> Figure | Gap | None:
    try:
        made = make(profile, file) if make in OF_TRACES else make(profile)
    except DAMAGE as error:
        raise DataError(
            f"the profile's tables contradict each other ({error}): the file is damaged"
        ) from error
    count("figures", 1)
    return made


def _check_ranks(profile: Profile) -> None:
    n_ranks = profile.job.n_ranks
    if not 1 <= n_ranks <= MOST_RANKS:
        raise DataError(
            f"figures are of 1 to {MOST_RANKS:,} ranks, the profile has {n_ranks:,}: is it damaged?"
        )
    for name in ("ranks", "call_sites", "cycles"):
        ranks = profile.tables[name]["rank"]
        if len(ranks) and not 0 <= ranks.min() <= ranks.max() < n_ranks:
            raise DataError(
                f"table {name} names ranks that a job of {n_ranks:,} does not have: the file is damaged"
            )
