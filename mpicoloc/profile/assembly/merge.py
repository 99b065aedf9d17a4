"""The parts of all nodes become the profile of one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from mpicoloc import config
from mpicoloc.core.profile import Job, Profile
from mpicoloc.core.tables import COLUMNS, VERDICTS, Table, table
from mpicoloc.errors import UsageError
from mpicoloc.profile.assembly.complete import complete
from mpicoloc.profile.assembly.node_part import NodePart


def merge(parts: Sequence[NodePart], partial: bool = False) -> Profile:
    """Profile of a job.

    Parameters
    ----------
    parts : sequence of NodePart
        One per node, the node of rank 0 first.
    partial : bool
        The job did not end as it should.

    Returns
    -------
    Profile
        Partial also when ranks are missing or did not come to MPI_Finalize; its notes say which.
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
    partial = partial or _is_partial(parts, len(ranks))
    rate_su = float(_option("price.rate_su", notes) or 0)
    pricing = str(_option("price.pricing", notes))
    try:
        return _complete(job, tables, rate_su, pricing, partial, notes)
    except UsageError as error:
        # A centre's function that fails, or is missing on this node, must not cost the profile either.
        default = str(config.BY_KEY["price.pricing"].default)
        notes.append(f"{error}; {default} taken")
        return _complete(job, tables, rate_su, default, partial, notes)


def _complete(
    job: Job, tables: Mapping[str, Table], rate_su: float, pricing: str, partial: bool, notes: Sequence[str]
) -> Profile:
    return complete(
        job,
        tables,
        rng=lambda: _rng(job),
        rate_su=rate_su,
        pricing=pricing,
        partial=partial,
        notes=tuple(notes),
    )


def _joined(name: str, parts: Sequence[NodePart]) -> Table:
    """The parts' tables below each other, with row numbers of nodes, modules and places as in the whole."""
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
    """At the end of a job the last word on a shutter may have come to some of its nodes only."""
    common, result = shutters["common"], shutters.copy()
    for counts in (VERDICTS.index("valid"), VERDICTS.index("bubbled")):
        doubted = np.isin(common, common[(common > 0) & (shutters["verdict"] != counts)])
        result["verdict"][doubted & (shutters["verdict"] == counts)] = VERDICTS.index("elsewhere")
    return result


def _is_partial(parts: Sequence[NodePart], n_found: int) -> bool:
    return n_found < parts[0].facts["world_size"] or any(part.facts["not_finalized"] for part in parts)


def _gaps(parts: Sequence[NodePart], n_found: int) -> list[str]:
    notes = []
    lost = sorted(rank for part in parts for rank in part.facts["not_finalized"])
    if lost:
        shown = ", ".join(map(str, lost[:16])) + (" ..." if len(lost) > 16 else "")
        notes.append(f"ranks that did not come to MPI_Finalize: {shown}")
    n_ranks, n_nodes = (parts[0].facts[name] for name in ("world_size", "n_nodes"))
    if n_found < n_ranks:
        hint = f": {len(parts)} of {n_nodes} nodes sent theirs" if n_nodes > 1 else ""
        notes.append(f"{n_found} of {n_ranks} ranks are in this profile{hint}")
    if times := sorted(part.facts["until_unix_s"] for part in parts if part.facts["until_unix_s"]):
        begin, end = (_utc(time) for time in (times[0], times[-1]))
        until = begin + (f" to {end}" if end != begin else "")
        notes.append(f"from the last checkpoints of {len(times)} of {n_nodes} nodes, of {until}")
    return notes


def _utc(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _rng(job: Job) -> np.random.Generator:
    """The same job gives the same interval whenever it is computed; without co-runners it is not imported."""
    import hashlib

    from numpy.random import default_rng

    return default_rng(int.from_bytes(hashlib.sha256(job.id.encode()).digest()[:8], "big"))


def _option(key: str, notes: list[str]) -> config.Value:
    """The option's value, else its default: at the end of a job a bad option must not cost the profile."""
    try:
        return config.get(key)
    except UsageError as error:
        value = config.BY_KEY[key].default
        notes.append(f"{error}; {value} taken")
        return value
