"""A fat-tree, and the placement of a job's ranks on its hosts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpicoloc.errors import DataError

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
    Numbers are those of `mpicoloc.network.topology.xgft`. Öhring et al. 1995; Jokanovic 2014, section 1.2.
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
        """The notation, which `mpicoloc.network.topology.xgft.parse` reads."""
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
