"""A fat-tree (XGFT): notation, placement of a job's ranks, numbers and names of nodes, links and ports.

Let ``M_l = m1 ... ml`` and ``W_l = w1 ... wl``. Below one node of level l are ``M_l`` hosts, a *subtree*;
above the same hosts stand ``W_l`` nodes of level l, its *copies*.

* Host h is 0 .. n_hosts - 1; hosts of one first-level switch follow each other. Its subtree is ``h // M_l``.
* Node x of level l is ``x = subtree * W_l + copy``, copy in 0 .. W_l - 1. A host is a subtree of one copy, 0.
* Up-ports of a node of level l are 0 .. w_(l+1) - 1. Port q leads to copy ``copy + W_l * q`` above.
* Down-ports of a node of level l + 1 are 0 .. m_(l+1) - 1. Port c leads to its child subtree c.
* Link k of level l is ``k = subtree * W_(l+1) + upper copy``, where the subtree is the lower one. Its lower
  end is copy ``upper copy % W_l``, and its up-port ``upper copy // W_l``.
* In one row, a switch of level l has its down-ports first, 0 .. m_l - 1, then m_l .. m_l + w_(l+1) - 1 up.
  InfiniBand counts them from 1.

The copy that a message takes on the highest level fixes every switch below: on level l it passes copy
``path % W_l``, up and down. So one number, its *path* in 0 .. W_h - 1, is the whole route.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpicoloc.errors import DataError, UsageError

MAX_NODES = 2**31 - 1
"""Most hosts, switches or links of one level: their numbers fit 32 bits."""

MAX_HEIGHT = 31
"""Most levels of switches: a higher tree within `MAX_NODES` has a level with one child and one parent."""

Hosts = NDArray[np.int64]


@dataclass(frozen=True)
class Topology:
    """An extended generalised fat-tree, XGFT(h; m1..mh; w1..wh).

    Nodes stand on the levels 0 (hosts) to h (roots). Links of level i join nodes of level i to those of level
    i + 1, so the links of hosts are level 0 and the highest links are level h - 1.

    Parameters
    ----------
    m : tuple of int
        ``m[i - 1]`` children of each node of level i, for i = 1..h.
    w : tuple of int
        ``w[i - 1]`` parents of each node of level i - 1, for i = 1..h.
    capacity_bps : tuple of float
        ``capacity_bps[i]``: what one link of level i carries in each direction, bytes/s.

    Raises
    ------
    DataError
        If the tuples have different lengths, a number of `m` or `w` is no int in [1, `MAX_NODES`], a capacity
        is not finite and above 0, or a level would have more than `MAX_NODES` nodes or links.

    Notes
    -----
    Numbers are those of `mpicoloc.core.topology`. Öhring et al. 1995; Jokanovic 2014, section 1.2.
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
                    f"topology: m has {self.height} numbers and {name} {len(getattr(self, name))}: "
                    "give one per level"
                )
        for level in range(self.height):
            if max(self.n_nodes(level + 1), self.n_links(level)) > MAX_NODES:
                raise DataError(
                    f"topology: {self} has more than {MAX_NODES} links on level {level}: give smaller numbers"
                )

    def __str__(self) -> str:
        """The notation, which `mpicoloc.core.topology.parse` reads."""
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
        """Nodes of a level: hosts of level 0, switches of 1 to h."""
        return math.prod(self.w[:level]) * math.prod(self.m[level:])

    def n_links(self, level: int) -> int:
        """Links that join level `level` to the one above, for 0 to h - 1."""
        return self.n_nodes(level) * self.w[level]

    def subtree_hosts(self, level: int) -> int:
        """Hosts below one node of a level."""
        return math.prod(self.m[:level])

    def subtree_roots(self, level: int) -> int:
        """Nodes of a level above the same hosts."""
        return math.prod(self.w[:level])

    def contention_ratio(self, level: int) -> float:
        """Down-links per up-link, ``m_i / w_(i+1)``, of the switches of a level in 1 to h - 1."""
        return self.m[level - 1] / self.w[level]


@dataclass(frozen=True)
class Placement:
    """Where the ranks of one job run.

    Parameters
    ----------
    hosts : array_like of int, shape (n_ranks,)
        Number of the host of each rank; kept as a read-only array. Ranks may share a host.

    Raises
    ------
    DataError
        If it is not one row of whole numbers >= 0, or empty.
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
    """``(1, n0, n0 n1, ...)``: one more than there are numbers."""
    return tuple(accumulate(numbers, mul, initial=1))


def _host_numbers(hosts: ArrayLike) -> Hosts:
    try:
        array = np.array(hosts)
    except ValueError as error:
        raise DataError(f"placement: hosts must be one row of numbers ({error})") from None
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
    """The topology that a notation like ``XGFT(3;16,16,8;1,8,8)`` names.

    Parameters
    ----------
    notation : str
        Height, children m1..mh and parents w1..wh; case and blanks do not matter.
    capacity_bps : float or sequence of float
        Bytes/s of one link in each direction: one number for all levels, or one for each, hosts' links first.

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
        raise UsageError(f"topology {shown(notation)} is no notation of a fat-tree: write it like {EXAMPLE}")
    height, m, w = (_numbers(part, notation) for part in match.groups())
    if len(height) != 1 or not len(m) == len(w) == height[0]:
        raise UsageError(
            f"topology {shown(notation)}: h is {','.join(map(str, height))}, with {len(m)} numbers m and "
            f"{len(w)} numbers w: give h of each, like {EXAMPLE}"
        )
    capacities = (capacity_bps,) * len(m) if isinstance(capacity_bps, int | float) else tuple(capacity_bps)
    try:
        return Topology(m, w, capacities)
    except DataError as error:
        raise UsageError(str(error)) from None


def is_notation(text: str) -> bool:
    """Whether a text is meant as a notation, right or wrong, and not as the name of a file."""
    return re.match(r"\s*XGFT\s*\(", text, re.IGNORECASE) is not None


def shown(text: str, length: int = 60) -> str:
    """A foreign text for a message of one line."""
    return repr(text if len(text) <= length else text[:length] + "...")


def _numbers(part: str, notation: str) -> tuple[int, ...]:
    words = [word.strip() for word in part.split(",")]
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) <= _MAX_DIGITS):
            raise UsageError(
                f"topology {shown(notation)}: {shown(word)} is no number: write it like {EXAMPLE}"
            )
    return tuple(map(int, words))


def slimmed(topology: Topology, slimming: int) -> Topology:
    """The same tree with `slimming` up-links at every switch: w2 .. wh, the S of the thesis (Figure 3.1)."""
    return replace(topology, w=(topology.w[0], *(slimming,) * (topology.height - 1)))


def subtree(topology: Topology, level: int, hosts: Hosts) -> Hosts:
    """Number of the subtree of a level that each host is in; on level 1 that of its first-level switch."""
    return hosts // topology.subtree_hosts(level)


def climb(topology: Topology, src: Hosts, dst: Hosts) -> NDArray[np.int64]:
    """Levels that each message climbs: 0 within a host, 1 below one first-level switch, at most `height`."""
    levels = np.zeros(np.broadcast(src, dst).shape, dtype=np.int64)
    for level in range(topology.height):
        levels += subtree(topology, level, src) != subtree(topology, level, dst)
    return levels


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


def check_placement(topology: Topology, placement: Placement) -> None:
    """Check that all hosts of a placement exist.

    Raises
    ------
    DataError
        With the first rank whose host the topology does not have.
    """
    outside = np.flatnonzero(placement.hosts >= topology.n_hosts)
    if len(outside):
        rank = int(outside[0])
        raise DataError(
            f"placement: rank {rank} is on host {placement.hosts[rank]}, but {topology} has hosts 0 to "
            f"{topology.n_hosts - 1}: give another placement or a larger topology"
        )
