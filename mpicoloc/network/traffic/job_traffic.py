"""The traffic of a job, from what its profile recorded: messages, collectives, parts, one-sided calls."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpicoloc.core.tables import N_SIZE_CLASSES, Table, text
from mpicoloc.core.traffic import Exchange, Traffic, TrafficSum, total
from mpicoloc.errors import DataError
from mpicoloc.network.traffic import intercomm, libnbc
from mpicoloc.network.traffic.mpich import MPICH
from mpicoloc.network.traffic.openmpi import OpenMPI, OpenMPI5
from mpicoloc.network.traffic.schedule import Collective, Library

Array = NDArray[Any]
Numbers = tuple[Array, Array]
_NAME = re.compile(r"(?:P?MPIX?_)?(I?)([a-zA-Z]\w*?)(_init)?(?:_c)?")
_OTHER_MPICH = re.compile(r"version:\s*(?!4\.0)\d")
_UNEVEN = ("allgatherv", "reduce_scatter")
_WITH_PARTS = ("gatherv", "scatterv", "alltoallv", "alltoallw")
PARTS = ""
_N_ROWS = 1 << 24
"""Rows after which the parts of a sum are added up, so that they need not all be in memory."""
_NONBLOCKING = "between two groups of ranks, collectives that do not block are taken for blocking ones"


@dataclass(frozen=True)
class JobTraffic:
    """Traffic of a job.

    Attributes
    ----------
    traffic : TrafficSum
        All of it.
    n_unknown : int
        Collectives that are not in it.
    dropped_bytes : int
        Bytes that ranks gave to, or took from, nobody knows whom: spawned jobs, and rows for which the tables
        had no room. What the other side knows of these is in the traffic all the same.
    notes : tuple of str
        What is assumed, and what is missing.
    by_call : mapping of str to TrafficSum
        Of it that of each collective function, by its name as in `Collective`; `PARTS`: of all those in which
        each rank tells its own parts.
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

    Parameters
    ----------
    tables : mapping
        Tables of its profile: ``peers``, ``collectives``, ``parts``, ``groups``, ``ranks``.
    n_ranks : int
        Ranks of the job.
    mpi_library : str
        What the library calls itself.
    hosts : array_like of int, shape (n_ranks,), optional
        Host of each rank, for MPICH, which lets the ranks of a host act as one; None: as the job ran.

    Returns
    -------
    JobTraffic

    Raises
    ------
    DataError
        If there are not as many hosts as ranks.
    """
    library, notes = library_of(mpi_library)
    nodes = _nodes(tables["ranks"], n_ranks) if hosts is None else np.asarray(hosts)
    if len(nodes) != n_ranks:
        raise DataError(f"the placement has hosts for {len(nodes)} ranks, the job has {n_ranks}")
    parts = _parts(tables["parts"], n_ranks)
    sparse: defaultdict[str, _Sum] = defaultdict(lambda: _Sum(n_ranks))
    exchanges: defaultdict[str, list[Exchange]] = defaultdict(list)
    n_unknown = int(tables["ranks"]["n_collective_overflow"].sum())
    members = members_of(tables["groups"], n_ranks)
    for kind in _calls(tables["collectives"]):
        name = kind.call.name
        if not _add(kind, members, nodes, library, sparse[name], exchanges[name]):
            n_unknown += kind.n
        elif kind.to_group and not kind.call.blocks and _NONBLOCKING not in notes:
            notes.append(_NONBLOCKING)
    dropped_bytes = _dropped_bytes(tables, n_ranks)
    by_call = {name: TrafficSum(n_ranks, (sparse[name].total(), *exchanges[name])) for name in sparse}
    by_call[PARTS] = TrafficSum(n_ranks, (parts,))
    pairs = [point_to_point(tables["peers"], n_ranks), parts, *(one.total() for one in sparse.values())]
    traffic = TrafficSum(n_ranks, (total(n_ranks, pairs), *itertools.chain(*exchanges.values())))
    found = (*notes, *_missing(n_unknown, dropped_bytes))
    return JobTraffic(traffic, n_unknown, found, dropped_bytes, by_call)


def kind_of(call: str) -> str:
    """Under which name `JobTraffic.by_call` has what an MPI function moves, if it is a collective one."""
    name = _base(call.removesuffix("_c"))[0]
    return PARTS if name.startswith("neighbor_") or name in _WITH_PARTS else name


def _missing(n_unknown: int, dropped_bytes: int) -> Iterator[str]:
    """What is not in the traffic, in words."""
    if n_unknown:
        yield (
            f"{n_unknown:,} collectives are not in the traffic: with ranks outside the job, or beyond "
            "the tables"
        )
    if dropped_bytes:
        yield (
            f"{dropped_bytes:,} bytes to or from unknown ranks are not in the traffic, unless the "
            "other side recorded them: of spawned jobs, or beyond the tables"
        )


def _dropped_bytes(tables: Mapping[str, Table], n_ranks: int) -> int:
    total_bytes = 0
    for name, columns in (("peers", ("bytes", "recv_bytes")), ("parts", ("bytes",))):
        unknown = tables[name][~_known(tables[name], n_ranks)]
        total_bytes += sum(int(unknown[column].sum()) for column in columns)
    return total_bytes


def _known(rows: Table, n_ranks: int) -> Array:
    """Which rows name two ranks of the job."""
    inside = [(rows[end] >= 0) & (rows[end] < n_ranks) for end in ("src", "dst")]
    return np.asarray(inside[0] & inside[1])


def _add(
    kind: _Kind,
    members: Mapping[int, Array],
    nodes: Array,
    library: Library,
    to: _Sum,
    exchanges: list[Exchange],
) -> bool:
    """Add calls of one kind; of messages between all pairs not the pairs. False: they are not known."""
    known = [members.get(group) for group in (kind.group, kind.to_group) if group]
    if not kind.group or any(ranks is None for ranks in known) or kind.call.name not in libnbc.ALGORITHMS:
        return False
    ranks = [group for group in known if group is not None]
    call = _of(kind.call, ranks[0], nodes)
    if len(ranks) > 1:
        return _add_half(kind, call, ranks, nodes, library, to)
    if call.n_bytes and call.n_ranks > 1 and library.is_exchange(call):
        n_bytes = kind.n_bytes if call.counts is None else kind.n_bytes / call.n_ranks
        exchanges.append(Exchange(to.n_ranks, ranks[0], n_bytes, kind.n))
    else:
        call = call.but(call.name, counts=call.counts, root=min(call.root, call.n_ranks - 1))
        to.add(_scaled(library.messages(call).traffic(), call, kind).renumbered(ranks[0], to.n_ranks))
    return True


def _add_half(
    kind: _Kind, call: Collective, ranks: list[Array], nodes: Array, library: Library, to: _Sum
) -> bool:
    """Add what one of two groups tells."""
    algorithms = intercomm.OPEN_MPI if isinstance(library, OpenMPI) else intercomm.MPICH
    if len(ranks[0]) * len(ranks[1]) > _N_ROWS or call.name not in algorithms:
        return False
    half = intercomm.Half(call, ranks[0], ranks[1], to.n_ranks, nodes)
    to.add(_scaled(intercomm.traffic(half, library, algorithms), call, kind))
    return True


def library_of(mpi_library: str) -> tuple[Library, list[str]]:
    """The library by the name it has given itself, and what is assumed of it."""
    name = mpi_library.strip().lower()
    if name.startswith("open mpi"):
        return (OpenMPI5() if name.startswith("open mpi v5") else OpenMPI()), []
    is_known = name.startswith("mpich") and _OTHER_MPICH.search(name) is None
    return MPICH(), [] if is_known else [
        f"collectives as MPICH 4.0 makes them are assumed of {mpi_library!r}"
    ]


def point_to_point(peers: Table, n_ranks: int) -> Traffic:
    """What ranks sent each other, and took from each other without the other's help.

    Notes
    -----
    A message is counted by both ranks, unless one of them lost sight of it. So of the bytes that one says it
    has sent and those that the other says it has received the larger number is right. What is put only the
    one tells that gives, what is got only the one that takes.
    """
    known = peers[_known(peers, n_ranks)]
    src, dst = known["src"], known["dst"]
    column = {name: known[name].astype(np.int64) for name in known.dtype.names or ()}
    puts = Traffic.of(n_ranks, src, dst, column["put_bytes"], column["n_put"])
    gets = Traffic.of(n_ranks, dst, src, column["got_bytes"], column["n_got"])
    sent = column["n"] - column["n_put"], column["bytes"] - column["put_bytes"]
    received = column["n_recv"] - column["n_got"], column["recv_bytes"] - column["got_bytes"]
    return total(n_ranks, [_of_both(column, sent, received, n_ranks), puts, gets])


def _of_both(column: Mapping[str, Array], sent: Numbers, received: Numbers, n_ranks: int) -> Traffic:
    """Messages by the larger number of both sides, for each pair of ranks and size class."""
    sides = []
    for one, other, numbers in (("src", "dst", sent), ("dst", "src", received)):
        sides.append(
            ((column[one] * n_ranks + column[other]) * N_SIZE_CLASSES + column["size_class"], numbers)
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


def _parts(parts: Table, n_ranks: int) -> Traffic:
    known = parts[_known(parts, n_ranks)]
    n_bytes, n = known["bytes"].astype(np.int64), known["n"].astype(np.int64)
    return Traffic.of(n_ranks, known["src"], known["dst"], n_bytes, n)


def members_of(groups: Table, n_ranks: int) -> dict[int, Array]:
    """Ranks of each group, in its order; groups that cannot be are left out."""
    found = {}
    for runs in _alike(groups, groups["group"]):
        n = runs["n"].astype(np.int64)
        if np.any(n < 1) or n.sum() > n_ranks:
            continue
        within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        ranks = np.repeat(runs["first"].astype(np.int64), n) + within * np.repeat(
            runs["stride"].astype(np.int64), n
        )
        if ranks.min() >= 0 and ranks.max() < n_ranks and len(np.unique(ranks)) == len(ranks):
            found[int(runs["group"][0])] = ranks
    return found


def _alike(rows: Table, keys: Array) -> list[Table]:
    """Rows of equal keys, in their order."""
    if len(rows) == 0:
        return []
    _, kind = np.unique(keys, return_inverse=True)
    order = np.argsort(kind, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(kind[order])) + 1)


def _nodes(ranks: Table, n_ranks: int) -> Array:
    """Node of each rank; of one that is not in the profile, a node of its own."""
    nodes = -1 - np.arange(n_ranks)
    known = ranks[(ranks["rank"] >= 0) & (ranks["rank"] < n_ranks) & (ranks["i_node"] >= 0)]
    nodes[known["rank"]] = known["i_node"]
    return nodes


def _base(call: str) -> tuple[str, bool]:
    """Name of the collective, and whether it blocks. Persistent ones are the library's nonblocking ones."""
    found = _NAME.fullmatch(call)
    return (found.group(2).lower(), not found.group(1) and not found.group(3)) if found else (call, True)


@dataclass(frozen=True)
class _Kind:
    """Calls that are alike: on which groups, how often, and with how many bytes in all."""

    call: Collective
    group: int
    to_group: int
    n: int
    n_bytes: int


_KEYS = {"call": "U40", "group": "u8", "to_group": "u8", "root": "i4", "size_class": "i2"}


def _calls(rows: Table) -> Iterator[_Kind]:
    """Each kind of call."""
    keys = np.empty(len(rows), dtype=list(_KEYS.items()))
    for name in _KEYS:
        keys[name] = rows[name] if name != "call" else [text(call).removesuffix("_c") for call in rows[name]]
    for mine in _alike(rows, keys):
        first = mine[mine["own_rank"] == 0]
        n, n_bytes = int(first["n"].sum()), int(first["bytes"].sum())
        if n == 0 or n_bytes < 0:
            continue
        name, blocks = _base(text(first["call"][0]))
        item_bytes = max(int(first["item_bytes"].max()), 1)
        counts = _own_parts(mine, item_bytes) if name in _UNEVEN else None
        to_group = int(first["to_group"][0])
        if to_group and counts is not None:  # else what the group gets
            n_bytes = int(mine["own_bytes"].sum())
        n_items = max(round(n_bytes / n / item_bytes), 1) if n_bytes else 0
        call = Collective(name, 0, n_items, item_bytes, max(int(first["root"][0]), 0), counts, blocks=blocks)
        yield _Kind(call, int(first["group"][0]), to_group, n, n_bytes)


def _own_parts(rows: Table, item_bytes: int) -> Array:
    """Mean items of each rank's own part; the ranks that told none have none."""
    own = rows["own_rank"].astype(np.int64)
    n_bytes = np.bincount(own, weights=rows["own_bytes"])
    n = np.bincount(own, weights=rows["n"])
    return np.round(n_bytes / np.maximum(n, 1) / item_bytes).astype(np.int64)


def _of(call: Collective, ranks: Array, nodes: Array) -> Collective:
    """The call on these ranks."""
    p = len(ranks)
    counts = (
        None if call.counts is None else np.resize(np.append(call.counts, np.zeros(p, dtype=np.int64)), p)
    )
    return call.but(call.name, n_ranks=p, counts=counts, nodes=nodes[ranks])


def _scaled(one: Traffic, call: Collective, kind: _Kind) -> Traffic:
    """All calls of a kind: that of mean size, as often as they were made; its bytes are theirs."""
    items = call.n_items if call.counts is None else int(call.counts.sum())
    expected = kind.n * items * call.item_bytes
    ratio = kind.n if expected in (0, kind.n_bytes) else kind.n * (kind.n_bytes / expected)
    return Traffic(one.n_ranks, one.src, one.dst, one.n_bytes * ratio, one.n_messages * kind.n)


class _Sum:
    """Traffic added up now and then."""

    def __init__(self, n_ranks: int) -> None:
        self.n_ranks = n_ranks
        self.parts: list[Traffic] = []

    def add(self, part: Traffic) -> None:
        """Add one part."""
        self.parts.append(part)
        if sum(map(len, self.parts)) > _N_ROWS:
            self.parts = [self.total()]

    def total(self) -> Traffic:
        """The sum of all parts."""
        return total(self.n_ranks, self.parts)
