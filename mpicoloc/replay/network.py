"""A network as the packet simulator takes it: plain arrays of nodes, links and routes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mpicoloc.errors import DataError
from mpicoloc.replay import native

Table = tuple[tuple[int, int], ...]
"""Rows (lane, weight) of an arbitration table."""

NO_LIMIT = 255
MAX_WEIGHT = 255


@dataclass(frozen=True)
class Lanes:
    """Lanes, the same at every port of a network.

    Parameters
    ----------
    input_bytes : tuple of int
        Buffer of each lane where a link ends: the credits of its sender. One number per lane.
    output_bytes : tuple of int
        Buffer of each lane where a switch's link begins.
    lane_of_level : tuple of int
        Lane of service level 0, 1, ...
    high, low : tuple of (int, int)
        Rows (lane, weight) of the two arbitration tables. `low` empty: all lanes that `high` lacks, weight 1.
    high_limit : int
        Units of 4096 bytes of high priority before one packet of low priority; 255: no limit, 0: one packet.
    weight_unit_bytes : int
        64 as in the standard, or 0: weights count packets, as in the thesis.

    Raises
    ------
    DataError
        If a number is out of range, a lane is in no table, or has no weight above 0.

    Notes
    -----
    InfiniBand Architecture Specification, volume 1, section 7.6.9; Jokanovic 2014, section 1.3.3.
    """

    input_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]
    lane_of_level: tuple[int, ...] = (0,)
    high: Table = ()
    low: Table = ()
    high_limit: int = 0
    weight_unit_bytes: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.n <= native.RP_MAX_VL:
            raise DataError(f"lanes: their number must be in [1, {native.RP_MAX_VL}], got {self.n}")
        if len(self.output_bytes) != self.n:
            raise DataError(
                f"lanes: {self.n} input and {len(self.output_bytes)} output buffers: one per lane"
            )
        if not self.low:
            rest = tuple((lane, 1) for lane in range(self.n) if lane not in {vl for vl, _ in self.high})
            object.__setattr__(self, "low", rest)
        if not 1 <= len(self.lane_of_level) <= native.RP_MAX_SL:
            raise DataError(f"lanes: give lanes for 1 to {native.RP_MAX_SL} service levels")
        for lane in (*self.lane_of_level, *(vl for vl, _ in (*self.high, *self.low))):
            if not 0 <= lane < self.n:
                raise DataError(
                    f"lanes: lane {lane} is not in [0, {self.n - 1}]: give more buffers, or another lane"
                )
        self._check_weights()
        if not 0 <= self.high_limit <= NO_LIMIT:
            raise DataError(f"lanes: high limit must be in [0, {NO_LIMIT}], got {self.high_limit}")
        if self.weight_unit_bytes not in (0, 64):
            raise DataError(
                f"lanes: weights count packets (0) or 64 bytes (64), got {self.weight_unit_bytes}"
            )

    @property
    def n(self) -> int:
        """Number of lanes."""
        return len(self.input_bytes)

    def _check_weights(self) -> None:
        """A lane that is used must be served."""
        for lane, weight in (*self.high, *self.low):
            if not 0 <= weight <= MAX_WEIGHT:
                raise DataError(f"lanes: weight of lane {lane} must be in [0, {MAX_WEIGHT}], got {weight}")
        served = {lane for lane, weight in (*self.high, *self.low) if weight}
        for level, lane in enumerate(self.lane_of_level):
            if lane not in served:
                raise DataError(
                    f"lanes: lane {lane}, which service level {level} uses, has no weight above 0 in a "
                    "table: its packets would wait for ever; give it one"
                )


def equal_lanes(n: int = 1, total_bytes: int = 65536, weights: tuple[int, ...] = ()) -> Lanes:
    """`n` lanes that share a port's buffers of `total_bytes` equally; service level i uses lane i."""
    each = (total_bytes // n,) * n
    low = tuple(enumerate(weights or (1,) * n))
    return Lanes(each, each, tuple(range(n)), low=low)


Ints = NDArray[np.int32]
ROUTINGS = ("d-mod-k", "s-mod-k", "random-flow", "random", "adaptive")
"""In the order of `enum rp_routing`; ``random`` draws for each packet. Tables without choice need none."""


@dataclass(frozen=True)
class SimulatedNetwork:
    """Hosts, switches, directed links and routes. Nodes are numbered hosts first, then switches.

    Parameters
    ----------
    n_hosts, n_switches : int
    link_from, link_to : ndarray of int32, shape (n_links,)
        Nodes at both ends.
    link_level : ndarray of int32, shape (n_links,)
        Level, for statistics: 0 at the hosts.
    link_bps : ndarray of float, shape (n_links,)
        Bytes/s.
    link_latency_ps : ndarray of int64, shape (n_links,)
        Of the cable.
    first : ndarray of int32, shape (n_hosts,)
        Link, or set of links, by which a host sends. A set s is written -1 - s.
    next : ndarray of int32, shape (n_switches, n_hosts)
        Link, or set, by which a switch sends to a destination.
    sets : tuple of ndarray of int32
        Links of each set, of which `routing` chooses one; routes by path: link ``path // divisor % n``.
    set_divisors : tuple of int
    n_paths : int
        Paths are 0 .. n_paths - 1.
    routing : str
        One of `ROUTINGS`.
    lanes : Lanes
    switch_latency_ps : int
        From the arrival of a packet's first flit until the switch may send it.
    flit_bytes : int
        What a switch must have of a packet before it sends it on. At least the MTU: store and forward.
    is_voq : bool
        Whether a packet in an input buffer waits only for its output. Otherwise the buffer of a lane is a
        FIFO, and packets also wait for those in front that want other outputs.
    input_speedup : float
        How many times as fast as its link an input port of a switch passes packets to the outputs, one after
        the other; infinite: the inside of a switch delays nothing.
    node_names : tuple of str
        For messages, hosts first; may be empty.

    Raises
    ------
    DataError
        If arrays do not fit each other or a number is out of range.
    """

    n_hosts: int
    n_switches: int
    link_from: Ints
    link_to: Ints
    link_level: Ints
    link_bps: NDArray[np.float64]
    link_latency_ps: NDArray[np.int64]
    first: Ints
    next: Ints
    sets: tuple[Ints, ...] = ()
    set_divisors: tuple[int, ...] = ()
    n_paths: int = 1
    routing: str = "d-mod-k"
    lanes: Lanes = field(default_factory=equal_lanes)
    switch_latency_ps: int = 100_000
    flit_bytes: int = 256
    is_voq: bool = False
    input_speedup: float = math.inf
    node_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, dtype in _ARRAYS.items():
            array = np.ascontiguousarray(getattr(self, name), dtype=dtype)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        _check(self)

    @property
    def n_links(self) -> int:
        """Directed links."""
        return len(self.link_from)

    @property
    def n_levels(self) -> int:
        """Levels of links."""
        return int(self.link_level.max()) + 1

    @property
    def has_tables(self) -> bool:
        """Whether switches have one link for each host, although there are several ways."""
        return bool(self.sets) and bool((self.next >= 0).all())

    def node_name(self, node: int) -> str:
        """Name of a node for messages."""
        if self.node_names:
            return self.node_names[node]
        return f"h{node}" if node < self.n_hosts else f"switch {node - self.n_hosts}"

    def link_name(self, link: int) -> str:
        """Both ends of a link for messages."""
        return " to ".join(self.node_name(int(ends[link])) for ends in (self.link_from, self.link_to))


_ARRAYS = {
    "link_from": np.int32,
    "link_to": np.int32,
    "link_level": np.int32,
    "link_bps": np.float64,
    "link_latency_ps": np.int64,
    "first": np.int32,
    "next": np.int32,
}


def _check(network: SimulatedNetwork) -> None:
    n_links, n_nodes = network.n_links, network.n_hosts + network.n_switches
    for name in ("link_to", "link_level", "link_bps", "link_latency_ps"):
        if getattr(network, name).shape != (n_links,):
            raise DataError(f"simulated network: {name} must have {n_links} numbers, one per link")
    if network.first.shape != (network.n_hosts,) or network.next.shape != (
        network.n_switches,
        network.n_hosts,
    ):
        raise DataError("simulated network: first needs a row per host, next one per switch and host")
    if network.routing not in ROUTINGS:
        raise DataError(f"routing must be one of {', '.join(ROUTINGS)}, got {network.routing!r}")
    for name in ("link_from", "link_to"):
        ends = getattr(network, name)
        if n_links == 0 or ends.min() < 0 or ends.max() >= n_nodes:
            raise DataError(f"simulated network: {name} must be nodes in [0, {n_nodes - 1}]")
    _check_numbers(network)
    _check_sets(network)
    _check_begins(network)


def _check_numbers(network: SimulatedNetwork) -> None:
    bps, latency = network.link_bps, network.link_latency_ps
    if not (np.isfinite(bps).all() and bps.min() >= 1e5 and bps.max() <= 1e12):
        raise DataError(f"link rates must be in [1e5, 1e12] bytes/s, got {bps.min():g} to {bps.max():g}")
    if latency.min() < 0 or latency.max() > 10**12 or not 0 <= network.switch_latency_ps <= 10**12:
        raise DataError("latencies of links and switches must be in [0, 1] s")
    if not network.input_speedup >= 1:
        raise DataError(
            f"input_speedup must be at least 1, or inf for switches that delay nothing, got "
            f"{network.input_speedup}"
        )
    if network.flit_bytes < 1 or network.n_paths < 1 or network.link_level.min() < 0:
        raise DataError("flit_bytes and n_paths must be >= 1, levels >= 0")


def _check_sets(network: SimulatedNetwork) -> None:
    if len(network.set_divisors) != len(network.sets) or min(network.set_divisors, default=1) < 1:
        raise DataError("simulated network: each set of links needs a divisor >= 1")
    for links in network.sets:
        if len(links) == 0 or links.min() < 0 or links.max() >= network.n_links:
            raise DataError("simulated network: a set of links is empty, or names one that does not exist")
    for name in ("first", "next"):
        entries = getattr(network, name)
        if entries.min() < -len(network.sets) or entries.max() >= network.n_links:
            raise DataError(f"simulated network: {name} names a link or set that does not exist")


def _check_begins(network: SimulatedNetwork) -> None:
    """Each entry of a table names links that begin at its node; a set stands for all of its links."""
    origin = np.array([network.link_from[links[0]] for links in network.sets] + [0], dtype=np.int64)
    for links in network.sets:
        if len(set(network.link_from[links].tolist())) != 1:
            raise DataError("simulated network: links of one set begin at different nodes")
    tables = ((network.first[:, None], 0), (network.next, network.n_hosts))
    for entries, node in tables:
        begins = np.where(
            entries >= 0,
            network.link_from[np.maximum(entries, 0)],
            origin[np.clip(-1 - entries, 0, len(origin) - 1)],
        )
        wrong = np.argwhere(begins != np.arange(node, node + len(entries))[:, None])
        if len(wrong):
            i, dst = wrong[0]
            raise DataError(
                f"routes: node {node + i} is to send to host {dst} by a link of node {begins[i, dst]}"
            )
