"""Convert collectives of a trace to operations of its ranks: find group, root and sizes, then messages."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mpicoloc.core.profile import Array, Table, text
from mpicoloc.errors import DataError
from mpicoloc.network.traffic import collective
from mpicoloc.network.traffic.collective import Collective, IntercommSide, Library, Messages, pairwise
from mpicoloc.network.traffic.openmpi import OpenMPI
from mpicoloc.replay.programs import patterns
from mpicoloc.replay.programs.builder import Program, ProgramBuilder, blocks, of_collective
from mpicoloc.replay.programs.recorded import PlacedCollective

Pair = tuple[int, int]


@dataclass(frozen=True)
class CollectiveCalls:
    """The collective calls of one rank, in order.

    Parameters
    ----------
    i_call : ndarray of int, shape (n,)
        Index of the call among all calls of the rank.
    function : sequence of str
        Name as in a trace, for example ``MPI_Allreduce``.
    begin_ns, end_ns, n_bytes : ndarray of int, shape (n,)
    """

    i_call: Array
    function: Sequence[str]
    begin_ns: Array
    end_ns: Array
    n_bytes: Array


@dataclass(frozen=True)
class Instance:
    """One collective: its group, and the index of each member's call; arrays are in the group's order."""

    function: str
    group: int
    i_call: Array
    begin_ns: Array
    end_ns: Array
    n_bytes: Array


def align(
    calls: Sequence[CollectiveCalls],
    members: Mapping[int, Array],
    groups_of: Mapping[str, Sequence[int]],
    is_known_size: Callable[[Instance], bool] = lambda instance: True,
    n_known: Mapping[tuple[str, int], int] = MappingProxyType({}),
) -> list[Instance]:
    """All collectives of a job, in an order that agrees with each rank's calls.

    A trace does not name communicators, but all members of a communicator call its collectives in the same
    order. So a group has a collective if the next call of every member is the same function, and the group is
    known to have called that function. If several groups qualify, one that is known to have called the
    function with this size is preferred; next, a group that has fewer matches so far than known calls; next,
    the group whose members were in the call together for longest.

    Raises `DataError` if a call belongs to no collective; the error names the first such call.
    """
    aligner = _Aligner(calls, members, groups_of, is_known_size, n_known)
    instances = aligner.run()
    for rank, own in enumerate(calls):
        if aligner.next[rank] < len(own.function):
            i = aligner.next[rank]
            raise DataError(
                f"no other rank made the call that matches call {int(own.i_call[i])} of rank {rank}, "
                f"{own.function[i]}: the trace lacks calls; run the job with --trace all"
            )
    return instances


class _Aligner:
    def __init__(
        self,
        calls: Sequence[CollectiveCalls],
        members: Mapping[int, Array],
        groups_of: Mapping[str, Sequence[int]],
        is_known_size: Callable[[Instance], bool],
        n_known: Mapping[tuple[str, int], int],
    ) -> None:
        self._is_known_size, self._n_left = is_known_size, dict(n_known)
        self.calls, self.members = calls, {group: ranks.tolist() for group, ranks in members.items()}
        self.next = [0] * len(calls)
        self._of_rank: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        for function, groups in groups_of.items():
            for group in groups:
                for rank in self.members[group]:
                    self._of_rank[rank, function].append(group)
        self._ready: list[tuple[bool, bool, int, int, str]] = []

    def run(self) -> list[Instance]:
        """Take one collective after another until no group has a complete one."""
        for rank in range(len(self.calls)):
            self._look(rank)
        instances = []
        while self._ready:
            *key, group, function = heapq.heappop(self._ready)
            # Its members may have advanced after this entry was pushed.
            if not self._is_complete(group, function) or tuple(key) != self._key(group, function):
                continue
            instances.append(self._instance(group, function))
            if (function, group) in self._n_left:
                self._n_left[function, group] -= 1
            for rank in self.members[group]:
                self.next[rank] += 1
            for rank in self.members[group]:
                self._look(rank)
        return instances

    def _look(self, rank: int) -> None:
        """Push the collectives that the next call of a rank completes."""
        function = self._next_function(rank)
        for group in self._of_rank.get((rank, function), ()):
            if self._is_complete(group, function):
                heapq.heappush(self._ready, (*self._key(group, function), group, function))

    def _next_function(self, rank: int) -> str:
        own, i = self.calls[rank].function, self.next[rank]
        return own[i] if i < len(own) else ""

    def _is_complete(self, group: int, function: str) -> bool:
        return all(self._next_function(rank) == function for rank in self.members[group])

    def _key(self, group: int, function: str) -> tuple[bool, bool, int]:
        """Key for sorting groups: whether the size is unknown, whether the function is called too often, and
        the time from the first end to the last start. The smallest key comes first.
        """
        instance = self._instance(group, function)
        apart_ns = int(instance.begin_ns.max()) - int(instance.end_ns.min())
        is_too_often = self._n_left.get((function, group), 1) < 1
        return not self._is_known_size(instance), is_too_often, apart_ns

    def _instance(self, group: int, function: str) -> Instance:
        """The collective formed by the next calls of a group's members."""
        at = [(self.calls[rank], self.next[rank]) for rank in self.members[group]]
        columns = [
            np.array([getattr(own, name)[i] for own, i in at], np.int64)
            for name in ("i_call", "begin_ns", "end_ns", "n_bytes")
        ]
        return Instance(function, group, *columns)


_ROOTED_INTERCOMM = ("bcast", "reduce", "gather", "scatter")
_UNEVEN_INTERCOMM = ("allgatherv", "reduce_scatter")


def pairs_of(rows: Table, members: Mapping[int, Array]) -> dict[int, Pair]:
    """Pairs of groups with collectives between them, each with a number that no group has."""
    told = {(int(row["group"]), int(row["to_group"])) for row in rows if int(row["to_group"])}
    found = {(min(pair), max(pair)) for pair in told if members.keys() >= set(pair)}
    first = max(members, default=0) + 1
    return {first + i: pair for i, pair in enumerate(sorted(found))}


class IntercommBlocks:
    """Operations of collectives between two groups.

    Parameters
    ----------
    rows : Table
        The profile's ``collectives``, with one side of a call per group.
    pairs : mapping of int to (int, int)
        See `pairs_of`.
    members : mapping of int to ndarray of int
        Ranks of each group.
    library : Library
        Library of the recorded run.
    hosts : ndarray of int, shape (n_ranks,)
        Host of each rank.
    """

    def __init__(
        self,
        rows: Table,
        pairs: Mapping[int, Pair],
        members: Mapping[int, Array],
        library: Library,
        hosts: Array,
    ) -> None:
        self.pairs, self._members, self._library, self._hosts = pairs, members, library, hosts
        is_open_mpi = isinstance(library, OpenMPI)
        self._algorithms = collective.OPEN_MPI if is_open_mpi else collective.MPICH
        self._halves: dict[tuple[str, int, int], list[Any]] = {}
        for row in rows:
            if int(row["to_group"]):
                key = (text(row["call"]), int(row["group"]), int(row["to_group"]))
                self._halves.setdefault(key, []).append(row)
        self._moved: defaultdict[tuple[str, Pair], list[int]] = defaultdict(list)

    def add(self, instance: Instance, name: str) -> None:
        """Register a call. All calls must be registered before `of` is used: the profile has only their total
        size.
        """
        way = self._directions(instance, name)[0]
        self._moved[instance.function, way].append(int(instance.n_bytes.sum()))

    def of(self, instance: Instance, name: str, comm: int) -> Sequence[Program]:
        """Operations of each member, the pair's first group first.

        Raises `DataError` if the messages of such a collective are unknown.
        """
        if name not in self._algorithms:
            raise DataError(
                f"call {int(instance.i_call[0])} of rank {int(self._both(instance)[0])}, {instance.function} "
                "between two groups of ranks, cannot be replayed, because its messages are unknown: record a "
                "run without it"
            )
        halves = [self._half(instance, name, pair) for pair in self._directions(instance, name)]
        n_ranks = len(self._hosts)
        merged = Messages(n_ranks)
        # Interleave the phases, because both groups work at the same time.
        for phase in zip_longest(*halves):
            for messages in phase:
                if messages is not None:
                    merged.include(messages)
        made = blocks(merged, np.arange(n_ranks), comm, name, is_blocking(instance.function))
        return [made[rank] for rank in self._both(instance).tolist()]

    def _both(self, instance: Instance) -> Array:
        return self._members[instance.group]

    def _directions(self, instance: Instance, name: str) -> list[Pair]:
        """Local and remote group of each side with messages; the root is in the remote group."""
        first, second = self.pairs[instance.group]
        if name not in _ROOTED_INTERCOMM:
            return [(first, second), (second, first)]
        moved = np.split(instance.n_bytes, [len(self._members[first])])
        n_moved = [int((side > 0).sum()) for side in moved]
        is_first_local = n_moved[0] > n_moved[1] or (
            n_moved[0] == n_moved[1] and (instance.function, first, second) in self._halves
        )
        return [(first, second) if is_first_local else (second, first)]

    def _half(self, instance: Instance, name: str, pair: Pair) -> list[Messages]:
        local, remote = (self._members[group] for group in pair)
        rows = self._halves.get((instance.function, *pair), [])
        n = sum(int(row["n"]) for row in rows if int(row["own_rank"]) == 0)
        if name != "barrier" and not n:
            return []
        item_bytes = max((int(row["item_bytes"]) for row in rows), default=1) or 1
        part = self._relative_size(instance, name) / max(n, 1)
        counts = None
        if name in _UNEVEN_INTERCOMM:
            own = np.zeros(len(local))
            for row in rows:
                own[int(row["own_rank"])] += int(row["own_bytes"])
            counts = np.rint(own * part / item_bytes).astype(np.int64)
        whole = sum(int(row["bytes"]) for row in rows if int(row["own_rank"]) == 0)
        n_items = round(whole * part / item_bytes)
        call = Collective(name, len(local), n_items, item_bytes, self._root(instance, pair), counts)
        side = IntercommSide(call, local, remote, len(self._hosts), np.asarray(self._hosts))
        if name != "barrier" and not call.parts.sum():
            return []
        return self._algorithms[name](side, self._library)

    def _relative_size(self, instance: Instance, name: str) -> float:
        """Size of this call relative to the mean call, by the bytes that all of its ranks moved."""
        moved = self._moved[instance.function, self._directions(instance, name)[0]]
        mean = sum(moved) / len(moved)
        return float(instance.n_bytes.sum() / mean) if mean else 1.0

    def _root(self, instance: Instance, pair: Pair) -> int:
        """The only rank of the remote group that moved any bytes."""
        n_first = len(self._members[self.pairs[instance.group][0]])
        is_second = pair[1] == self.pairs[instance.group][1]
        remote = instance.n_bytes[n_first:] if is_second else instance.n_bytes[:n_first]
        return int(remote.argmax())


def rooted_blocks(n_bytes: Array, root: int) -> tuple[Array, int]:
    """Parts of a gather or scatter, and its root. The root's bytes are the whole buffer plus its own part.

    Shapes: `n_bytes` (n_ranks,).
    """
    root = root if root >= 0 else int(n_bytes.argmax())
    parts = n_bytes.copy()
    parts[root] = 0
    parts[root] = max(0, (int(n_bytes[root]) - int(parts.sum())) // 2)
    return parts, root


def own_blocks(n_bytes: Array) -> Array:
    """Parts of an allgather or reduce_scatter; each rank's bytes are the whole buffer plus its own part."""
    whole = int(n_bytes.sum()) // (len(n_bytes) + 1)
    return np.maximum(n_bytes - whole, 0)


def reduced(n_bytes: Array, root: int) -> tuple[int, int]:
    """Buffer size of a reduction, and its root. The root's bytes have the buffer twice: input and result."""
    root = root if root >= 0 else int(n_bytes.argmax())
    others = np.delete(n_bytes, root)
    return (int(others.max()) if len(others) else int(n_bytes[root]) // 2), root


NAME = re.compile(
    r"MPI_(I?)(barrier|bcast|reduce|allreduce|alltoall[vw]?|gatherv?|scatterv?|allgatherv?"
    r"|reduce_scatter(?:_block)?|(?:ex)?scan)(?:_c)?",
    re.IGNORECASE,
)
"""Matches functions that are replayed; its groups are ``I`` (if another call completes the collective) and
the name of the collective."""
LEFT_OUT = re.compile(r"MPI_.*(reduce|gather|scatter|alltoall|bcast|barrier|scan).*_init(_c)?", re.IGNORECASE)
_EQUAL_PAIRS_MIN = 16
"""From this number of ranks on, an all-to-all of the whole job is one loop that all ranks share."""
_OWN_SIZES = ("alltoallv", "alltoallw")
"""Collectives for which the profile has the bytes between each pair of ranks, summed over all calls."""
_OF_ONE_SIZE = ("bcast", "allreduce", "alltoall")
"""Collectives in which every rank moves the same number of bytes."""
_ROOTED = ("bcast", "reduce", "gather", "gatherv", "scatter", "scatterv")


def is_blocking(function: str) -> bool:
    """Whether a function completes its collective, rather than only starting it."""
    match = NAME.fullmatch(function)
    return match is None or not match[1]


def name_of(function: str) -> str:
    """The collective of a function, by its name in `Collective`."""
    match = NAME.fullmatch(function)
    assert match is not None
    return match[2].lower()


class CollectiveBlocks:
    """Operations of collectives, cached for similar calls.

    Parameters
    ----------
    tables : mapping of str to Table
        The profile's tables ``collectives`` and ``parts``.
    members : mapping of int to ndarray of int
        Ranks of each group.
    library : Library
        Library that chooses the algorithms.
    hosts : ndarray of int, shape (n_ranks,)
        Host of each rank; some algorithms depend on it.
    inter : IntercommBlocks, optional
        Collectives between two groups; the numbers of such pairs are in `members` as well.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        members: Mapping[int, Array],
        library: Library,
        hosts: Array,
        inter: IntercommBlocks | None = None,
    ) -> None:
        self._members, self._library, self._hosts, self._inter = members, library, hosts, inter
        self._number = {group: i for i, group in enumerate(sorted(members), 1)}
        self._rows = _rows_by_call(tables["collectives"])
        self._parts = tables["parts"]
        self._uneven_bytes = np.zeros(len(hosts), np.int64)
        self._known: dict[Any, Sequence[Program]] = {}

    def add(self, instances: Sequence[Instance]) -> None:
        """Register all instances; must precede `of`.

        The profile has the bytes between two ranks only summed over all calls of `Alltoallv` and `Alltoallw`.
        Each call gets a share of the summed bytes in proportion to the bytes that its ranks moved in the
        call. So the total of the moved bytes over all calls must be known first.
        """
        for instance in instances:
            if self._inter is not None and instance.group in self._inter.pairs:
                self._inter.add(instance, name_of(instance.function))
            elif name_of(instance.function) in _OWN_SIZES:
                np.add.at(self._uneven_bytes, self._members[instance.group], instance.n_bytes)

    def of(self, instance: Instance) -> Sequence[Program]:
        """Operations of each member of a collective that was passed to `add` before.

        Raises `DataError` if the profile lacks data about it.
        """
        if self._inter is not None and instance.group in self._inter.pairs:
            return self._inter.of(instance, name_of(instance.function), self._number[instance.group])
        call = self._call(instance)
        members = self._members[instance.group]
        counts = None if call.counts is None else call.counts.tobytes()
        key = (call.name, call.n_items, call.item_bytes, call.root, counts, call.is_blocking, instance.group)
        if call.name in _OWN_SIZES:
            return self._uneven(instance, members)
        if key not in self._known:
            self._known[key] = self._made(call, members, instance.group)
        return self._known[key]

    def is_known_size(self, instance: Instance) -> bool:
        """Whether the group is known to have called the function with a size of this power of two."""
        known = self._rows.get((instance.function, instance.group))
        if known is None or not known.size_classes:
            return True
        call = self._call(instance)
        if call.name in _OF_ONE_SIZE and instance.n_bytes.min() != instance.n_bytes.max():
            return False
        size = call.n_bytes if call.counts is None else int(call.counts.sum()) * call.item_bytes
        return size.bit_length() in known.size_classes

    def _made(self, call: Collective, members: Array, group: int) -> Sequence[Program]:
        p, is_all = len(members), len(members) == len(self._hosts)
        in_order = is_all and bool((members == np.arange(p)).all())
        if in_order and p >= _EQUAL_PAIRS_MIN and call.n_bytes and self._library.is_exchange(call):
            builder = ProgramBuilder()
            patterns.exchange(builder, p, call.n_bytes, self._number[group])
            return [of_collective(builder.build(), call.name, call.is_blocking)] * p
        messages = self._library.messages(call)
        return blocks(messages, members, self._number[group], call.name, call.is_blocking)

    def _call(self, instance: Instance) -> Collective:
        """The collective, from the bytes of its members' calls."""
        name, n_bytes = name_of(instance.function), instance.n_bytes
        p, root = len(n_bytes), self._root(instance) if name in _ROOTED else 0
        item_bytes = self._rows.get((instance.function, instance.group), _NOTHING).item_bytes
        sizes: int | Array = 0
        if name == "bcast":
            sizes = int(n_bytes.max())
        elif name == "reduce":
            sizes, root = reduced(n_bytes, root)
        elif name in ("allreduce", "scan", "exscan"):
            sizes = int(n_bytes.max()) // 2
        elif name == "alltoall":
            sizes = int(n_bytes.sum()) // (2 * p**2)
        elif name.startswith(("gather", "scatter")):
            sizes, root = rooted_blocks(n_bytes, root)
        elif name != "barrier" and name not in _OWN_SIZES:
            sizes = own_blocks(n_bytes)
        nodes = np.asarray(self._hosts)[self._members[instance.group]]
        return _in_items(name, p, sizes, item_bytes, max(root, 0), is_blocking(instance.function), nodes)

    def _root(self, instance: Instance) -> int:
        """The known root. If several are known, the one that ended first: other ranks wait for the root."""
        known = self._rows.get((instance.function, instance.group), _NOTHING).roots
        roots = [root for root in known if 0 <= root < len(instance.n_bytes)]
        if len(instance.n_bytes) == 1:
            return 0  # a single rank has no rows
        if not roots:
            if not instance.function.lower().removesuffix("_c").endswith("bcast"):
                return -1
            raise DataError(
                f"the profile lacks the root of {instance.function} (it was not recorded, or its "
                "table was full): record the job again with this mpicoloc"
            )
        return min(roots, key=lambda root: int(instance.end_ns[root]))

    def _uneven(self, instance: Instance, members: Array) -> Sequence[Program]:
        """An all-to-all with uneven parts, in the proportions of the parts summed over the whole job."""
        rows = self._parts[np.isin(self._parts["src"], members) & np.isin(self._parts["dst"], members)]
        place = {int(rank): i for i, rank in enumerate(members)}
        p = len(members)
        sizes = np.zeros((p, p))
        src, dst = ([place[int(rank)] for rank in rows[end]] for end in ("src", "dst"))
        np.add.at(sizes, (src, dst), rows["bytes"].astype(np.float64))
        share = instance.n_bytes / np.maximum(self._uneven_bytes[members], 1)
        n_bytes = np.rint(sizes * (share[:, None] + share) / 2).astype(np.int64)
        name, is_done = name_of(instance.function), is_blocking(instance.function)
        return blocks(pairwise(n_bytes), members, self._number[instance.group], name, is_done)


def _in_items(
    name: str, p: int, sizes: int | Array, item_bytes: int, root: int, is_blocking: bool, nodes: Array
) -> Collective:
    """The collective with its sizes in items; in bytes if a size is not a multiple of an item."""
    item = item_bytes if np.all(np.asarray(sizes) % item_bytes == 0) else 1
    if isinstance(sizes, int):
        return Collective(name, p, sizes // item, item, root, is_blocking=is_blocking, nodes=nodes)
    parts = sizes // item
    if (parts == parts[0]).all() and not name.endswith("v") and name != "reduce_scatter":
        return Collective(name, p, int(parts[0]), item, root, is_blocking=is_blocking, nodes=nodes)
    if name in ("gather", "scatter", "allgather", "reduce_scatter_block"):
        name = {"reduce_scatter_block": "reduce_scatter"}.get(name, f"{name}v")
    return Collective(name, p, 0, item, root, parts, is_blocking=is_blocking, nodes=nodes)


def groups_of(
    tables: Mapping[str, Table],
    names: Sequence[str],
    members: Mapping[int, Array],
    pairs: Mapping[int, tuple[int, int]] = MappingProxyType({}),
) -> dict[str, list[int]]:
    """Groups that called each function, according to the profile.

    Raises `DataError` if two groups called a collective together and the profile lacks the ranks of one
    group.
    """
    number = {pair: i for i, pair in pairs.items()}
    groups_of_function: dict[str, list[int]] = {}
    for row in tables["collectives"]:
        name = text(row["call"])
        if not NAME.fullmatch(name):
            continue
        group = _group_or_pair(row, number)
        groups = groups_of_function.setdefault(name, [])
        if (group in members or group in pairs) and group not in groups:
            groups.append(group)
    closed_groups = _smallest_closed_groups(tables["parts"], members)
    return {name: groups_of_function.get(name) or closed_groups for name in names if NAME.fullmatch(name)}


def n_calls_of(rows: Table, pairs: Mapping[int, tuple[int, int]]) -> dict[tuple[str, int], int]:
    """Number of calls of each function by each group, or pair of groups, in the profile's ``collectives``."""
    halves: defaultdict[tuple[str, int], defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    number = {pair: i for i, pair in pairs.items()}
    for row in rows:
        if int(row["own_rank"]) == 0 and NAME.fullmatch(name := text(row["call"])):
            halves[name, _group_or_pair(row, number)][int(row["group"])] += int(row["n"])
    # A call with a root is recorded only by the group without the root.
    return {
        key: sum(own.values()) if name_of(key[0]) in _ROOTED else max(own.values())
        for key, own in halves.items()
    }


def _group_or_pair(row: Any, number: Mapping[tuple[int, int], int]) -> int:
    """The group in a row of ``collectives``, or the number of the pair if the row names two groups."""
    group, other = int(row["group"]), int(row["to_group"])
    if not other:
        return group
    pair = (min(group, other), max(group, other))
    if pair not in number:
        raise DataError(
            f"{text(row['call'])} was called between two groups whose ranks the profile does not list: "
            "record the job again with this mpicoloc"
        )
    return number[pair]


def persistent_bytes(rows: Table, members: Mapping[int, Array]) -> int:
    """Bytes of all ranks in persistent collectives, from the profile's ``collectives``."""
    return sum(
        int(row["bytes"]) * len(members.get(int(row["group"]), ()))
        for row in rows
        if int(row["own_rank"]) == 0 and LEFT_OUT.fullmatch(text(row["call"]))
    )


def _smallest_closed_groups(parts: Table, members: Mapping[int, Array]) -> list[int]:
    """Disjoint groups, smallest first. Their ranks sent uneven parts only to ranks of the same group."""
    pairs = np.unique(np.stack([parts["src"], parts["dst"]]), axis=1)
    chosen = []
    taken: set[int] = set()
    for group, ranks in sorted(members.items(), key=lambda item: len(item[1])):
        own = set(ranks.tolist())
        partners = set(pairs[1][np.isin(pairs[0], ranks)].tolist())
        if not own & taken and partners <= own:
            chosen.append(group)
            taken |= own
    return chosen


class _Known(NamedTuple):
    """Properties of a function's calls on a group, according to the profile."""

    item_bytes: int = 1
    roots: tuple[int, ...] = ()
    size_classes: tuple[int, ...] = ()


_NOTHING = _Known()


def _rows_by_call(rows: Table) -> dict[tuple[str, int], _Known]:
    known_of_call: dict[tuple[str, int], _Known] = {}
    for row in rows:
        if int(row["to_group"]):
            continue
        key = (text(row["call"]), int(row["group"]))
        item_bytes, roots, classes = known_of_call.get(key, _NOTHING)
        known_of_call[key] = _Known(
            max(item_bytes, int(row["item_bytes"])),
            tuple(dict.fromkeys((*roots, int(row["root"])))),
            tuple(dict.fromkeys((*classes, int(row["size_class"])))),
        )
    return known_of_call


# Neighbourhood collectives of a trace as operations of its ranks.
#
# A trace has the bytes of each call, and the profile has the bytes between each two ranks, summed over all
# calls. These show which ranks are neighbours; a call's share of their bytes follows from the function.


NEIGHBOUR_NAME = re.compile(r"MPI_(I?)neighbor_(allgatherv?|alltoall[vw]?)(?:_c)?", re.IGNORECASE)
SHARES_PARTS = re.compile(
    r"MPI_I?(alltoall[vw]|gatherv|scatterv)(_init)?(_c)?|MPI_neighbor_.*_init(_c)?", re.IGNORECASE
)
"""Functions that have their bytes between ranks in the same table as neighbourhood collectives."""
_COMM = -2
_NONE = np.zeros(0, np.int64)
_NO_CALLS = CollectiveCalls(_NONE, (), _NONE, _NONE, _NONE)


@dataclass(frozen=True)
class _Edges:
    """Pairs of sender and receiver: `n_messages` in each call, `n_bytes` summed over all calls."""

    src: Array
    dst: Array
    n_messages: Array
    n_bytes: Array

    def degree(self, end: str, n_ranks: int) -> Array:
        """Number of messages that each rank sends (``src``) or receives (``dst``) in one call."""
        return np.bincount(getattr(self, end), self.n_messages, n_ranks).astype(np.int64)


def placed(calls: Sequence[CollectiveCalls], parts: Table) -> list[PlacedCollective]:
    """Every neighbourhood collective of a job, with the operations of its ranks.

    Ranks in different connected components, for example of two disjoint communicators, can call different
    functions.

    Raises `DataError` if connected ranks do not call the same functions in the same order, or had several
    sets of neighbours.
    """
    src, dst = parts["src"].astype(np.int64), parts["dst"].astype(np.int64)
    is_known = (np.minimum(src, dst) >= 0) & (np.maximum(src, dst) < len(calls))
    parts, src, dst = parts[is_known], src[is_known], dst[is_known]
    component = _components(src, dst, len(calls))
    found = []
    for i in np.unique(component):
        own = [each if component[rank] == i else _NO_CALLS for rank, each in enumerate(calls)]
        found += _placed_of_component(own, parts[component[src] == i])
    return found


def _components(src: Array, dst: Array, n_ranks: int) -> Array:
    """The lowest rank in the connected component of each rank.

    Written without scipy, which a replay does not need otherwise.
    """
    lowest = np.arange(n_ranks)
    while True:
        of_edge = np.minimum(lowest[src], lowest[dst])
        lower = lowest.copy()
        np.minimum.at(lower, src, of_edge)
        np.minimum.at(lower, dst, of_edge)
        lower = lower[lower]
        if np.array_equal(lower, lowest):
            return lowest
        lowest = lower


def _placed_of_component(calls: Sequence[CollectiveCalls], parts: Table) -> list[PlacedCollective]:
    """Do what `placed` does for one connected component."""
    callers = np.array([rank for rank, own in enumerate(calls) if len(own.function)], np.int64)
    if not len(callers):
        return []
    _check_alike(calls, callers)
    edges = _edges(calls, parts)
    matches = map(NEIGHBOUR_NAME.fullmatch, calls[callers[0]].function)
    kinds = [(match[2].lower(), not match[1]) for match in matches if match]
    sizes = _sizes(calls, edges, [what for what, _ in kinds])
    found = []
    for k, (what, is_done) in enumerate(kinds):
        found.append(
            PlacedCollective(
                callers,
                np.array([calls[rank].i_call[k] for rank in callers]),
                np.array([calls[rank].begin_ns[k] for rank in callers]),
                is_done,
                [
                    of_collective(_block(edges, sizes[k], rank), f"neighbor_{what}", is_done)
                    for rank in callers.tolist()
                ],
            )
        )
    return found


def _check_alike(calls: Sequence[CollectiveCalls], callers: Array) -> None:
    first = list(calls[callers[0]].function)
    for rank in callers.tolist():
        own = list(calls[rank].function)
        if own == first:
            continue
        shorter = min(len(own), len(first))
        k = next((k for k in range(shorter) if own[k] != first[k]), shorter)
        one, other = (rank, int(callers[0])) if k < len(own) else (int(callers[0]), rank)
        call = list(calls[one].function)[k]
        raise DataError(
            f"rank {other} did not make the call that matches call {int(calls[one].i_call[k])} of rank "
            f"{one}, {call}: neighbourhood collectives can be replayed only if all use one communicator; "
            "record such a run"
        )


def _edges(calls: Sequence[CollectiveCalls], parts: Table) -> _Edges:
    n_calls = np.array([len(own.function) for own in calls])
    src, dst = parts["src"].astype(np.int64), parts["dst"].astype(np.int64)
    pairs, row_of = np.unique(src * len(calls) + dst, return_inverse=True)
    n, n_bytes = (
        np.bincount(row_of, parts[name].astype(np.float64), len(pairs)).astype(np.int64)
        for name in ("n", "bytes")
    )
    src, dst = np.divmod(pairs, len(calls))
    n_messages, rest = np.divmod(n, np.maximum(n_calls[src], 1))
    if rest.any():
        rank = int(src[np.flatnonzero(rest)[0]])
        raise DataError(
            f"call {int(calls[rank].i_call[0])} of rank {rank}, {calls[rank].function[0]}: the neighbours "
            "differ between calls, but the profile lists only those of all calls together; record a "
            "run with one such communicator"
        )
    return _Edges(src, dst, n_messages, n_bytes)


def _sizes(calls: Sequence[CollectiveCalls], edges: _Edges, kinds: Sequence[str]) -> Array:
    """Bytes of a message on each edge in each call, shape (n_calls, n_edges).

    In a call with equal parts, the sizes follow from the call's bytes. Calls with uneven parts share the
    remaining bytes of an edge in proportion to the bytes that the rank moved in each call.
    """
    n_out, n_in = (edges.degree(end, len(calls)) for end in ("src", "dst"))
    n_calls = len(kinds)
    sizes = np.zeros((n_calls, len(edges.src)))
    has_own_sizes = np.zeros(n_calls, bool)
    moved = np.array([own.n_bytes if len(own.n_bytes) else np.zeros(n_calls) for own in calls], np.float64).T
    for k, what in enumerate(kinds):
        n_blocks = {"alltoall": n_out + n_in, "allgather": 1 + n_in}.get(what)
        if n_blocks is None:
            has_own_sizes[k] = True
        else:
            sizes[k] = (moved[k] / np.maximum(n_blocks, 1))[edges.src]
    rest = np.maximum(edges.n_bytes / np.maximum(edges.n_messages, 1) - sizes.sum(axis=0), 0)
    weights = np.where(has_own_sizes[:, None], moved, 0.0)
    shares = weights / np.maximum(weights.sum(axis=0), 1)
    return np.rint(sizes + rest * shares[:, edges.src]).astype(np.int64)


def _block(edges: _Edges, sizes: Array, rank: int) -> Program:
    """The operations of a rank in one call: it starts all messages, then waits for all."""
    builder = ProgramBuilder()
    requests = []
    for end, other, begin in (("dst", "src", builder.irecv), ("src", "dst", builder.isend)):
        for row in np.flatnonzero(getattr(edges, end) == rank).tolist():
            peer = int(getattr(edges, other)[row])
            for _ in range(int(edges.n_messages[row]) if peer != rank else 0):
                requests.append(begin(peer, int(sizes[row]), comm=_COMM))
    builder.wait_all(requests)
    return builder.build()
