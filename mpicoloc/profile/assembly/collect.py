"""One node's part of a job: its segments and node file in shared memory become tables of a profile.

Nothing here decides anything about the job as a whole; that is `mpicoloc.profile.assembly.merge`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.tables import Table, printable, table, text
from mpicoloc.errors import DataError, UsageError
from mpicoloc.launch import elf
from mpicoloc.pmpi import contract, shared_files
from mpicoloc.profile.assembly import calls, collective_tables, count_tables, machine, node_tables, rank_table
from mpicoloc.profile.assembly.node_part import NodePart

_BATCH_NAMES = ("SLURM_JOB_NAME", "PBS_JOBNAME", "LSB_JOBNAME", "FLUX_JOB_NAME")
CHECKPOINT_TROUBLE = "checkpoint"
"""The job's file in memory that says why the last checkpoint could not be written."""
_MAX_REASON_BYTES = 200
_MODES = {contract.MC_MODE_PRELOAD: "preload", contract.MC_MODE_WRAP: "wrap"}


@dataclass(frozen=True)
class _Rank:
    segment: np.void
    events: np.ndarray[Any, Any]
    modules: dict[int, int]
    """Row of the part's module table by the segment's module number."""

    @property
    def rank(self) -> int:
        return int(self.segment["world_rank"])


def collect(key: str, has_events: bool = True) -> NodePart:
    """Read the job's files of this node.

    Parameters
    ----------
    key : str
        Names the job's files, MPICOLOC_KEY.
    has_events : bool
        With the last calls of each rank, which may be large.

    Returns
    -------
    NodePart

    Raises
    ------
    DataError
        If there is no readable segment.
    """
    notes: list[str] = []
    modules: list[str] = []
    found = (_read_rank(path, has_events, modules, notes) for path in contract.segment_paths(key))
    ranks = [rank for rank in found if rank]
    if not ranks:
        raise DataError(f"no data of job key {key!r} in {os.path.dirname(contract.shm_path(key, 'node'))}")
    notes += _trouble(key)
    node = _read_node(contract.shm_path(key, "node"), notes)
    if len(ranks) > contract.MC_N_NODE_RANKS:
        notes.append(f"the node agent watched {contract.MC_N_NODE_RANKS} of {len(ranks)} ranks of a node")
    first = ranks[0].segment
    names = calls.names(calls.shim_of(int(first["pid"]), contract.text(first["mpi_library"])), notes)
    lanes = [(rank.rank, lane) for rank, _, lane in _lanes(ranks)]

    def called(call: int) -> bytes:
        return _call(names, call)

    tables = {
        "ranks": rank_table.ranks([rank.segment for rank in ranks], node),
        "nodes": node_tables.nodes(contract.text(first["hostname"]), node, _cpus(ranks)),
        "modules": table("modules", {"path": modules, "build_id": list(map(_build_id, modules))}),
        "call_sites": _call_sites(ranks, names),
        "peers": _peers(ranks),
        "collectives": collective_tables.collectives(lanes, called),
        "parts": collective_tables.parts(lanes),
        "groups": collective_tables.groups([rank.segment for rank in ranks]),
        "cycles": _cycles(ranks),
        "regions": _regions(ranks),
        "counters": _counters(ranks),
        "events": _events(ranks, names),
        "shutters": node_tables.shutters(node),
        "bubble_levels": node_tables.bubble_levels(node),
        "sensitivity": table("sensitivity"),
        "places": table("places"),
        "counts": table("counts"),
        "corunners": node_tables.corunners(node),
        **count_tables.places_and_counts(node),
    }
    return NodePart(tables, _facts(ranks, notes))


def _read_rank(path: str, has_events: bool, modules: list[str], notes: list[str]) -> _Rank | None:
    try:
        segment, events = contract.read_segment(path, has_events)
    except (DataError, OSError) as error:
        notes.append(f"a rank is missing: {error}")
        return None
    found = segment["modules"][: int(segment["n_modules"])]
    rows = {}
    for i in np.flatnonzero(found["is_complete"]):
        name = contract.text(found["path"][i])
        if name not in modules:
            modules.append(name)
        rows[int(i)] = modules.index(name)
    if segment["ring"]["error"]:
        reason = os.strerror(int(segment["ring"]["error"]) & 0xFFFF)
        notes.append(f"the trace of rank {int(segment['world_rank'])} could not be written: {reason}")
    return _Rank(segment, events, rows)


def _trouble(key: str) -> Iterator[str]:
    path = contract.shm_path(key, CHECKPOINT_TROUBLE)
    with contextlib.suppress(OSError), shared_files.open_shared(path) as file:
        reason = printable(text(file.read(_MAX_REASON_BYTES)))
        yield f"a checkpoint could not be written: {reason}"


def _build_id(module: str) -> str:
    """While the program that ran is still there, so that another one in its place is not taken for it."""
    try:
        return elf.build_id(module) if module.startswith("/") else ""
    except (OSError, UsageError):
        return ""


def _read_node(path: str, notes: list[str]) -> np.void | None:
    try:
        node = contract.read_file(path)  # as it is now: the agent may go on
    except (DataError, OSError) as error:
        notes.append(f"no node agent watched this job: {error}")
        return None
    if node["t_last"] <= node["t_open"]:
        # The keeper makes the file itself when the agent could not: the first rank waits for it.
        notes.append(f"no node agent watched this job: {contract.text(node['meter_reason'])}")
        return None
    reason = contract.text(node["meter_reason"])
    if node["meter"] == contract.MC_METER_NONE and reason.startswith("the board"):
        notes.append(f"the node agent was blind to other jobs: {reason}")
        return None
    if n_uncounted := int(node["n_uncounted"]):
        notes.append(f"the meter did not count {n_uncounted} threads of a node: too many, or see `ulimit -n`")
    notes += node_tables.foreign_jobs(node)
    n_kept, n_taken = contract.MC_N_SHUTTERS, int(node["n_shutters"])
    if n_taken > n_kept:
        notes.append(f"the last {n_kept} of {n_taken} shutters are kept, and n_used counts those")
    return node


def _facts(ranks: Sequence[_Rank], notes: list[str]) -> dict[str, Any]:
    first = ranks[0].segment
    threads = _threads_per_rank()
    lost = [rank.rank for rank in ranks if rank.segment["state"] != contract.MC_RANK_FINALIZING]
    return {
        "job_id": contract.text(first["job_id"]),
        "command": contract.text(first["command"]),
        "mpi_library": contract.text(first["mpi_library"]),
        "out_path": contract.text(first["out_path"]),
        "world_rank": int(first["world_rank"]),
        "world_size": int(first["world_size"]),
        "n_nodes": int(first["n_nodes"]),
        "n_cores": min(len(_cpus(ranks)), len(ranks) * threads),
        "mode": _MODES.get(int(first["mode"]), ""),
        "user": machine.user(),
        "batch_name": next((os.environ[name] for name in _BATCH_NAMES if os.environ.get(name)), ""),
        "start_unix_s": int(first["start_realtime_ns"]) * 1e-9,
        "until_unix_s": 0.0,
        "not_finalized": lost,
        "notes": notes,
    }


def _cpus(ranks: Sequence[_Rank]) -> list[int]:
    """Processors that any of the ranks may run on."""
    mask = np.bitwise_or.reduce(np.stack([rank.segment["cpu_mask"] for rank in ranks]))
    found: list[int] = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
    return found


def _threads_per_rank() -> int:
    """Cores per rank that the job was given: the batch system says so, else the threads it was told."""
    for name in ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "").split(",")[0]
        if text.isdigit() and int(text) > 0:
            return int(text)
    return 1


def _stack(name: str, pieces: Sequence[Mapping[str, Any]]) -> Table:
    """One table of the pieces' columns, each with `rank` (and `lane`) as a number."""
    tables = []
    for piece in pieces:
        n = max(np.size(value) for value in piece.values())
        tables.append(table(name, {key: np.broadcast_to(value, n) for key, value in piece.items()}))
    return np.concatenate(tables) if tables else table(name)


def _lanes(ranks: Sequence[_Rank]) -> list[tuple[_Rank, int, np.void]]:
    return [
        (rank, i, lane)
        for rank in ranks
        for i, lane in enumerate(contract.lanes(rank.segment))
        if lane["head"]["n_owners"] != 0
    ]


_SITE_COLUMNS = ("offset", "n", "n_timed", "sent_bytes", "recv_bytes", "time_ns", "max_ns")


def _call_sites(ranks: Sequence[_Rank], names: Mapping[int, str]) -> Table:
    pieces = []
    for rank, i_lane, lane in _lanes(ranks):
        rows = np.flatnonzero(lane["sites"]["n"])
        sites = lane["sites"][rows]
        if not len(rows):
            continue
        called = np.array([_call(names, call) for call in sites["call"]])
        module = [rank.modules.get(int(i), -1) for i in sites["i_module"]]
        pieces.append(
            {
                "rank": rank.rank,
                "lane": i_lane,
                "i_site": rows,
                "call": np.where(rows == 0, b"(overflow)", called),
                "i_module": np.where(rows == 0, -1, module),
                **{column: sites[column] for column in _SITE_COLUMNS},
            }
        )
    return _stack("call_sites", pieces)


def _call(names: Mapping[int, str], call: Any) -> bytes:
    return names.get(int(call), f"call {int(call)}").encode()


_ONE_SIDED = ("n_put", "put_bytes", "n_got", "got_bytes")


def _peers(ranks: Sequence[_Rank]) -> Table:
    pieces = []
    for rank, _, lane in _lanes(ranks):
        rows = lane["peers"][np.flatnonzero(lane["peers"]["n"] | lane["peers"]["n_recv"])]
        if len(rows):
            dst = np.where(rows["key"] == 0, -1, rows["peer"])  # the overflow row has mixed peers
            one_sided, size_class = np.divmod(rows["size_class"], contract.MC_ONE_SIDED)
            piece = {"src": rank.rank, "dst": dst, "size_class": size_class}
            for name, column in zip(_ONE_SIDED, ("n", "bytes", "n_recv", "recv_bytes"), strict=True):
                piece |= {column: rows[column], name: rows[column] * one_sided}
            pieces.append(piece)
    return _stack("peers", pieces)


def _cycles(ranks: Sequence[_Rank]) -> Table:
    pieces = []
    for rank, i_lane, lane in _lanes(ranks):
        rows = lane["cycles"]
        for phase, cells in (
            (contract.MC_PHASE_CORUN, rows["corun"]),
            (contract.MC_PHASE_SOLO, rows["solo"]["cell"]),
            (contract.MC_PHASE_ALONE, rows["alone"][:, None]),
        ):
            i_row, group = np.nonzero((cells["n"] | cells["comp_ns"] | cells["mpi_ns"]) != 0)
            if len(i_row):
                keys, cell = rows[i_row], cells[i_row, group]
                piece = {"rank": rank.rank, "lane": i_lane, "phase": phase, "group": group}
                piece |= {"from_site": keys["from"], "to_site": keys["to"], "size_class": keys["size_class"]}
                piece |= {name: cell[name] for name in ("n", "comp_ns", "mpi_ns")}
                pieces.append(piece | _cut(phase, keys, i_row, group))
    return _stack("cycles", pieces)


def _cut(phase: int, keys: Table, i_row: NDArray[np.intp], group: NDArray[np.intp]) -> dict[str, Any]:
    """What is known of cycles that shutters cut; of those in co-run it stands with the kind's first group."""
    if phase == contract.MC_PHASE_SOLO:
        sample = keys["solo"][np.arange(len(keys)), group]
        return {name: sample[name] for name in ("cut_ns", "done_ns")}
    if phase == contract.MC_PHASE_CORUN:
        is_first = np.diff(i_row, prepend=-1) != 0
        return {name: keys[name] * is_first for name in ("n_cut", "cut_ns")}
    return {}


def _regions(ranks: Sequence[_Rank]) -> Table:
    pieces = []
    for rank, i_lane, lane in _lanes(ranks):
        rows = lane["head"]["regions"]
        rows = rows[rows["n"] > 0]
        if len(rows):
            names = np.where(rows["name"] == b"", b"(others)", rows["name"])
            numbers = {name: rows[name] for name in ("n", "time_ns", "mpi_ns")}
            pieces.append({"rank": rank.rank, "lane": i_lane, "name": names, **numbers})
    return _stack("regions", pieces)


def _counters(ranks: Sequence[_Rank]) -> Table:
    """Scaled up where events had the processor's counters by turns."""
    pieces = []
    for rank in ranks:
        rows = rank.segment["pmu"]
        rows = rows[rows["name"] != b""]
        enabled_s, running_s = (rows[name] * 1e-9 for name in ("enabled_ns", "running_ns"))
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.where(running_s > 0, rows["value"] * (enabled_s / running_s), np.nan)
        if len(rows):
            numbers = {"value": value, "enabled_s": enabled_s, "running_s": running_s}
            cpu_s = int(rank.segment["pmu_cpu_ns"]) * 1e-9
            pieces.append({"rank": rank.rank, "event": rows["name"], "cpu_s": cpu_s, **numbers})
    return _stack("counters", pieces)


def _events(ranks: Sequence[_Rank], names: Mapping[int, str]) -> Table:
    pieces = []
    for rank in ranks:
        events = rank.events
        if len(events):
            known = sorted(set(events["call"].tolist()))
            texts = np.array([_call(names, call) for call in known])
            pieces.append(
                {
                    "rank": rank.rank,
                    "call": texts[np.searchsorted(known, events["call"])],
                    **{name: events[name] for name in ("t_ns", "duration_ns", "bytes", "peer", "i_site")},
                }
            )
    return _stack("events", pieces)
