"""Turn one node's segments and node file in shared memory into tables of a profile.

Decisions about the job as a whole are left to `mpicoloc.profile.merge`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core import number_lists
from mpicoloc.core.profile import COUNT_WINDOWS, Table, dtype, table, text
from mpicoloc.errors import DataError, UsageError, printable
from mpicoloc.pmpi import contract, elf, paths
from mpicoloc.profile import machine
from mpicoloc.profile.bundle import NodePart

_SHIM = re.compile(r"(/\S*/libmpicoloc-\w+\.so)$", re.MULTILINE)


def abi_of(mpi_library: str) -> str:
    """ABI of a rank's shim: MPICH's ABI, unless the segment's library text names another (csrc/guest/)."""
    if mpi_library.endswith("standard ABI"):
        return "abi"
    release = re.match(r"open mpi v?(\d*)", mpi_library.lower())
    return paths.abi_of("openmpi", int(release[1] or 0) >= 6) if release else "mpich"


def shim_of(pid: int, mpi_library: str) -> str:
    """The shim that a rank has loaded. If the rank has ended, the shim for the rank's MPI library."""
    try:
        with open(f"/proc/{pid}/maps", errors="surrogateescape") as file:
            loaded = _SHIM.search(file.read())
    except OSError:
        loaded = None
    abi = abi_of(mpi_library)
    return loaded.group(1) if loaded else paths.find_shim(abi) or paths.shim_name(abi)


def call_names(shim: str, notes: list[str]) -> dict[int, str]:
    """Name of each call number of a shim; empty, with a note, if the shim's list cannot be read."""
    try:
        with open(os.path.splitext(shim)[0] + ".calls.json", encoding="utf-8") as file:
            return dict(enumerate(json.load(file)))
    except (OSError, ValueError) as error:
        notes.append(f"MPI functions appear as numbers, as their names could not be read: {error}")
        return {}


Lanes = Sequence[tuple[int, int, np.void]]
"""Rank, number and tables of each thread."""
Pieces = Iterator[Mapping[str, Any]]
"""Columns for the rows of one thread or rank. A scalar is the value of all of these rows."""
Called = Callable[[NDArray[Any]], NDArray[np.bytes_]]
"""Names of calls by their numbers."""


def _table(name: str) -> Callable[[Callable[..., Pieces]], Callable[..., Table]]:
    """Decorator that joins the pieces which a function yields into one table."""

    def of(pieces: Callable[..., Pieces]) -> Callable[..., Table]:
        @functools.wraps(pieces)
        def made(*arguments: Any) -> Table:
            tables = [table(name)]
            for piece in pieces(*arguments):
                if n := next(len(value) for value in piece.values() if np.ndim(value)):
                    full = {key: np.broadcast_to(value, n) for key, value in piece.items()}
                    tables.append(table(name, full))
            return np.concatenate(tables)

        return made

    return of


def _columns(rows: Table, *names: str) -> dict[str, NDArray[Any]]:
    return {name: rows[name] for name in names}


@_table("collectives")
def collectives(lanes: Lanes, called: Called) -> Pieces:
    """Collectives that have a row of their own; a counter of the rank counts the other collectives."""
    names = ("group", "to_group", "root", "own_rank", "size_class", "item_bytes", "n", "bytes", "own_bytes")
    for rank, _, lane in lanes:
        rows = lane["collectives"][1:]
        rows = rows[rows["n"] > 0]
        yield {"rank": rank, "call": called(rows["call"]), **_columns(rows, *names)}


@_table("parts")
def parts(lanes: Lanes) -> Pieces:
    """Bytes that ranks sent each other in collectives with a count per rank, such as MPI_Alltoallv."""
    for rank, _, lane in lanes:
        rows = lane["parts"]
        rows = rows[rows["n"] > 0]
        yield {
            "src": rank,
            "dst": np.where(rows["key"] == 0, -1, rows["peer"]),
            **_columns(rows, "n", "bytes"),
        }


@_table("groups")
def _group_runs(segments: Sequence[np.void]) -> Pieces:
    for segment in segments:
        members = segment["members"][: int(segment["n_members"])]
        for group, first, n_runs in members[(members["n_runs"] > 0) & (members["group"] != 0)]:
            runs = segment["runs"][int(first) : int(first) + int(n_runs)]
            yield {"group": group, **_columns(runs, "first", "stride", "n")}


def groups(segments: Sequence[np.void]) -> Table:
    """Each recorded group as runs of ranks, in the order of the group's members."""
    return _once(_group_runs(segments))


def _once(runs: Table) -> Table:
    """Drop the second record of a group: two threads of the group's first rank may each record it."""
    kept = np.ones(len(runs), dtype=bool)
    # `return_index`: without it NumPy would import numpy.ma, which adds 10 ms to the end of every job.
    for group in np.unique(runs["group"], return_index=True)[0]:
        rows = np.flatnonzero(runs["group"] == group)
        half = len(rows) // 2
        if len(rows) % 2 == 0 and np.array_equal(runs[rows[:half]], runs[rows[half:]]):
            kept[rows[half:]] = False
    return runs[kept]


def places_and_counts(node: np.void | None) -> dict[str, Table]:
    """The tables "places" and "counts"; empty if nothing was counted.

    A place that belongs to several sets is one row of "places".
    """
    if node is None or not node["counts"]["n_rows"]:
        return {"places": table("places"), "counts": table("counts")}
    counts = node["counts"]
    rows_of_sets, places = _places(counts)
    return {"places": places, "counts": _counts(node, rows_of_sets)}


def _places(counts: np.void) -> tuple[list[list[int]], Table]:
    """The rows of each set's places in the table "places", and that table."""
    known: dict[tuple[int, ...], int] = {}
    rows_of_sets = []
    for places_of_set in counts["sets"][: int(counts["n_sets"])]:
        found = places_of_set["places"][: int(places_of_set["n"])]
        # Step and register are part of the key: a jump counts each pass, while a register counts in steps.
        facts = ("i_path", "offset", "n_bytes", "step", "reg")
        keys = [tuple(int(place[fact]) for fact in facts) for place in found]
        rows_of_sets.append([known.setdefault(key, len(known)) for key in keys])
    paths = [contract.text(path) for path in counts["paths"]]
    columns: dict[str, list[Any]] = {
        "path": [paths[i_path] for i_path, *_ in known],
        "offset": [offset for _, offset, *_ in known],
    }
    return rows_of_sets, table("places", columns)


def _counts(node: np.void, rows_of_sets: list[list[int]]) -> Table:
    begins = {int(row["epoch"]): int(row["t0"]) for row in node["shutters"][: int(node["n_shutters"])]}
    counts = node["counts"]
    rows = counts["rows"][: int(counts["n_rows"])]
    rows = rows[[int(row["epoch"]) in begins and int(row["i_set"]) < len(rows_of_sets) for row in rows]]
    rows = rows[np.argsort(rows["epoch"], kind="stable")]
    n_places = [len(rows_of_sets[int(i_set)]) for i_set in rows["i_set"]]
    passes = [row["n"][:, :n] for row, n in zip(rows, n_places, strict=True)]
    stacked = np.concatenate(passes, axis=1) if passes else np.zeros((len(COUNT_WINDOWS), 0), np.uint32)
    columns = {
        "t0_ns": np.repeat([begins[int(epoch)] for epoch in rows["epoch"]], n_places),
        "place": [row for i_set in rows["i_set"] for row in rows_of_sets[int(i_set)]],
        **{f"n_{when}": stacked[i] for i, when in enumerate(COUNT_WINDOWS)},
    }
    return table("counts", columns)


_METERS = {
    contract.MC_METER_NONE: "none",
    contract.MC_METER_IPC: "ipc",
    contract.MC_METER_BURST: "burst",
    contract.MC_METER_COUNT: "count",
}
_MAX_LIST_BYTES = dtype("nodes")["cpus"].itemsize


def foreign_jobs(node: np.void) -> list[str]:
    """A note on jobs with other versions of mpicoloc that run on this node when this job ends."""
    if node["meter"] == contract.MC_METER_NONE or not contract.n_foreign():
        return []
    return [
        "jobs of another version of mpicoloc ran on a node at the end: they do not pause for this job, "
        "so its slowdown leaves them out"
    ]


def nodes(hostname: str, node: np.void | None, cpus: Iterable[int]) -> Table:
    """One row for this node; no row if there was no node agent.

    An empty row would mean that the job had no co-runners.
    """
    if node is None:
        return table("nodes")
    listed, counts = number_lists.format_cpus(cpus), node["counts"]
    # Time that the job's threads lost to counting: by passes and samples, but not by pauses for patching.
    counting_ns = float(counts["n_passes"] * counts["pass_ns"] + counts["sampled_ns"])
    columns: dict[str, list[Any]] = {
        "hostname": [hostname],
        "meter": [_METERS.get(int(node["meter"]), "none").encode()],
        "meter_reason": [contract.text(node["meter_reason"])],
        "n_hits": [int(counts["n_passes"])],
        "counting_s": [counting_ns * 1e-9],
        "watched_s": [np.nan if _is_unsure(node) else (int(node["t_last"]) - int(node["t_open"])) * 1e-9],
        "shared_s": [int(node["shared_ns"]) * 1e-9],
        "n_pauses": [int(node["n_pauses"])],
        "paused_s": [int(node["paused_ns"]) * 1e-9],
        "n_refused": [int(node["n_refused"])],
        "shutter_duration_s": [int(node["shutter_duration_ns"]) * 1e-9],
        "shutter_period_s": [int(node["shutter_period_ns"]) * 1e-9],
        "n_taken": [int(node["n_shutters"])],
        **_clock(node["common"]),
        **{name: [value] for name, value in machine.node().items()},
        # A truncated list could name the wrong processors.
        "cpus": [listed if len(listed) <= _MAX_LIST_BYTES else ""],
        "bubble_reason": [contract.text(node["bubble_reason"])],
    }
    return table("nodes", columns)


def _is_unsure(node: np.void) -> bool:
    """Whether no co-runner was seen although there may have been some."""
    return bool(contract.text(node["unseen_reason"])) and not node["n_corunners"]


def _clock(common: np.void) -> dict[str, list[float]]:
    agreed = common["state"] == contract.MC_COMMON_ON
    columns = {"clock_offset_s": "clock_offset_ns", "clock_bound_s": "clock_worst_ns"}
    return {name: [float(common[field]) * 1e-9 if agreed else np.nan] for name, field in columns.items()}


_AS_THEY_ARE = (
    "busy_frac", "waited_frac", "since_ns", "since_waited_ns", "before_waited_ns",
    "bubble_level", "probe_slowdown", "present", "spared",
)  # fmt: skip
"""Columns of the table of shutters that have the same name in shared memory."""


def shutters(node: np.void | None) -> Table:
    """The shutters taken for the job, in order of time."""
    if node is None or not node["n_shutters"]:
        return table("shutters")
    rows = node["shutters"][: int(node["n_shutters"])]
    rows = rows[np.argsort(rows["t0"], kind="stable")]
    columns = {
        "epoch": rows["epoch"],
        "t0_ns": rows["t0"],
        "t1_ns": rows["t1"],
        "verdict": rows["verdict"],
        "common": rows["i_common"],
        "n_corunners": rows["n_corunners"],
        "moved_ns": rows["moved_ns"],
    }
    for when in ("before", "during", "after"):
        for what in ("instructions", "cycles"):
            columns[f"{when}_{what}"] = rows[when][what]
            columns[f"{when}_outside_{what}"] = rows[f"outside_{when}"][what]
        columns[f"{when}_window_ns"] = rows[f"{when}_ns"]
    for name in _AS_THEY_ARE:
        columns[name] = rows[name]
    for i, when in enumerate(COUNT_WINDOWS):
        columns[f"{when}_samples"] = rows["n_samples"][:, i]
        columns[f"{when}_near"] = rows["n_near"][:, i]
    return table("shutters", columns)


def bubble_levels(node: np.void | None) -> Table:
    """The levels of the bubbles' calibration on this node, if there is one."""
    if node is None or not node["probe_curve"]["slowdown"].all():
        return table("bubble_levels")
    curve = node["probe_curve"]
    columns = {"level": np.arange(len(curve["slowdown"])), "probe_slowdown": curve["slowdown"]}
    return table("bubble_levels", columns | {f"probe_{end}": curve[end] for end in ("low", "high")})


def corunners(node: np.void | None) -> Table:
    """The co-runners that the agent saw more than once."""
    if node is None or not node["n_corunners"]:
        return table("corunners")
    rows = node["corunners"][: int(node["n_corunners"])]
    overlap_ns = rows["t_last"].astype(np.int64) - rows["t_first"].astype(np.int64)
    is_seen = overlap_ns > 0
    return table(
        "corunners",
        {
            "job_id": rows["job_id"][is_seen],
            "overlap_s": overlap_ns[is_seen] * 1e-9,
            "number": np.flatnonzero(is_seen),
            "cpu_s": rows["cpu_ns"][is_seen] * 1e-9,
        },
    )


_BATCH_NAMES = ("SLURM_JOB_NAME", "PBS_JOBNAME", "LSB_JOBNAME", "FLUX_JOB_NAME")
CHECKPOINT_TROUBLE = "checkpoint"
"""Name of the job's file in shared memory that says why the last checkpoint failed."""
_MAX_REASON_BYTES = 200
_MODES = {contract.MC_MODE_PRELOAD: "preload", contract.MC_MODE_WRAP: "wrap"}


@dataclass(frozen=True)
class _Rank:
    segment: np.void
    events: np.ndarray[Any, Any]
    modules: dict[int, int]
    """Maps a module's number in the segment to its row in the part's table of modules."""

    @property
    def rank(self) -> int:
        return int(self.segment["world_rank"])


def collect(key: str, has_events: bool = True) -> NodePart:
    """Read the job's files of this node.

    Raises `DataError` if there is no readable segment.
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
        notes.append(
            f"the node agent watched only {contract.MC_N_NODE_RANKS} of the {len(ranks)} ranks of a node"
        )
    first = ranks[0].segment
    names = call_names(shim_of(int(first["pid"]), contract.text(first["mpi_library"])), notes)
    lanes = _lanes(ranks)

    def called(calls: NDArray[Any]) -> NDArray[np.bytes_]:
        known, at = np.unique(calls, return_inverse=True)
        return np.array([names.get(i, f"call {i}").encode() for i in known.tolist()], np.bytes_)[at]

    tables = {
        "ranks": machine.ranks([rank.segment for rank in ranks], node),
        "nodes": nodes(contract.text(first["hostname"]), node, _cpus(ranks)),
        "modules": table("modules", {"path": modules, "build_id": list(map(_build_id, modules))}),
        "call_sites": _call_sites(lanes, called, {rank.rank: rank.modules for rank in ranks}),
        "peers": _peers(lanes),
        "collectives": collectives(lanes, called),
        "parts": parts(lanes),
        "groups": groups([rank.segment for rank in ranks]),
        "cycles": _cycles(lanes),
        "regions": _regions(lanes),
        "counters": _counters(ranks),
        "events": _events(ranks, called),
        "shutters": shutters(node),
        "bubble_levels": bubble_levels(node),
        "sensitivity": table("sensitivity"),
        "corunners": corunners(node),
        **places_and_counts(node),
    }
    return NodePart(tables, _facts(ranks, notes))


def _read_rank(path: str, has_events: bool, modules: list[str], notes: list[str]) -> _Rank | None:
    try:
        segment, events = contract.read_segment(path, has_events)
    except (DataError, OSError) as error:
        notes.append(f"the data of a rank is missing: {error}")
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
    with contextlib.suppress(OSError), contract.open_shared(path) as file:
        reason = printable(text(file.read(_MAX_REASON_BYTES)))
        yield f"a checkpoint could not be written: {reason}"


def _build_id(module: str) -> str:
    """Build ID of a module. It is read while the job's file is there, to reveal a later replacement."""
    try:
        return elf.build_id(module) if module.startswith("/") else ""
    except (OSError, UsageError):
        return ""


def _read_node(path: str, notes: list[str]) -> np.void | None:
    try:
        node = contract.read_file(path)  # a snapshot: the agent may still write
    except (DataError, OSError) as error:
        notes.append(f"no node agent watched this job: {error}")
        return None
    if node["t_last"] <= node["t_open"]:
        # If the agent fails, the keeper creates the file, because the first rank waits for it.
        notes.append(f"no node agent watched this job: {contract.text(node['meter_reason'])}")
        return None
    reason = contract.text(node["meter_reason"])
    if node["meter"] == contract.MC_METER_NONE and reason.startswith("the board"):
        notes.append(f"the node agent was blind to other jobs: {reason}")
        return None
    if unseen := contract.text(node["unseen_reason"]):
        notes.append(
            f"co-runners that are missing here may have run on a node: {unseen}; see `mpicoloc check`"
        )
    if n_uncounted := int(node["n_uncounted"]):
        notes.append(
            f"the meter did not count {n_uncounted} threads of a node: there were too many, or too few file "
            "descriptors (see `ulimit -n`)"
        )
    notes += foreign_jobs(node)
    n_kept, n_taken = contract.MC_N_SHUTTERS, int(node["n_shutters"])
    if n_taken > n_kept:
        notes.append(f"only the last {n_kept} of {n_taken} shutters are kept, and n_used counts only these")
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
        "user": machine.user(os.getuid()),
        "batch_name": next((os.environ[name] for name in _BATCH_NAMES if os.environ.get(name)), ""),
        "start_unix_s": int(first["start_realtime_ns"]) * 1e-9,
        "until_unix_s": 0.0,
        "not_finalized": lost,
        "notes": notes,
    }


def _cpus(ranks: Sequence[_Rank]) -> list[int]:
    """Processors that at least one rank may run on."""
    mask = np.bitwise_or.reduce(np.stack([rank.segment["cpu_mask"] for rank in ranks]))
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def _threads_per_rank() -> int:
    """Cores per rank. If the batch system does not tell, the number of OpenMP threads; without that, 1."""
    for name in ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "").split(",")[0]
        if text.isdigit() and int(text) > 0:
            return int(text)
    return 1


def _lanes(ranks: Sequence[_Rank]) -> Lanes:
    return [
        (rank.rank, i, lane)
        for rank in ranks
        for i, lane in enumerate(contract.lanes(rank.segment))
        if lane["head"]["n_owners"] != 0
    ]


_SITE_COLUMNS = ("offset", "n", "n_timed", "sent_bytes", "recv_bytes", "time_ns", "max_ns")


@_table("call_sites")
def _call_sites(lanes: Lanes, called: Called, modules: Mapping[int, Mapping[int, int]]) -> Pieces:
    for rank, i_lane, lane in lanes:
        rows = np.flatnonzero(lane["sites"]["n"])
        sites = lane["sites"][rows]
        module = [modules[rank].get(i, -1) for i in sites["i_module"].tolist()]
        yield {
            "rank": rank,
            "lane": i_lane,
            "i_site": rows,
            "call": np.where(rows == 0, b"(overflow)", called(sites["call"])),
            "i_module": np.where(rows == 0, -1, module),
            **_columns(sites, *_SITE_COLUMNS),
        }


_ONE_SIDED = ("n_put", "put_bytes", "n_got", "got_bytes")


@_table("peers")
def _peers(lanes: Lanes) -> Pieces:
    for rank, _, lane in lanes:
        rows = lane["peers"][np.flatnonzero(lane["peers"]["n"] | lane["peers"]["n_recv"])]
        dst = np.where(rows["key"] == 0, -1, rows["peer"])  # the overflow row has messages of several peers
        one_sided, size_class = np.divmod(rows["size_class"], contract.MC_ONE_SIDED)
        moved = _columns(rows, "n", "bytes", "n_recv", "recv_bytes")
        of_these = {name: own * one_sided for name, own in zip(_ONE_SIDED, moved.values(), strict=True)}
        yield {"src": rank, "dst": dst, "size_class": size_class, **moved, **of_these}


@_table("cycles")
def _cycles(lanes: Lanes) -> Pieces:
    for rank, i_lane, lane in lanes:
        rows = lane["cycles"]
        for phase, cells in (
            (contract.MC_PHASE_CORUN, rows["corun"]),
            (contract.MC_PHASE_SOLO, rows["solo"]["cell"]),
            (contract.MC_PHASE_ALONE, rows["alone"][:, None]),
        ):
            i_row, group = np.nonzero((cells["n"] | cells["comp_ns"] | cells["mpi_ns"]) != 0)
            keys, cell = rows[i_row], cells[i_row, group]
            piece = {"rank": rank, "lane": i_lane, "phase": phase, "group": group}
            piece |= {"from_site": keys["from"], "to_site": keys["to"], "size_class": keys["size_class"]}
            yield piece | _columns(cell, "n", "comp_ns", "mpi_ns") | _cut(phase, keys, i_row, group)


def _cut(phase: int, keys: Table, i_row: NDArray[np.intp], group: NDArray[np.intp]) -> dict[str, Any]:
    """The measured part of cycles that shutters cut; for the co-run phase, in the first group of each row."""
    if phase == contract.MC_PHASE_SOLO:
        return _columns(keys["solo"][np.arange(len(keys)), group], "cut_ns", "done_ns")
    if phase == contract.MC_PHASE_CORUN:
        is_first = np.diff(i_row, prepend=-1) != 0
        return {name: keys[name] * is_first for name in ("n_cut", "cut_ns")}
    return {}


@_table("regions")
def _regions(lanes: Lanes) -> Pieces:
    for rank, i_lane, lane in lanes:
        rows = lane["head"]["regions"]
        rows = rows[rows["n"] > 0]
        names = np.where(rows["name"] == b"", b"(others)", rows["name"])
        yield {"rank": rank, "lane": i_lane, "name": names, **_columns(rows, "n", "time_ns", "mpi_ns")}


@_table("counters")
def _counters(ranks: Sequence[_Rank]) -> Pieces:
    """Event counts, scaled up if there were too few hardware counters, so that events took turns."""
    for rank in ranks:
        rows = rank.segment["pmu"]
        rows = rows[rows["name"] != b""]
        enabled_s, running_s = (rows[name] * 1e-9 for name in ("enabled_ns", "running_ns"))
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.where(running_s > 0, rows["value"] * (enabled_s / running_s), np.nan)
        numbers = {"value": value, "enabled_s": enabled_s, "running_s": running_s}
        cpu_s = int(rank.segment["pmu_cpu_ns"]) * 1e-9
        yield {"rank": rank.rank, "event": rows["name"], "cpu_s": cpu_s, **numbers}


@_table("events")
def _events(ranks: Sequence[_Rank], called: Called) -> Pieces:
    for rank in ranks:
        numbers = _columns(rank.events, "t_ns", "duration_ns", "bytes", "peer", "i_site")
        yield {"rank": rank.rank, "call": called(rank.events["call"]), **numbers}
