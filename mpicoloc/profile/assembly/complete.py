"""The profile of a job from its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mpicoloc.core.profile import Interference, Job, MpiSummary, Profile
from mpicoloc.core.tables import Table, table
from mpicoloc.measure import critical_ranks
from mpicoloc.measure.estimate import burst_cycles, interference_of_ranks, valid_windows
from mpicoloc.pricing.price import price

if TYPE_CHECKING:  # NumPy imports it when it is named, which takes 5 ms
    import numpy as np

    Rng = np.random.Generator | Callable[[], np.random.Generator]

Tables = Mapping[str, Table]


def complete(
    job: Job,
    tables: Tables,
    *,
    rng: Rng,
    rate_su: float = 1.0,
    pricing: str = "fair",
    partial: bool = False,
    notes: tuple[str, ...] = (),
) -> Profile:
    """The profile of a job from its raw tables: totals, interference and price.

    Parameters
    ----------
    job : Job
        Its `wall_s` is T_co.
    tables : mapping of str to Table
        Tables of a profile; those left out count as empty.
    rng : numpy.random.Generator or callable
        For the bootstrap; or what makes it, called only for a job that had co-runners.
    rate_su : float
        L, SU per core and hour.
    pricing : str
        Name of the price function F.
    partial : bool
        The job did not end as it should.
    notes : tuple of str
        What the reader of the profile should know.

    Returns
    -------
    Profile

    Raises
    ------
    UsageError
        If `pricing` is unknown.
    """
    names = {*tables, "ranks", "nodes", "cycles", "shutters", "counts", "bubble_levels", "sensitivity"}
    full = {name: tables[name] if name in tables else table(name) for name in names}
    slowdowns = critical_ranks.rank_slowdowns(burst_cycles(full["cycles"]), *valid_windows(full["shutters"]))
    full["ranks"] = slowdowns.with_rank_slowdowns(full["ranks"])
    found = interference_of_ranks(job, full, slowdowns, rng)
    if (full["shutters"]["bubble_level"] > 0).any() or (full["shutters"]["probe_slowdown"] > 0).any():
        found, full["sensitivity"] = _with_bubbles(found, full, job.wall_s)
    bill = price(found.slowdown, n_cores=job.n_cores, wall_s=job.wall_s, rate_su=rate_su, pricing=pricing)
    return Profile(job, full, mpi_summary(full["ranks"]), found, bill, partial, notes)


def _with_bubbles(found: Interference, tables: Tables, wall_s: float) -> tuple[Interference, Table]:
    """What bubbles in shutters tell, with what they cost, and the job's curve."""
    from mpicoloc.measure import production_bubbles  # few jobs have bubbles, and it takes milliseconds

    bubbled = production_bubbles.of_job(tables)
    if bubbled is None:
        return found, table("sensitivity")
    found = replace(found, **production_bubbles.summary(bubbled))
    if found.overhead_frac is not None and wall_s > 0:
        lost_s = production_bubbles.lost_s(bubbled, tables["shutters"])
        found = replace(found, overhead_frac=found.overhead_frac + lost_s / wall_s)
    return found, production_bubbles.curve_table(bubbled)


def mpi_summary(ranks: Table) -> MpiSummary:
    """Totals over ranks; all None when no rank left a record."""
    if not len(ranks):
        return MpiSummary()
    mpi_ns, comp_ns = (float(ranks[name].sum()) for name in ("mpi_ns", "comp_ns"))
    total_ns = mpi_ns + comp_ns
    return MpiSummary(
        n_calls=int(ranks["n_calls"].sum()),
        sent_bytes=int(ranks["sent_bytes"].sum()),
        recv_bytes=int(ranks["recv_bytes"].sum()),
        time_frac=mpi_ns / total_ns if total_ns > 0 else None,
    )
