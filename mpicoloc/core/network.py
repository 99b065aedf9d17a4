"""Fat-trees (XGFT): notation, placement of ranks, and numbers of nodes, links and ports; a job's traffic.

Let ``M_l = m1 ... ml`` and ``W_l = w1 ... wl``. Below each node of level l are ``M_l`` hosts, which form a
*subtree*. ``W_l`` nodes of level l are above the same hosts: the *copies* of the subtree's root.

* Hosts h are 0 .. n_hosts - 1; the hosts of a first-level switch are consecutive. The subtree of level l that
  contains host h is ``h // M_l``.
* Node x of level l is ``x = subtree * W_l + copy``, copy in 0 .. W_l - 1. For a host, the only copy is 0.
* Up-ports of a node of level l are 0 .. w_(l+1) - 1. Port q leads to copy ``copy + W_l * q`` above.
* Down-ports of a node of level l + 1 are 0 .. m_(l+1) - 1. Port c leads to the node's child subtree c.
* Link k of level l is ``k = subtree * W_(l+1) + upper copy``, where the subtree is that of the link's lower
  end. The lower end is copy ``upper copy % W_l``; its up-port for the link is ``upper copy // W_l``.
* Where one number covers all ports, a switch of level l has down-ports 0 .. m_l - 1, then up-ports m_l ..
  m_l + w_(l+1) - 1. InfiniBand counts these ports from 1.

The number of the copy that a message passes on the highest level, its *path* in 0 .. W_h - 1, determines the
whole route: on level l the message passes copy ``path % W_l``, both on its way up and on its way down.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpicoloc.core.profile import Array, Floats, Ints
from mpicoloc.errors import DataError, UsageError

Round = tuple[Array, Array, Array]
"""Sources, destinations and bytes of some pairs of ranks. A round has each pair at most once."""


class Rounds(Protocol):
    """A job's traffic that can be read piece by piece, such as `Traffic`, `Exchange` and `TrafficSum`."""

    @property
    def n_ranks(self) -> int:
        """Ranks of the job."""

    def rounds(self) -> Iterator[Round]:
        """Yield rounds that add up to the traffic. A pair of ranks may be in several rounds."""


@dataclass(frozen=True)
class Traffic:
    """Bytes and messages between ranks: one row per ordered pair that has any, sorted by (src, dst).

    Parameters
    ----------
    n_ranks : int
        Ranks of the job; sources and destinations are below it.
    src, dst : ndarray of int64
        The two ranks of the pair. They differ, because messages of a rank to itself do not use the network.
    n_bytes, n_messages : ndarray of int64 or float64
        Bytes and messages that `src` sends to `dst`.

    Notes
    -----
    Build a `Traffic` with `Traffic.of`, which sorts the pairs and adds up repeated ones.
    """

    n_ranks: int
    src: Array
    dst: Array
    n_bytes: Array
    n_messages: Array

    def __post_init__(self) -> None:
        """Check the arrays and make them read-only."""
        columns = (self.src, self.dst, self.n_bytes, self.n_messages)
        shapes = {column.shape for column in columns}
        if len(shapes) != 1 or self.src.ndim != 1:
            raise DataError(f"traffic: columns must be 1-D and of one length, got {sorted(shapes)}")
        for column in columns:
            column.flags.writeable = False

    @classmethod
    def of(
        cls, n_ranks: int, src: ArrayLike, dst: ArrayLike, n_bytes: ArrayLike, n_messages: ArrayLike = 1
    ) -> Traffic:
        """The sum of messages.

        Raises `DataError` if a rank is not in the range [0, n_ranks), or a number is negative.
        """
        columns = np.broadcast_arrays(*(np.atleast_1d(x) for x in (src, dst, n_bytes, n_messages)))
        ranks = [column.ravel().astype(np.int64) for column in columns[:2]]
        numbers = [_number(column.ravel()) for column in columns[2:]]
        for column in ranks:
            if len(column) and not 0 <= column.min() <= column.max() < n_ranks:
                got = f"{column.min()} to {column.max()}"
                raise DataError(f"traffic: ranks must be in the range [0, {n_ranks}), got {got}")
        for column in numbers:
            if len(column) and not column.min() >= 0:
                raise DataError(f"traffic: bytes and messages must be >= 0, got {column.min()}")
        keep = (ranks[0] != ranks[1]) & ((numbers[0] > 0) | (numbers[1] > 0))
        return _summed(n_ranks, ranks[0][keep] * n_ranks + ranks[1][keep], numbers[0][keep], numbers[1][keep])

    @classmethod
    def empty(cls, n_ranks: int) -> Traffic:
        """No traffic."""
        return cls.of(n_ranks, [], [], [])

    def __add__(self, other: Traffic) -> Traffic:
        """The sum of two traffics of one job."""
        return total(self.n_ranks, [self, other])

    def __mul__(self, times: float) -> Traffic:
        """The same traffic, repeated `times` times."""
        return Traffic(self.n_ranks, self.src, self.dst, self.n_bytes * times, self.n_messages * times)

    __rmul__ = __mul__

    def __len__(self) -> int:
        """Number of pairs of ranks with traffic."""
        return len(self.src)

    def sent_bytes(self) -> Array:
        """Bytes that each rank sends."""
        return np.bincount(self.src, weights=self.n_bytes, minlength=self.n_ranks)

    def recv_bytes(self) -> Array:
        """Bytes that each rank receives."""
        return np.bincount(self.dst, weights=self.n_bytes, minlength=self.n_ranks)

    def matrix(self) -> Array:
        """Bytes by source and destination, shape (n_ranks, n_ranks). Use it only for small jobs."""
        dense = np.zeros((self.n_ranks, self.n_ranks), dtype=self.n_bytes.dtype)
        dense[self.src, self.dst] = self.n_bytes
        return dense

    def renumbered(self, ranks: ArrayLike, n_ranks: int) -> Traffic:
        """The same traffic in a job of `n_ranks`, where rank i has the number `ranks[i]`."""
        names = np.asarray(ranks, dtype=np.int64)
        return Traffic.of(n_ranks, names[self.src], names[self.dst], self.n_bytes, self.n_messages)

    def rounds(self) -> Iterator[Round]:
        """Yield the whole traffic as one round."""
        yield self.src, self.dst, self.n_bytes


@dataclass(frozen=True)
class Exchange:
    """Traffic in which every member sends the same number of bytes to every other one.

    Its p(p-1) pairs are not stored.

    Parameters
    ----------
    n_ranks : int
        Ranks of the job.
    members : ndarray of int64
        The p ranks that take part, without repetition.
    n_bytes, n_messages : float
        Bytes and messages that each member sends to each other member.
    """

    n_ranks: int
    members: Array
    n_bytes: float
    n_messages: float = 1

    def __post_init__(self) -> None:
        """Make the members read-only."""
        self.members.flags.writeable = False

    def rounds(self) -> Iterator[Round]:
        """Yield p-1 permutations: in the i-th, each member sends to the i-th member after it."""
        n_bytes = np.full(len(self.members), self.n_bytes)
        for i in range(1, len(self.members)):
            yield self.members, np.roll(self.members, -i), n_bytes

    def traffic(self) -> Traffic:
        """All p(p-1) pairs, in memory."""
        p = len(self.members)
        src, step = np.divmod(np.arange(p * (p - 1), dtype=np.int64), max(p - 1, 1))
        dst = self.members[(src + step + 1) % max(p, 1)]
        return Traffic.of(self.n_ranks, self.members[src], dst, self.n_bytes, self.n_messages)


@dataclass(frozen=True)
class TrafficSum:
    """Several parts of one job's traffic, which are kept apart."""

    n_ranks: int
    parts: tuple[Traffic | Exchange, ...]

    def rounds(self) -> Iterator[Round]:
        """Yield all rounds, part by part."""
        for part in self.parts:
            yield from part.rounds()

    def traffic(self) -> Traffic:
        """The sum of all parts, in memory."""
        parts = [part.traffic() if isinstance(part, Exchange) else part for part in self.parts]
        return total(self.n_ranks, parts)


def total(n_ranks: int, parts: list[Traffic]) -> Traffic:
    """The sum of parts of one job's traffic.

    Raises `DataError` if a part is of a job with another number of ranks.
    """
    for part in parts:
        if part.n_ranks != n_ranks:
            raise DataError(f"traffic of jobs of {part.n_ranks} and {n_ranks} ranks cannot be added up")
    if not parts:
        return Traffic.empty(n_ranks)
    keys = np.concatenate([part.src * n_ranks + part.dst for part in parts])
    n_bytes = np.concatenate([part.n_bytes for part in parts])
    return _summed(n_ranks, keys, n_bytes, np.concatenate([part.n_messages for part in parts]))


def _number(column: Array) -> Array:
    return column.astype(np.float64 if column.dtype.kind == "f" and len(column) else np.int64)


def _summed(n_ranks: int, keys: Array, n_bytes: Array, n_messages: Array) -> Traffic:
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    src, dst = np.divmod(keys[first], max(n_ranks, 1))
    if len(first) == 0:
        return Traffic(n_ranks, src, dst, n_bytes, n_messages)
    sums = [np.add.reduceat(column[order], first) for column in (n_bytes, n_messages)]
    return Traffic(n_ranks, src, dst, *sums)


@dataclass(frozen=True)
class TimedMessages:
    """Messages of a job, one row each.

    Parameters
    ----------
    src, dst : ndarray of int
        Ranks.
    start_s, end_s : ndarray of float
        Begin and end of the time for which the message is on its way, by one clock for all messages.
    n_bytes : ndarray

    Raises
    ------
    DataError
        If the columns have different lengths, or a message ends before it begins.
    """

    src: Ints
    dst: Ints
    start_s: Floats
    end_s: Floats
    n_bytes: NDArray[np.number]

    def __post_init__(self) -> None:
        columns = (self.src, self.dst, self.start_s, self.end_s, self.n_bytes)
        if len({np.shape(column) for column in columns}) != 1 or np.ndim(self.src) != 1:
            raise DataError("messages: columns must be 1-D and of one length")
        if len(self.src) and not (np.isfinite(self.start_s) & (self.end_s >= self.start_s)).all():
            raise DataError("messages: times must be finite, and no message may end before it begins")


@dataclass(frozen=True)
class TimedCalls:
    """Collective calls of a job, one row for each call of each rank.

    Parameters
    ----------
    traffic : Rounds
        Traffic of all calls together.
    rank : ndarray of int
    start_s, end_s : ndarray of float
        Begin and end of the call, by one clock for all calls.
    share : ndarray of float
        Fraction that the call sent of all bytes that its rank sends in `traffic`.
    """

    traffic: Rounds
    rank: Ints
    start_s: Floats
    end_s: Floats
    share: Floats


Crossing = tuple[int, bool, NDArray[np.bool_], NDArray[Any]]
"""Level; whether upwards; which messages pass a link of this level in this direction; their link numbers."""


class Levelled(Protocol):
    """A network with levels of links, regular or not: `Topology` and `network.topology.irregular.Irregular`.

    Nodes are numbered hosts first, then switches level by level; the links of each level are numbered from 0.
    A subtree of level l is a connected component of the hosts, the switches up to level l and their links.
    """

    @property
    def height(self) -> int:
        """Levels of links."""

    @property
    def n_hosts(self) -> int:
        """Hosts, the nodes of level 0."""

    @property
    def n_switches(self) -> int:
        """Switches of all levels."""

    @property
    def n_paths(self) -> int:
        """Number of paths between two hosts: 0 .. n_paths - 1."""

    @property
    def leaf_hosts(self) -> int:
        """Largest number of hosts at one first-level switch."""

    @property
    def capacity_bps(self) -> tuple[float, ...]:
        """Bytes/s of a link of each level, in each direction; that of the slowest link if links differ."""

    def n_links(self, level: int) -> int:
        """Links of a level."""

    def ends(self, level: int) -> tuple[Ints, Ints]:
        """Lower and upper node of every link of a level."""

    def link_bps(self, level: int) -> Floats:
        """Bytes/s of every link of a level, in each direction."""

    @property
    def rank(self) -> Ints:
        """Position of each node in an order in which hosts come first and every link leads upwards."""

    def end_names(self, level: int, link: int) -> tuple[str, str]:
        """Names of the lower and the upper node of a link."""

    def set_divisor(self, node: int) -> int:
        """Divisor with which a node routes: path p takes link ``p // divisor % n`` of its n usable links."""

    def subtree(self, level: int, hosts: Ints) -> Ints:
        """Number of the subtree of a level that contains each host; on level 1, of its first-level switch."""

    def n_hosts_of(self, level: int, subtrees: Ints) -> int:
        """Number of hosts in these subtrees of a level."""

    def leaving_bps(self, level: int, subtrees: Ints) -> float:
        """Bytes/s of all links that leave these subtrees of a level. A link counts once for each subtree."""

    def climb(self, src: Ints, dst: Ints) -> Ints:
        """Levels that each message climbs: 0 within a host, 1 within a first-level switch, ... height."""

    def crossings(self, src: Ints, dst: Ints, paths: Ints) -> Iterator[Crossing]:
        """Yield the links that messages pass on their paths. A message passes each link at most once."""


MAX_NODES = 2**31 - 1
"""Most hosts, switches or links of one level, so that their numbers fit 32 bits."""

MAX_HEIGHT = 31
"""Most levels of switches. A higher tree within `MAX_NODES` has a level with one child and one parent."""

Hosts = NDArray[np.int64]


@dataclass(frozen=True)
class Topology:
    """An extended generalised fat-tree, XGFT(h; m1..mh; w1..wh).

    Nodes are on levels 0 (hosts) to h (roots). Links of level i join nodes of levels i and i + 1, so the
    links of hosts have level 0 and the highest links level h - 1.

    Parameters
    ----------
    m : tuple of int
        ``m[i - 1]`` children of each node of level i, for i = 1..h.
    w : tuple of int
        ``w[i - 1]`` parents of each node of level i - 1, for i = 1..h.
    capacity_bps : tuple of float
        ``capacity_bps[i]``: bandwidth of one link of level i in each direction, bytes/s.

    Raises
    ------
    DataError
        If the tuples have different lengths, a number of `m` or `w` is not an int in [1, `MAX_NODES`], a
        capacity is not finite and above 0, or a level would have more than `MAX_NODES` nodes or links.

    Notes
    -----
    `mpicoloc.core.network` describes the numbering. Öhring et al. 1995; Jokanovic 2014, section 1.2.
    """

    m: tuple[int, ...]
    w: tuple[int, ...]
    capacity_bps: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("m", "w"):
            object.__setattr__(self, name, tuple(_count(number, name) for number in getattr(self, name)))
        object.__setattr__(self, "capacity_bps", tuple(_capacity(number) for number in self.capacity_bps))
        if not 1 <= len(self.m) <= MAX_HEIGHT:
            raise DataError(f"topology: height must be in [1, {MAX_HEIGHT}], got {len(self.m)} numbers in m")
        for name in ("w", "capacity_bps"):
            if len(getattr(self, name)) != self.height:
                raise DataError(
                    f"topology: m has {self.height} numbers, but {name} has {len(getattr(self, name))}: "
                    "give one number per level"
                )
        for level in range(self.height):
            if max(self.n_nodes(level + 1), self.n_links(level)) > MAX_NODES:
                raise DataError(
                    f"topology: {self} has more than {MAX_NODES} links on level {level}: give smaller numbers"
                )

    def __str__(self) -> str:
        """The notation that `parse_xgft` reads."""
        return f"XGFT({self.height};{','.join(map(str, self.m))};{','.join(map(str, self.w))})"

    @property
    def height(self) -> int:
        """Levels of switches, and of links."""
        return len(self.m)

    @property
    def n_hosts(self) -> int:
        """Hosts, the nodes of level 0."""
        return math.prod(self.m)

    @property
    def n_switches(self) -> int:
        """Switches of all levels."""
        return sum(self.n_nodes(level) for level in range(1, self.height + 1))

    def n_nodes(self, level: int) -> int:
        """Number of nodes of a level: of hosts for level 0, of switches for levels 1 to h."""
        return math.prod(self.w[:level]) * math.prod(self.m[level:])

    def n_links(self, level: int) -> int:
        """Number of links that join level `level`, from 0 to h - 1, to the level above."""
        return self.n_nodes(level) * self.w[level]

    def subtree_hosts(self, level: int) -> int:
        """Number of hosts below one node of a level."""
        return math.prod(self.m[:level])

    def subtree_roots(self, level: int) -> int:
        """Number of nodes of a level that are above the same hosts."""
        return math.prod(self.w[:level])

    def contention_ratio(self, level: int) -> float:
        """Down-links per up-link, ``m_i / w_(i+1)``, of the switches of a level in 1 to h - 1."""
        return self.m[level - 1] / self.w[level]

    @property
    def n_paths(self) -> int:
        """W_h: see `Levelled`."""
        return self.subtree_roots(self.height)

    @property
    def leaf_hosts(self) -> int:
        """m1: see `Levelled`."""
        return self.m[0]

    def ends(self, level: int) -> tuple[Ints, Ints]:
        """See `Levelled`."""
        first = [sum(map(self.n_nodes, range(up_to))) for up_to in (level, level + 1)]
        lower, upper = link_ends(self, level)
        return lower + first[0], upper + first[1]

    def link_bps(self, level: int) -> Floats:
        """See `Levelled`."""
        return np.full(self.n_links(level), self.capacity_bps[level])

    @property
    def rank(self) -> Ints:
        """The nodes' own numbers: see `Levelled`."""
        return np.arange(self.n_hosts + self.n_switches)

    def end_names(self, level: int, link: int) -> tuple[str, str]:
        """Names that `node_name` gives: see `Levelled`."""
        below, above = self.subtree_roots(level), self.subtree_roots(level + 1)
        tree, copy = divmod(link, above)
        return (
            node_name(level, tree * below + copy % below),
            node_name(level + 1, tree // self.m[level] * above + copy),
        )

    def set_divisor(self, node: int) -> int:
        """W_l of a node of level l: see `Levelled`."""
        level = 0
        while node >= self.n_nodes(level):
            node, level = node - self.n_nodes(level), level + 1
        return self.subtree_roots(level)

    def subtree(self, level: int, hosts: Ints) -> Ints:
        """See `Levelled`."""
        return hosts // self.subtree_hosts(level)

    def n_hosts_of(self, level: int, subtrees: Ints) -> int:
        """See `Levelled`."""
        return len(subtrees) * self.subtree_hosts(level)

    def leaving_bps(self, level: int, subtrees: Ints) -> float:
        """See `Levelled`."""
        return len(subtrees) * self.subtree_roots(level + 1) * self.capacity_bps[level]

    def climb(self, src: Ints, dst: Ints) -> Ints:
        """See `Levelled`."""
        levels = np.zeros(np.broadcast(src, dst).shape, dtype=np.int64)
        for level in range(self.height):
            levels += self.subtree(level, src) != self.subtree(level, dst)
        return levels

    def crossings(self, src: Ints, dst: Ints, paths: Ints) -> Iterator[Crossing]:
        """See `Levelled`."""
        # Numbers of nodes and links fit into 32 bits (`MAX_NODES`); 32-bit arithmetic is twice as fast.
        low, high, path = (array.astype(np.int32) for array in (src, dst, paths))
        for level in range(self.height):
            leaves = low != high  # whether the subtrees of this level differ
            if not leaves.any():
                return
            roots, width = np.int32(self.subtree_roots(level + 1)), np.int32(self.m[level])
            copy = path - path // roots * roots  # faster than the remainder
            yield level, True, leaves, low * roots + copy
            yield level, False, leaves, high * roots + copy
            low, high = low // width, high // width


@dataclass(frozen=True)
class Placement:
    """The hosts of the ranks of one job.

    Parameters
    ----------
    hosts : array_like of int, shape (n_ranks,)
        Host number of each rank; stored as a read-only array. Ranks may share a host.

    Raises
    ------
    DataError
        If `hosts` is empty or not one row of whole numbers >= 0.
    """

    hosts: Hosts

    def __post_init__(self) -> None:
        array = _host_numbers(self.hosts)
        array.flags.writeable = False
        object.__setattr__(self, "hosts", array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and np.array_equal(self.hosts, other.hosts)

    def __hash__(self) -> int:
        return hash(self.hosts.tobytes())

    @property
    def n_ranks(self) -> int:
        """Ranks of the job."""
        return len(self.hosts)

    def distinct_hosts(self) -> Hosts:
        """The job's hosts, each once, in ascending order."""
        return np.unique(self.hosts)


def prefix_products(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """``(1, n0, n0 n1, ...)``: one element more than `numbers`."""
    return tuple(accumulate(numbers, mul, initial=1))


def _host_numbers(hosts: ArrayLike) -> Hosts:
    try:
        array = np.array(hosts)
    except ValueError as error:
        raise DataError(f"placement: hosts must be a list of numbers ({error})") from None
    if array.ndim != 1 or not len(array):
        raise DataError(f"placement: need one host number for each rank, got an array of shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise DataError(f"placement: host numbers must be whole numbers, got {array.dtype} {array.flat[0]!r}")
    if array.min() < 0 or array.max() > MAX_NODES:
        wrong = array.min() if array.min() < 0 else array.max()
        raise DataError(f"placement: host numbers must be in [0, {MAX_NODES}], got {wrong}")
    return array.astype(np.int64)


def _count(number: Any, name: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise DataError(f"topology: numbers of {name} must be whole and >= 1, got {number!r}")
    if number > MAX_NODES:
        raise DataError(f"topology: a number of {name} is above {MAX_NODES}")
    return int(number)


def _capacity(number: Any) -> float:
    try:
        capacity = float(number)
    except (TypeError, ValueError):
        raise DataError(f"topology: a capacity must be a number of bytes/s, got {number!r}") from None
    if not (math.isfinite(capacity) and capacity > 0):
        raise DataError(f"topology: a capacity must be finite and above 0 bytes/s, got {number!r}")
    return capacity


EXAMPLE = "XGFT(3;16,16,8;1,8,8)"
_FORM = re.compile(r"\s*XGFT\s*\(([^;()]*);([^;()]*);([^;()]*)\)\s*", re.IGNORECASE)
_MAX_DIGITS = 10


def parse_xgft(notation: str, capacity_bps: float | Sequence[float]) -> Topology:
    """The topology described by a notation like ``XGFT(3;16,16,8;1,8,8)``.

    Parameters
    ----------
    notation : str
        Height, children m1..mh and parents w1..wh; case and blanks do not matter.
    capacity_bps : float or sequence of float
        Bytes/s of one link in each direction: one number for all levels, or one for each level, where the
        links of hosts come first.

    Returns
    -------
    Topology

    Raises
    ------
    UsageError
        If the notation is wrong, or no tree has these numbers.
    """
    match = _FORM.fullmatch(notation)
    if not match:
        raise UsageError(
            f"topology {shown(notation)} is not the notation of a fat-tree: write it like {EXAMPLE}"
        )
    height, m, w = (_numbers(part, notation) for part in match.groups())
    if len(height) != 1 or not len(m) == len(w) == height[0]:
        raise UsageError(
            f"topology {shown(notation)}: h is {','.join(map(str, height))}, but there are {len(m)} numbers "
            f"m and {len(w)} numbers w: give h numbers of each, like {EXAMPLE}"
        )
    capacities = (capacity_bps,) * len(m) if isinstance(capacity_bps, int | float) else tuple(capacity_bps)
    try:
        return Topology(m, w, capacities)
    except DataError as error:
        raise UsageError(str(error)) from None


def is_notation(text: str) -> bool:
    """Whether a text looks like a notation (valid or not) rather than a file name."""
    return re.match(r"\s*XGFT\s*\(", text, re.IGNORECASE) is not None


def shown(text: str, length: int = 60) -> str:
    """An untrusted text, quoted and shortened for a one-line message."""
    return repr(text if len(text) <= length else text[:length] + "...")


def _numbers(part: str, notation: str) -> tuple[int, ...]:
    words = [word.strip() for word in part.split(",")]
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) <= _MAX_DIGITS):
            raise UsageError(
                f"topology {shown(notation)}: {shown(word)} is not a number: write it like {EXAMPLE}"
            )
    return tuple(map(int, words))


def slimmed(topology: Levelled, slimming: int) -> Topology:
    """The same tree with `slimming` up-links at every switch (w2 .. wh): S in Jokanovic 2014, Figure 3.1.

    Raises `DataError` if the network is not an XGFT, or the number is out of range.
    """
    if not isinstance(topology, Topology):
        raise DataError(f"only an XGFT can be slimmed, not {topology}: give the notation of a similar XGFT")
    return replace(topology, w=(topology.w[0], *(slimming,) * (topology.height - 1)))


def link_ends(topology: Topology, level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lower and upper node of every link of a level, in the order of the links' numbers."""
    below, above = topology.subtree_roots(level), topology.subtree_roots(level + 1)
    tree, copy = np.divmod(np.arange(topology.n_links(level)), above)
    return tree * below + copy % below, tree // topology.m[level] * above + copy


def link_ports(topology: Topology, level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Up-port at the lower end and down-port at the upper end of every link of a level."""
    above = topology.subtree_roots(level + 1)
    tree, copy = np.divmod(np.arange(topology.n_links(level)), above)
    return copy // topology.subtree_roots(level), tree % topology.m[level]


def parent_node(topology: Topology, level: int, node: int, up_port: int) -> int:
    """Node of the level above that an up-port leads to."""
    below, above = topology.subtree_roots(level), topology.subtree_roots(level + 1)
    tree, copy = divmod(node, below)
    return tree // topology.m[level] * above + copy + below * up_port


def child_node(topology: Topology, level: int, node: int, down_port: int) -> int:
    """Node of the level below that a down-port of a switch leads to."""
    below, above = topology.subtree_roots(level - 1), topology.subtree_roots(level)
    tree, copy = divmod(node, above)
    return (tree * topology.m[level - 1] + down_port) * below + copy % below


def node_name(level: int, node: int) -> str:
    """Name of a node: ``h12`` is host 12, ``s2-3`` switch 3 of level 2."""
    return f"s{level}-{node}" if level else f"h{node}"


def check_placement(topology: Levelled, placement: Placement) -> None:
    """Check that all hosts of a placement exist.

    Raises
    ------
    DataError
        If a host does not exist. The message names the first rank on such a host.
    """
    outside = np.flatnonzero(placement.hosts >= topology.n_hosts)
    if len(outside):
        rank = int(outside[0])
        raise DataError(
            f"placement: rank {rank} is on host {placement.hosts[rank]}, but {topology} has hosts 0 to "
            f"{topology.n_hosts - 1}: give another placement or a larger topology"
        )
