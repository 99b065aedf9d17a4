"""Make the profile of a job from its tables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from mpicoloc import config
from mpicoloc.bill.price import price
from mpicoloc.core.profile import (
    COLUMNS,
    VERDICTS,
    Interference,
    Job,
    MpiSummary,
    Profile,
    Table,
    rank_time_s,
    table,
)
from mpicoloc.errors import UsageError
from mpicoloc.measure import co_runners, job_scaling
from mpicoloc.measure.estimate import interference
from mpicoloc.profile.bundle import NodePart

if TYPE_CHECKING:
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
        The job; its `wall_s` is T_co.
    tables : mapping of str to Table
        Tables of a profile; missing ones count as empty.
    rng : numpy.random.Generator or callable
        Generator for the bootstrap, or a function that makes one, called only for a job with co-runners.
    rate_su : float
        L, SU per core and hour.
    pricing : str
        Name of the price function F.
    partial : bool
        Whether the job did not end normally.
    notes : tuple of str
        Notes for the reader of the profile.

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
    slowdowns = job_scaling.rank_slowdowns(full)
    full["ranks"] = slowdowns.with_rank_slowdowns(full["ranks"])
    found = interference(job, full, rng=rng, slowdowns=slowdowns)
    if "corunners" in full:
        full["corunners"] = co_runners.with_slowdowns(job, full, found.slowdown)
    if (full["shutters"]["bubble_level"] > 0).any() or (full["shutters"]["probe_slowdown"] > 0).any():
        found, full["sensitivity"] = _with_bubbles(found, full, job.wall_s)
    bill = price(found.slowdown, n_cores=job.n_cores, wall_s=job.wall_s, rate_su=rate_su, pricing=pricing)
    return Profile(job, full, mpi_summary(full["ranks"]), found, bill, partial, notes)


def _with_bubbles(found: Interference, tables: Tables, wall_s: float) -> tuple[Interference, Table]:
    """Add the slowdowns beside bubbles in shutters, and the bubbles' cost; also returns the job's curve."""
    from mpicoloc.bubble import shutters as bubbled_shutters

    bubbled = bubbled_shutters.from_job(tables)
    if bubbled is None:
        return found, table("sensitivity")
    found = replace(found, **bubbled_shutters.interference_fields(bubbled))
    if found.overhead_frac is not None and wall_s > 0:
        lost_s = bubbled_shutters.lost_s(bubbled, tables["shutters"])
        found = replace(found, overhead_frac=found.overhead_frac + lost_s / wall_s)
    return found, bubbled_shutters.sensitivity_table(bubbled)


def mpi_summary(ranks: Table) -> MpiSummary:
    """Totals over ranks; all None if no rank left a record."""
    if not len(ranks):
        return MpiSummary()
    total_s = float(rank_time_s(ranks).sum())
    return MpiSummary(
        n_calls=int(ranks["n_calls"].sum()),
        sent_bytes=int(ranks["sent_bytes"].sum()),
        recv_bytes=int(ranks["recv_bytes"].sum()),
        time_frac=float(ranks["mpi_ns"].sum()) * 1e-9 / total_s if total_s > 0 else None,
    )


def merge(parts: Sequence[NodePart], partial: bool = False) -> Profile:
    """Make the profile of a job from the parts of its nodes.

    The profile is also partial if ranks are missing or did not reach MPI_Finalize; the notes name them.
    """
    tables = {name: _joined(name, parts) for name in COLUMNS}
    tables["shutters"] = _for_all_or_none(tables["shutters"])
    facts = parts[0].facts
    notes = [note for part in parts for note in part.facts["notes"]] + _gaps(parts, len(tables["ranks"]))
    ranks = tables["ranks"]
    job = Job(
        id=facts["job_id"],
        command=facts["command"],
        n_ranks=facts["world_size"],
        n_nodes=facts["n_nodes"],
        n_cores=sum(part.facts["n_cores"] for part in parts),
        mpi_library=facts["mpi_library"],
        wall_s=float(ranks["wall_s"].max()),
        start_unix_s=facts["start_unix_s"],
        mode=facts["mode"],
        user=facts["user"],
        batch_name=facts["batch_name"],
    )
    partial |= len(ranks) < job.n_ranks or any(part.facts["not_finalized"] for part in parts)
    rate_su = float(_option("price.rate_su", notes) or 0)
    pricing = str(_option("price.pricing", notes))
    made = functools.partial(complete, job, tables, rng=lambda: _rng(job), rate_su=rate_su, partial=partial)
    try:
        return made(pricing=pricing, notes=tuple(notes))
    except UsageError as error:
        # If the site's price function fails or is missing on this node, the profile must still be written.
        default = str(config.BY_KEY["price.pricing"].default)
        return made(pricing=default, notes=(*notes, f"{error}; using {default}"))


def _joined(name: str, parts: Sequence[NodePart]) -> Table:
    """Concatenate a table of all parts, and renumber the rows of nodes, modules and places that it names."""
    pieces = []
    n_nodes = n_modules = n_places = 0
    for part in parts:
        piece = part.tables[name].copy()
        columns = piece.dtype.names or ()
        if "i_node" in columns:
            piece["i_node"] = n_nodes if len(part.tables["nodes"]) else -1
        if "i_module" in columns:
            piece["i_module"][piece["i_module"] >= 0] += n_modules
        if "place" in columns:
            piece["place"] += n_places
        n_nodes += len(part.tables["nodes"])
        n_modules += len(part.tables["modules"])
        n_places += len(part.tables["places"])
        pieces.append(piece)
    return np.concatenate(pieces) if pieces else table(name)


def _for_all_or_none(shutters: Table) -> Table:
    """Let a shutter count on all nodes or on none: when a job ends, a verdict may reach only some nodes."""
    common, result = shutters["common"], shutters.copy()
    for counts in (VERDICTS.index("valid"), VERDICTS.index("bubbled")):
        doubted = np.isin(common, common[(common > 0) & (shutters["verdict"] != counts)])
        result["verdict"][doubted & (shutters["verdict"] == counts)] = VERDICTS.index("elsewhere")
    return result


def _gaps(parts: Sequence[NodePart], n_found: int) -> list[str]:
    notes = []
    lost = sorted(rank for part in parts for rank in part.facts["not_finalized"])
    if lost:
        shown = ", ".join(map(str, lost[:16])) + (" ..." if len(lost) > 16 else "")
        notes.append(f"ranks that did not reach MPI_Finalize: {shown}")
    n_ranks, n_nodes = (parts[0].facts[name] for name in ("world_size", "n_nodes"))
    if n_found < n_ranks:
        hint = f": {len(parts)} of {n_nodes} nodes sent their parts" if n_nodes > 1 else ""
        notes.append(f"only {n_found} of {n_ranks} ranks are in this profile{hint}")
    if times := sorted(part.facts["until_unix_s"] for part in parts if part.facts["until_unix_s"]):
        first, last = (datetime.fromtimestamp(times[i], UTC) for i in (0, -1))
        begin, end = (f"{time:%Y-%m-%d %H:%M:%S} UTC" for time in (first, last))
        until = begin + (f" to {end}" if end != begin else "")
        notes.append(f"made from the last checkpoints of {len(times)} of {n_nodes} nodes, dated {until}")
    return notes


def _rng(job: Job) -> np.random.Generator:
    """A generator seeded by the job's id, so that a job's interval is reproducible.

    NumPy's random numbers are imported here, because a job without co-runners does not need them.
    """
    import hashlib

    from numpy.random import default_rng

    return default_rng(int.from_bytes(hashlib.sha256(job.id.encode()).digest()[:8], "big"))


def _option(key: str, notes: list[str]) -> config.Value:
    """The option's value. The default replaces an invalid value: the profile must always be written."""
    try:
        return config.get(key)
    except UsageError as error:
        value = config.BY_KEY[key].default
        notes.append(f"{error}; using {value}")
        return value
