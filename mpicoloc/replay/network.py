"""A network for the packet simulator: plain arrays of nodes, links and routes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.network import Levelled, Topology
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network.topology import up_down
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.network.topology.irregular import Irregular
from mpicoloc.network.topology.up_down import DirectedLinks, Ints32, Tables
from mpicoloc.replay import native

Table = tuple[tuple[int, int], ...]
"""Rows (lane, weight) of an arbitration table."""

NO_LIMIT = 255
MAX_WEIGHT = 255


@dataclass(frozen=True)
class Lanes:
    """Configuration of lanes, the same at every port of a network.

    Parameters
    ----------
    input_bytes : tuple of int
        Buffer of each lane at the receiving end of a link, which sets the sender's credits.
    output_bytes : tuple of int
        Buffer of each lane at the sending end of a switch's link.
    lane_of_level : tuple of int
        Lane of service level 0, 1, ...
    high, low : tuple of (int, int)
        Rows (lane, weight) of the two arbitration tables. If `low` is empty, it gets all lanes that `high`
        lacks, with weight 1.
    high_limit : int
        Amount that lanes of high priority may send before one packet of low priority, in units of 4096 bytes;
        255: no limit, 0: one packet.
    weight_unit_bytes : int
        Bytes that a weight of 1 stands for: 64 as in the standard; 0 if weights count packets, as in the
        thesis.

    Raises
    ------
    DataError
        If a number is out of range, or a lane in use has no weight above 0 in either table.

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
                f"lanes: {self.n} input buffers, but {len(self.output_bytes)} output buffers: give as many"
            )
        if not self.low:
            rest = tuple((lane, 1) for lane in range(self.n) if lane not in {vl for vl, _ in self.high})
            object.__setattr__(self, "low", rest)
        if not 1 <= len(self.lane_of_level) <= native.RP_MAX_SL:
            raise DataError(f"lanes: the number of service levels must be in [1, {native.RP_MAX_SL}]")
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
                f"lanes: the weight unit must be 0 (packets) or 64 (bytes), got {self.weight_unit_bytes}"
            )

    @property
    def n(self) -> int:
        """Number of lanes."""
        return len(self.input_bytes)

    def _check_weights(self) -> None:
        """Check weights: every lane in use must be served."""
        for lane, weight in (*self.high, *self.low):
            if not 0 <= weight <= MAX_WEIGHT:
                raise DataError(f"lanes: weight of lane {lane} must be in [0, {MAX_WEIGHT}], got {weight}")
        served = {lane for lane, weight in (*self.high, *self.low) if weight}
        for level, lane in enumerate(self.lane_of_level):
            if lane not in served:
                raise DataError(
                    f"lanes: lane {lane} of service level {level} has no weight above 0, so its packets "
                    "would wait for ever: give it a weight"
                )


def equal_lanes(n: int = 1, total_bytes: int = 65536, weights: tuple[int, ...] = ()) -> Lanes:
    """`n` lanes that share a port's buffers of `total_bytes` equally; service level i uses lane i."""
    each = (total_bytes // n,) * n
    low = tuple(enumerate(weights or (1,) * n))
    return Lanes(each, each, tuple(range(n)), low=low)


ROUTINGS = ("d-mod-k", "s-mod-k", "random-flow", "random", "adaptive")
"""Routings in the order of `enum rp_routing`; ``random`` draws a path for each packet.

The routing has no effect on tables without sets of alternative links."""


@dataclass(frozen=True)
class SimulatedNetwork:
    """Hosts, switches, directed links and routes. Nodes are numbered hosts first, then switches.

    Parameters
    ----------
    n_hosts, n_switches : int
    link_from, link_to : ndarray of int32, shape (n_links,)
        Nodes at both ends.
    link_level : ndarray of int32, shape (n_links,)
        Level for statistics, 0 at the hosts.
    link_bps : ndarray of float, shape (n_links,)
        Bandwidth, bytes/s.
    link_latency_ps : ndarray of int64, shape (n_links,)
        Latency of the cable, ps.
    first : ndarray of int32, shape (n_hosts,)
        Link, or set of links, by which a host sends. A set s is written -1 - s.
    next : ndarray of int32, shape (n_switches, n_hosts)
        Link, or set, by which a switch sends to a destination.
    sets : tuple of ndarray of int32
        Links of each set; the routing chooses one. A path number chooses link ``path // divisor % n``.
    set_divisors : tuple of int
    n_paths : int
        Paths are 0 .. n_paths - 1.
    routing : str
        One of `ROUTINGS`.
    lanes : Lanes
    switch_latency_ps : int
        Time from the arrival of a packet's first flit until the switch can send it on, ps.
    flit_bytes : int
        Bytes of a packet that a switch must have before it sends the packet on. A value of at least the MTU
        means store and forward.
    is_voq : bool
        Whether a packet in an input buffer waits only for its output (virtual output queues). Otherwise the
        buffer of a lane is a FIFO, in which packets also wait for packets ahead with other outputs.
    input_speedup : float
        Rate at which an input port of a switch passes packets to outputs, one packet at a time, divided by
        the rate of the port's link. If it is infinite, the switch fabric causes no delay.
    node_names : tuple of str
        Names for messages, hosts first; can be empty.

    Raises
    ------
    DataError
        If the shapes of arrays do not match, or a number is out of range.
    """

    n_hosts: int
    n_switches: int
    link_from: Ints32
    link_to: Ints32
    link_level: Ints32
    link_bps: NDArray[np.float64]
    link_latency_ps: NDArray[np.int64]
    first: Ints32
    next: Ints32
    sets: tuple[Ints32, ...] = ()
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
        """Number of directed links."""
        return len(self.link_from)

    @property
    def n_levels(self) -> int:
        """Number of levels of links."""
        return int(self.link_level.max()) + 1

    @property
    def has_tables(self) -> bool:
        """Whether switches use a fixed link for each host, although several links lead there."""
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
        raise DataError("simulated network: first needs an entry per host, next one per switch and host")
    if network.routing not in ROUTINGS:
        raise DataError(f"routing must be one of {', '.join(ROUTINGS)}, got {network.routing!r}")
    for name in ("link_from", "link_to"):
        ends = getattr(network, name)
        if n_links == 0 or ends.min() < 0 or ends.max() >= n_nodes:
            raise DataError(f"simulated network: the nodes in {name} must be in [0, {n_nodes - 1}]")
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
            raise DataError("simulated network: a set of links is empty, or has a link that does not exist")
    for name in ("first", "next"):
        entries = getattr(network, name)
        if entries.min() < -len(network.sets) or entries.max() >= network.n_links:
            raise DataError(f"simulated network: {name} names a link or set that does not exist")


def _check_begins(network: SimulatedNetwork) -> None:
    """Check that each entry of a table names a link, or a set of links, that begins at the entry's node."""
    origin = np.array([network.link_from[links[0]] for links in network.sets] + [0], dtype=np.int64)
    for links in network.sets:
        if len(set(network.link_from[links].tolist())) != 1:
            raise DataError("simulated network: the links of a set begin at different nodes")
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
                f"routes: from node {node + i} to host {dst}, the next link begins at node {begins[i, dst]}"
            )


Link = tuple[int, int]
"""Level and number of a link of a fat-tree (see `core.network`)."""


@dataclass(frozen=True)
class Hardware:
    """Properties of hardware that a topology does not give: latencies, buffers and lanes.

    Parameters
    ----------
    cable_latency_s : float
        Latency of all links, or one per level, hosts' links first, s.
    switch_latency_s : float
    flit_bytes : int
    lanes : Lanes
    is_voq : bool
    input_speedup : float
        See `SimulatedNetwork`.
    """

    cable_latency_s: float | tuple[float, ...] = 25e-9
    switch_latency_s: float = 100e-9
    flit_bytes: int = 256
    lanes: Lanes = field(default_factory=equal_lanes)
    is_voq: bool = False
    input_speedup: float = math.inf


def of_fabric(
    fabric: Fabric,
    routing: str = "random",
    hardware: Hardware | None = None,
    failed: Collection[Link] = (),
) -> SimulatedNetwork:
    """The network of a fabric. Each link of the topology becomes two directed links, up and down.

    Directed links are numbered level by level, beginning at the hosts. In each level, all links up come
    first, in the order of `core.network`, followed by all links down.

    Raises `UsageError` if the routing is unknown, or the numbers of latencies and levels differ. Raises
    `DataError` if the network is too large, a failed link does not exist, or failures cut off a host.
    """
    if routing not in ROUTINGS:
        raise UsageError(f"routing must be one of {', '.join(ROUTINGS)}, got {routing!r}")
    tree, hardware = fabric.topology, hardware or Hardware()
    if tree.n_switches * tree.n_hosts > up_down.MAX_ROUTES:
        raise DataError(
            f"{tree} has {tree.n_switches} switches and {tree.n_hosts} hosts, so more than "
            f"{up_down.MAX_ROUTES} routes: too many to simulate packets"
        )
    links = up_down.directed_links(tree)
    routes = _routes(fabric, links, failed)
    return SimulatedNetwork(
        n_hosts=tree.n_hosts,
        n_switches=tree.n_switches,
        link_from=links.begin,
        link_to=links.end,
        link_level=links.level,
        link_bps=np.concatenate([np.tile(tree.link_bps(level), 2) for level in range(tree.height)]),
        link_latency_ps=_latencies(tree, hardware)[links.level],
        first=routes.first,
        next=routes.next,
        sets=routes.sets,
        set_divisors=tuple(tree.set_divisor(int(links.begin[one[0]])) for one in routes.sets),
        n_paths=tree.n_paths,
        routing=routing,
        lanes=hardware.lanes,
        switch_latency_ps=round(hardware.switch_latency_s * 1e12),
        flit_bytes=hardware.flit_bytes,
        is_voq=hardware.is_voq,
        input_speedup=hardware.input_speedup,
        node_names=_node_names(fabric),
    )


def crossbar(n_hosts: int, link_bps: float, hardware: Hardware | None = None) -> SimulatedNetwork:
    """All hosts on one switch, the network that defines T_base (Jokanovic 2014, Table 3.2)."""
    if hardware is not None and isinstance(hardware.cable_latency_s, tuple):
        hardware = replace(hardware, cable_latency_s=hardware.cable_latency_s[0])
    return of_fabric(Fabric(Topology((n_hosts,), (1,), (link_bps,))), "d-mod-k", hardware)


def with_tables(network: SimulatedNetwork, next_link: Ints32) -> SimulatedNetwork:
    """The same network with fixed routes, such as those of a subnet manager.

    Shapes: `next_link` (n_switches, n_hosts). Raises `DataError` if a link is missing, or a route is a
    loop.
    """
    if np.min(next_link) < 0:
        raise DataError("forwarding tables: every switch needs an entry for every host")
    fixed = replace(network, next=next_link, routing="d-mod-k")
    _check_arrival(fixed)
    return fixed


def _check_arrival(network: SimulatedNetwork) -> None:
    """Check that the tables lead from each switch to each host."""
    hosts = np.arange(network.n_hosts)
    nodes = np.tile(np.arange(network.n_switches)[:, None] + network.n_hosts, (1, network.n_hosts))
    for _ in range(network.n_switches):
        is_switch = nodes >= network.n_hosts
        links = network.next[np.maximum(nodes - network.n_hosts, 0), hosts]
        nodes = np.where(is_switch, network.link_to[links], nodes)
        if (nodes == hosts).all():
            return
    switch, host = np.argwhere(nodes != hosts)[0]
    raise DataError(
        f"forwarding tables: packets from {network.node_name(network.n_hosts + switch)} to "
        f"{network.node_name(host)} never arrive: give the tables of this fabric"
    )


def with_next_nodes(network: SimulatedNetwork, next_node: Ints32) -> SimulatedNetwork:
    """The same network with the routes of forwarding tables (`network.files.parse`).

    Shapes: `next_node` (n_switches, n_hosts). Raises `DataError` if there is no such link, or as
    `with_tables` does.
    """
    n_nodes = network.n_hosts + network.n_switches
    ends = network.link_from.astype(np.int64) * n_nodes + network.link_to
    order = np.argsort(ends)
    wanted = np.arange(network.n_hosts, n_nodes)[:, None] * n_nodes + np.maximum(next_node, 0)
    links = order[np.minimum(np.searchsorted(ends, wanted, sorter=order), len(order) - 1)]
    # The first link of a set leads to all hosts of the set.
    firsts = np.array([links_of_set[0] for links_of_set in network.sets] or [0], dtype=np.int64)
    sets = np.clip(-1 - network.next, 0, len(firsts) - 1)
    own = np.where(network.next >= 0, network.next, firsts[sets])
    if (wrong := np.argwhere((ends[links] != wanted) & (next_node >= 0))).size:
        switch, host = wrong[0]
        raise DataError(
            f"forwarding tables: no link leads from {network.node_name(network.n_hosts + switch)} to "
            f"{network.node_name(next_node[switch, host])}: give the tables of this fabric"
        )
    return with_tables(network, np.where(next_node >= 0, links, own))


def _routes(fabric: Fabric, links: DirectedLinks, failed: Collection[Link]) -> Tables:
    """Tables of routes that avoid failed links."""
    tree = fabric.topology
    is_alive = np.ones(len(links.begin), dtype=bool)
    for level, number in failed:
        if not (0 <= level < tree.height and 0 <= number < tree.n_links(level)):
            raise DataError(f"failed link {number} of level {level}: {tree} has no such link")
        up = up_down.up_link(tree, level, number)
        is_alive[[up, up + tree.n_links(level)]] = False
    if not failed and isinstance(tree, Irregular):
        return tree.tables
    try:
        return up_down.tables(tree, links, is_alive)
    except up_down.Unreachable as error:
        src, dst = (fabric.host_names[host] if fabric.host_names else host for host in (error.src, error.dst))
        raise DataError(
            f"failed links: host {src} cannot reach host {dst} any more: fail fewer links"
        ) from None


def _latencies(tree: Levelled, hardware: Hardware) -> NDArray[np.int64]:
    given = hardware.cable_latency_s
    each: Sequence[float] = given if isinstance(given, tuple) else (given,) * tree.height
    if len(each) != tree.height:
        raise UsageError(
            f"{len(each)} cable latencies for {tree.height} levels: give one for all, or one per level"
        )
    return np.array([round(latency_s * 1e12) for latency_s in each])


def _node_names(fabric: Fabric) -> tuple[str, ...]:
    """Names for messages, in the order of the nodes; empty if the fabric has none."""
    if not fabric.host_names or not fabric.switch_names:
        return ()
    return (*fabric.host_names, *(name for row in fabric.switch_names for name in row))
