"""The traffic of a job, from its profile's records of messages, collectives, parts and one-sided calls."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpicoloc.core.network import (
    Exchange,
    Floats,
    Rounds,
    TimedCalls,
    TimedMessages,
    Traffic,
    TrafficSum,
    total,
)
from mpicoloc.core.profile import N_SIZE_CLASSES, Array, Profile, Table, text
from mpicoloc.errors import DataError
from mpicoloc.network.traffic import collective, openmpi
from mpicoloc.network.traffic.collective import Collective, Library
from mpicoloc.network.traffic.mpich import MPICH
from mpicoloc.network.traffic.openmpi import OpenMPI, OpenMPI5

Numbers = tuple[Array, Array]
_NAME = re.compile(r"(?:P?MPIX?_)?(I?)([a-zA-Z]\w*?)(_init)?(?:_c)?")
_OTHER_MPICH = re.compile(r"version:\s*(?!4\.0)\d")
_UNEVEN = ("allgatherv", "reduce_scatter")
_WITH_PARTS = ("gatherv", "scatterv", "alltoallv", "alltoallw")
PARTS = ""
_MAX_ROWS = 1 << 24
"""Above this number of rows, the parts of a sum are added up, which limits the use of memory."""
_NONBLOCKING = "nonblocking collectives between two groups of ranks are treated as blocking collectives"


@dataclass(frozen=True)
class JobTraffic:
    """Traffic of a job.

    Attributes
    ----------
    traffic : TrafficSum
        All traffic that is known.
    n_unknown : int
        Number of collectives that are not in `traffic`.
    dropped_bytes : int
        Bytes that ranks sent to, or received from, unknown ranks. These ranks belong to spawned jobs, or the
        tables had no room for their rows. `traffic` has the bytes only if the other side recorded them.
    notes : tuple of str
        Notes on assumptions and on missing data.
    by_call : mapping of str to TrafficSum
        The traffic of each collective function, by its name as in `Collective`. `PARTS` has the
        traffic of all functions for which each rank records its own parts.
    """

    traffic: TrafficSum
    n_unknown: int
    notes: tuple[str, ...]
    dropped_bytes: int = 0
    by_call: Mapping[str, TrafficSum] = field(default_factory=dict)


def job_traffic(
    tables: Mapping[str, Table], n_ranks: int, mpi_library: str, hosts: ArrayLike | None = None
) -> JobTraffic:
    """Traffic between the ranks of a job.

    Shapes: `hosts` (n_ranks,). Raises `DataError` if the numbers of hosts and ranks differ.
    """
    library, notes = library_of(mpi_library)
    nodes = _nodes(tables["ranks"], n_ranks) if hosts is None else np.asarray(hosts)
    if len(nodes) != n_ranks:
        raise DataError(f"the placement has hosts for {len(nodes)} ranks, but the job has {n_ranks}")
    parts = _parts_traffic(tables["parts"], n_ranks)
    sparse: defaultdict[str, _TrafficAccumulator] = defaultdict(lambda: _TrafficAccumulator(n_ranks))
    exchanges: defaultdict[str, list[Exchange]] = defaultdict(list)
    n_unknown = int(tables["ranks"]["n_collective_overflow"].sum())
    members = members_of(tables["groups"], n_ranks)
    for calls in _similar_calls(tables["collectives"]):
        name = calls.call.name
        if not _add(calls, members, nodes, library, sparse[name], exchanges[name]):
            n_unknown += calls.n
        elif calls.to_group and not calls.call.is_blocking and _NONBLOCKING not in notes:
            notes.append(_NONBLOCKING)
    dropped_bytes = _bytes_outside_job(tables, n_ranks)
    by_call = {name: TrafficSum(n_ranks, (sparse[name].total(), *exchanges[name])) for name in sparse}
    by_call[PARTS] = TrafficSum(n_ranks, (parts,))
    pairs = [
        point_to_point(tables["peers"], n_ranks),
        parts,
        *(traffic_sum.total() for traffic_sum in sparse.values()),
    ]
    traffic = TrafficSum(n_ranks, (total(n_ranks, pairs), *itertools.chain(*exchanges.values())))
    notes += _missing_notes(n_unknown, dropped_bytes)
    return JobTraffic(traffic, n_unknown, tuple(notes), dropped_bytes, by_call)


def collective_of(call: str) -> str:
    """Key of `JobTraffic.by_call` for a collective MPI function."""
    name = _collective_name(call.removesuffix("_c"))[0]
    return PARTS if name.startswith("neighbor_") or name in _WITH_PARTS else name


def _missing_notes(n_unknown: int, dropped_bytes: int) -> Iterator[str]:
    """Notes on data that are missing in the traffic."""
    if n_unknown:
        yield (
            f"{n_unknown:,} collectives are not in the traffic: they include ranks outside the job, or the "
            "tables had no room for them"
        )
    if dropped_bytes:
        yield (
            f"{dropped_bytes:,} bytes to or from unknown ranks are not in the traffic, unless the "
            "other side recorded them: the ranks are in spawned jobs, or the tables had no room for them"
        )


def _bytes_outside_job(tables: Mapping[str, Table], n_ranks: int) -> int:
    total_bytes = 0
    for name, columns in (("peers", ("bytes", "recv_bytes")), ("parts", ("bytes",))):
        unknown = tables[name][~_is_between_ranks(tables[name], n_ranks)]
        total_bytes += sum(int(unknown[column].sum()) for column in columns)
    return total_bytes


def _is_between_ranks(rows: Table, n_ranks: int) -> Array:
    """Whether each row is between two ranks of the job."""
    inside = [(rows[end] >= 0) & (rows[end] < n_ranks) for end in ("src", "dst")]
    return np.asarray(inside[0] & inside[1])


def _add(
    calls: _SimilarCalls,
    members: Mapping[int, Array],
    nodes: Array,
    library: Library,
    traffic_sum: _TrafficAccumulator,
    exchanges: list[Exchange],
) -> bool:
    """Add similar calls; all-pairs exchanges go to `exchanges`. Returns False if their traffic is unknown."""
    known = [members.get(group) for group in (calls.group, calls.to_group) if group]
    if not calls.group or any(ranks is None for ranks in known) or calls.call.name not in openmpi.NONBLOCKING:
        return False
    ranks = [group for group in known if group is not None]
    call = _on_ranks(calls.call, ranks[0], nodes)
    if len(ranks) > 1:
        return _add_intercomm_side(calls, call, ranks, nodes, library, traffic_sum)
    if call.n_bytes and call.n_ranks > 1 and library.is_exchange(call):
        n_bytes = calls.n_bytes if call.counts is None else calls.n_bytes / call.n_ranks
        exchanges.append(Exchange(traffic_sum.n_ranks, ranks[0], n_bytes, calls.n))
    else:
        call = call.with_(call.name, counts=call.counts, root=min(call.root, call.n_ranks - 1))
        traffic_sum.add(
            _scaled(library.messages(call).traffic(), call, calls).renumbered(ranks[0], traffic_sum.n_ranks)
        )
    return True


def _add_intercomm_side(
    calls: _SimilarCalls,
    call: Collective,
    ranks: list[Array],
    nodes: Array,
    library: Library,
    traffic_sum: _TrafficAccumulator,
) -> bool:
    """Add one group's side of calls between two groups. Returns False if their traffic is unknown."""
    algorithms = collective.OPEN_MPI if isinstance(library, OpenMPI) else collective.MPICH
    if len(ranks[0]) * len(ranks[1]) > _MAX_ROWS or call.name not in algorithms:
        return False
    side = collective.IntercommSide(call, ranks[0], ranks[1], traffic_sum.n_ranks, nodes)
    traffic_sum.add(_scaled(collective.traffic(side, library, algorithms), call, calls))
    return True


def library_of(mpi_library: str) -> tuple[Library, list[str]]:
    """The library with this version string, and notes on assumptions about it."""
    name = mpi_library.strip().lower()
    if name.startswith("open mpi"):
        return (OpenMPI5() if name.startswith("open mpi v5") else OpenMPI()), []
    is_known = name.startswith("mpich") and _OTHER_MPICH.search(name) is None
    return MPICH(), [] if is_known else [f"collectives of {mpi_library!r} are assumed to be as in MPICH 4.0"]


def point_to_point(peers: Table, n_ranks: int) -> Traffic:
    """Traffic of point-to-point messages and one-sided calls.

    Notes
    -----
    Both ranks count a message, unless the table of one of them was full. The larger of the bytes sent and the
    bytes received is therefore right. Puts and gets are counted only by the origin.
    """
    known = peers[_is_between_ranks(peers, n_ranks)]
    src, dst = known["src"], known["dst"]
    column = {name: known[name].astype(np.int64) for name in known.dtype.names or ()}
    puts = Traffic.of(n_ranks, src, dst, column["put_bytes"], column["n_put"])
    gets = Traffic.of(n_ranks, dst, src, column["got_bytes"], column["n_got"])
    sent = column["n"] - column["n_put"], column["bytes"] - column["put_bytes"]
    received = column["n_recv"] - column["n_got"], column["recv_bytes"] - column["got_bytes"]
    return total(n_ranks, [_larger_of_both_sides(column, sent, received, n_ranks), puts, gets])


def _larger_of_both_sides(
    column: Mapping[str, Array], sent: Numbers, received: Numbers, n_ranks: int
) -> Traffic:
    """The larger of the two sides' counts of messages, for each pair of ranks and size class."""
    sides = []
    for own, peer, numbers in (("src", "dst", sent), ("dst", "src", received)):
        sides.append(
            ((column[own] * n_ranks + column[peer]) * N_SIZE_CLASSES + column["size_class"], numbers)
        )
    keys = np.unique(np.concatenate([side[0] for side in sides]))
    larger = np.zeros((2, len(keys)), dtype=np.int64)
    for side, numbers in sides:
        sums = np.zeros((2, len(keys)), dtype=np.int64)
        for i, number in enumerate(numbers):
            np.add.at(sums[i], np.searchsorted(keys, side), number)
        larger = np.maximum(larger, sums)
    rows, columns = np.divmod(keys // N_SIZE_CLASSES, max(n_ranks, 1))
    return Traffic.of(n_ranks, rows, columns, larger[1], larger[0])


def _parts_traffic(parts: Table, n_ranks: int) -> Traffic:
    known = parts[_is_between_ranks(parts, n_ranks)]
    n_bytes, n = known["bytes"].astype(np.int64), known["n"].astype(np.int64)
    return Traffic.of(n_ranks, known["src"], known["dst"], n_bytes, n)


def members_of(groups: Table, n_ranks: int) -> dict[int, Array]:
    """Ranks of each group, in the order of the group; groups with impossible ranks are left out."""
    members = {}
    for runs in _rows_by_key(groups, groups["group"]):
        n = runs["n"].astype(np.int64)
        if np.any(n < 1) or n.sum() > n_ranks:
            continue
        within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        ranks = np.repeat(runs["first"].astype(np.int64), n) + within * np.repeat(
            runs["stride"].astype(np.int64), n
        )
        if ranks.min() >= 0 and ranks.max() < n_ranks and len(np.unique(ranks)) == len(ranks):
            members[int(runs["group"][0])] = ranks
    return members


def _rows_by_key(rows: Table, keys: Array) -> list[Table]:
    """Tables of rows with equal keys, in the order of the rows."""
    if len(rows) == 0:
        return []
    _, i_key = np.unique(keys, return_inverse=True)
    order = np.argsort(i_key, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(i_key[order])) + 1)


def _nodes(ranks: Table, n_ranks: int) -> Array:
    """Node of each rank; a rank that the profile lacks gets a node of its own."""
    nodes = -1 - np.arange(n_ranks)
    known = ranks[(ranks["rank"] >= 0) & (ranks["rank"] < n_ranks) & (ranks["i_node"] >= 0)]
    nodes[known["rank"]] = known["i_node"]
    return nodes


def _collective_name(call: str) -> tuple[str, bool]:
    """Name of the collective, and whether it blocks. Persistent calls use the nonblocking algorithms."""
    match = _NAME.fullmatch(call)
    return (match.group(2).lower(), not match.group(1) and not match.group(3)) if match else (call, True)


@dataclass(frozen=True)
class _SimilarCalls:
    """Calls with the same function, groups, root and size class: their number, and their total bytes."""

    call: Collective
    group: int
    to_group: int
    n: int
    n_bytes: int


_KEYS = {"call": "U40", "group": "u8", "to_group": "u8", "root": "i4", "size_class": "i2"}


def _similar_calls(rows: Table) -> Iterator[_SimilarCalls]:
    """The calls of table "collectives"."""
    keys = np.empty(len(rows), dtype=list(_KEYS.items()))
    for name in _KEYS:
        keys[name] = rows[name] if name != "call" else [text(call).removesuffix("_c") for call in rows[name]]
    for rows_of_key in _rows_by_key(rows, keys):
        first = rows_of_key[rows_of_key["own_rank"] == 0]
        n, n_bytes = int(first["n"].sum()), int(first["bytes"].sum())
        if n == 0 or n_bytes < 0:
            continue
        name, is_blocking = _collective_name(text(first["call"][0]))
        item_bytes = max(int(first["item_bytes"].max()), 1)
        counts = _own_parts(rows_of_key, item_bytes) if name in _UNEVEN else None
        to_group = int(first["to_group"][0])
        if to_group and counts is not None:  # "bytes" is what the group receives
            n_bytes = int(rows_of_key["own_bytes"].sum())
        n_items = max(round(n_bytes / n / item_bytes), 1) if n_bytes else 0
        call = Collective(
            name, 0, n_items, item_bytes, max(int(first["root"][0]), 0), counts, is_blocking=is_blocking
        )
        yield _SimilarCalls(call, int(first["group"][0]), to_group, n, n_bytes)


def _own_parts(rows: Table, item_bytes: int) -> Array:
    """Mean number of items in each rank's own part; 0 for a rank without a record."""
    own = rows["own_rank"].astype(np.int64)
    n_bytes = np.bincount(own, weights=rows["own_bytes"])
    n = np.bincount(own, weights=rows["n"])
    return np.round(n_bytes / np.maximum(n, 1) / item_bytes).astype(np.int64)


def _on_ranks(call: Collective, ranks: Array, nodes: Array) -> Collective:
    """The call with these ranks as its communicator."""
    p = len(ranks)
    counts = (
        None if call.counts is None else np.resize(np.append(call.counts, np.zeros(p, dtype=np.int64)), p)
    )
    return call.with_(call.name, n_ranks=p, counts=counts, nodes=nodes[ranks])


def _scaled(once: Traffic, call: Collective, calls: _SimilarCalls) -> Traffic:
    """Traffic of all calls: the traffic of one call of mean size, scaled to the bytes that were recorded."""
    items = call.n_items if call.counts is None else int(call.counts.sum())
    expected = calls.n * items * call.item_bytes
    ratio = calls.n if expected in (0, calls.n_bytes) else calls.n * (calls.n_bytes / expected)
    return Traffic(once.n_ranks, once.src, once.dst, once.n_bytes * ratio, once.n_messages * calls.n)


class _TrafficAccumulator:
    """A sum of traffic that is compacted when it gets large."""

    def __init__(self, n_ranks: int) -> None:
        self.n_ranks = n_ranks
        self.parts: list[Traffic] = []

    def add(self, part: Traffic) -> None:
        """Add traffic."""
        self.parts.append(part)
        if sum(map(len, self.parts)) > _MAX_ROWS:
            self.parts = [self.total()]

    def total(self) -> Traffic:
        """The sum of all parts."""
        return total(self.n_ranks, self.parts)


_SENDS = re.compile(r"MPI_(I?[bsr]?send|I?sendrecv(_replace)?|R?put)(_c)?", re.IGNORECASE)


_GETS = re.compile(r"MPI_R?get(_c)?", re.IGNORECASE)


def hostnames(profile: Profile) -> list[str]:
    """Name of the node of each rank.

    Raises `DataError` if the node of a rank is unknown.
    """
    ranks = np.sort(profile.tables["ranks"], order="rank")
    names = [text(row["hostname"]) for row in profile.tables["nodes"]]
    known = ranks[(ranks["i_node"] >= 0) & (ranks["i_node"] < len(names))]
    if known["rank"].tolist() != list(range(profile.job.n_ranks)):
        n_ranks = profile.job.n_ranks
        raise DataError(
            f"the profile has the nodes of only {len(known)} of {n_ranks} ranks: give --placement"
        )
    return [names[i] for i in known["i_node"]]


def timed_messages(profile: Profile) -> TimedMessages:
    """The messages of a profile's trace; each is in transit for the duration of the call that sends it.

    Times are by the first node's clock.

    Raises `DataError` if the profile has no trace.
    """
    events = profile.tables["events"]
    if not len(events):
        raise DataError(
            "the profile has no trace, so message times are unknown: run the job with --trace all"
        )
    calls, kind = np.unique(events["call"], return_inverse=True)
    is_send, is_get = (
        np.array([pattern.fullmatch(text(call)) is not None for call in calls])[kind]
        for pattern in (_SENDS, _GETS)
    )
    is_message = (is_send | is_get) & (events["peer"] >= 0)
    rows, is_got = events[is_message], is_get[is_message]
    if len(rows) and not 0 <= rows["rank"].min() <= rows["rank"].max() < profile.job.n_ranks:
        raise DataError(
            f"the trace names ranks that a job of {profile.job.n_ranks} ranks does not have: the file is "
            "damaged"
        )
    start_s = rows["t_ns"] * 1e-9 - rank_offsets_s(profile)[rows["rank"]]
    own, peer = rows["rank"].astype(np.int64), rows["peer"].astype(np.int64)
    return TimedMessages(
        np.where(is_got, peer, own),
        np.where(is_got, own, peer),
        start_s,
        start_s + rows["duration_ns"] * 1e-9,
        rows["bytes"].astype(np.float64),
    )


@dataclass(frozen=True)
class CallRows:
    """MPI calls with their times, one row each; `names[kind[i]]` is the function of call i."""

    names: Sequence[str]
    kind: NDArray[np.integer]
    rank: NDArray[np.integer]
    start_s: Floats
    end_s: Floats
    n_bytes: NDArray[np.number]


def call_rows(profile: Profile) -> CallRows:
    """The calls of the job's ranks in a profile's trace, by the first node's clock."""
    events = profile.tables["events"]
    events = events[(events["rank"] >= 0) & (events["rank"] < profile.job.n_ranks)]
    calls, kind = np.unique(events["call"], return_inverse=True)
    start_s = events["t_ns"] * 1e-9 - rank_offsets_s(profile)[events["rank"]]
    end_s = start_s + events["duration_ns"] * 1e-9
    return CallRows([text(call) for call in calls], kind, events["rank"], start_s, end_s, events["bytes"])


def timed_calls(
    rows: CallRows, by_call: Mapping[str, Rounds], call_sites: Table, n_ranks: int
) -> list[TimedCalls]:
    """The collective calls among `rows`, each with its share of the traffic.

    The bytes that a rank sends in calls of one function are divided among these calls in proportion to their
    buffers. The share of calls that the trace lost is left out.
    """
    kinds = np.array([collective_of(name) for name in rows.names], dtype=object)[rows.kind]
    n_counted = {name: np.zeros(n_ranks) for name in by_call}
    for row in call_sites:
        name = collective_of(text(row["call"]))
        if name in n_counted and 0 <= row["rank"] < n_ranks:
            n_counted[name][row["rank"]] += row["n"]
    timed = []
    for name, traffic in by_call.items():
        selected = kinds == name
        rank, n_bytes = rows.rank[selected].astype(np.int64), rows.n_bytes[selected].astype(np.float64)
        n_calls, sums = np.bincount(rank, minlength=n_ranks), np.bincount(rank, n_bytes, n_ranks)
        share = np.where(
            sums[rank] > 0, n_bytes / np.maximum(sums[rank], 1), 1 / np.maximum(n_calls[rank], 1)
        )
        traced_frac = np.minimum(n_calls / np.maximum(n_counted[name], 1), 1.0)
        timed.append(
            TimedCalls(traffic, rank, rows.start_s[selected], rows.end_s[selected], share * traced_frac[rank])
        )
    return timed


def rank_offsets_s(profile: Profile) -> Floats:
    """Clock of each rank's node minus the first node's clock, s; 0 if unknown."""
    offsets_s = np.zeros(profile.job.n_ranks)
    ranks = profile.tables["ranks"]
    known = ranks[(ranks["rank"] >= 0) & (ranks["rank"] < len(offsets_s))]
    offsets_s[known["rank"]] = node_offsets_s(profile, known)
    return offsets_s


def node_offsets_s(profile: Profile, rows: Table) -> Floats:
    """Clock of the node of each row minus the first node's clock, s; 0 if unknown."""
    offsets_s = np.append(np.nan_to_num(profile.tables["nodes"]["clock_offset_s"]), 0.0)
    is_known = (rows["i_node"] >= 0) & (rows["i_node"] < len(offsets_s) - 1)
    return offsets_s[np.where(is_known, rows["i_node"], -1)]
