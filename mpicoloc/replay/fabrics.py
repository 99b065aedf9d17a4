"""Simulated networks from fat-trees of `mpicoloc.network.topology`, and from a single switch."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.topology import Topology
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network.topology import xgft
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay.network import ROUTINGS, Ints, Lanes, SimulatedNetwork, equal_lanes

MAX_ROUTES = 1 << 28
"""Most routes, switches times hosts, of a network; they take a GiB."""

Link = tuple[int, int]
"""Level and number of a link of a fat-tree (see `xgft`)."""


@dataclass(frozen=True)
class Hardware:
    """What a topology does not say: latencies, buffers and lanes.

    Parameters
    ----------
    cable_latency_s : float
        Of each link, or one per level, hosts' links first.
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
    """The network of a fabric; each link of the topology becomes two, up and down.

    Directed links are numbered level by level from the hosts: all up, in the order of `xgft`, then all down.

    Raises `UsageError` if the routing is unknown, or the latencies are not one per level. Raises `DataError`
    if the network is too large, a failed link does not exist, or a host cannot be reached any more.
    """
    if routing not in ROUTINGS:
        raise UsageError(f"routing must be one of {', '.join(ROUTINGS)}, got {routing!r}")
    tree, hardware = fabric.topology, hardware or Hardware()
    if tree.n_switches * tree.n_hosts > MAX_ROUTES:
        raise DataError(
            f"{tree} has {tree.n_switches} switches and {tree.n_hosts} hosts, more than {MAX_ROUTES} routes: "
            "too many to simulate packets"
        )
    wires = _Wires(tree)
    table, sets, divisors = _routes(wires, _alive(tree, failed))
    begin, end, level = wires.ends()
    return SimulatedNetwork(
        n_hosts=tree.n_hosts,
        n_switches=tree.n_switches,
        link_from=begin,
        link_to=end,
        link_level=level,
        link_bps=np.array(tree.capacity_bps)[level],
        link_latency_ps=_latencies(tree, hardware)[level],
        first=_first(wires, sets, divisors),
        next=table,
        sets=tuple(sets),
        set_divisors=tuple(divisors),
        n_paths=tree.subtree_roots(tree.height),
        routing=routing,
        lanes=hardware.lanes,
        switch_latency_ps=round(hardware.switch_latency_s * 1e12),
        flit_bytes=hardware.flit_bytes,
        is_voq=hardware.is_voq,
        input_speedup=hardware.input_speedup,
        node_names=_node_names(fabric),
    )


def crossbar(n_hosts: int, link_bps: float, hardware: Hardware | None = None) -> SimulatedNetwork:
    """Every host on one switch, by which T_base is defined (Jokanovic 2014, Table 3.2)."""
    if hardware is not None and isinstance(hardware.cable_latency_s, tuple):
        hardware = replace(hardware, cable_latency_s=hardware.cable_latency_s[0])
    return of_fabric(Fabric(Topology((n_hosts,), (1,), (link_bps,))), "d-mod-k", hardware)


def with_tables(network: SimulatedNetwork, next_link: Ints) -> SimulatedNetwork:
    """The same network with fixed routes, such as those of a subnet manager.

    Shapes: `next_link` (n_switches, n_hosts). Raises `DataError` if a link is missing, or packets would go
    round in a circle.
    """
    if np.min(next_link) < 0:
        raise DataError("forwarding tables: every switch needs a link to every host")
    fixed = replace(network, next=next_link, routing="d-mod-k")
    _check_arrival(fixed)
    return fixed


def _check_arrival(network: SimulatedNetwork) -> None:
    """Follow the tables from each switch to each host."""
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


def with_next_nodes(network: SimulatedNetwork, next_node: Ints) -> SimulatedNetwork:
    """The same network with the routes of forwarding tables (`topology.forwarding.parse`).

    Shapes: `next_node` (n_switches, n_hosts). Raises `DataError` if there is no such link, or as of
    `with_tables`.
    """
    n_nodes = network.n_hosts + network.n_switches
    ends = network.link_from.astype(np.int64) * n_nodes + network.link_to
    order = np.argsort(ends)
    wanted = np.arange(network.n_hosts, n_nodes)[:, None] * n_nodes + np.maximum(next_node, 0)
    links = order[np.minimum(np.searchsorted(ends, wanted, sorter=order), len(order) - 1)]
    # A set's first link leads to every host that the set does.
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


def up_link(tree: Topology, level: int, number: int) -> int:
    """Number in a `SimulatedNetwork` of a link's upward direction; the other is `n_links(level)` further."""
    return 2 * sum(tree.n_links(below) for below in range(level)) + number


class _Wires:
    """Numbers of nodes and links of a tree in a simulated network."""

    def __init__(self, tree: Topology) -> None:
        self.tree = tree
        levels = range(tree.height)
        sizes = [tree.n_nodes(level) for level in range(tree.height + 1)]
        self.first_node = np.cumsum([0, *sizes]).tolist()
        self.up = [up_link(tree, level, 0) for level in levels]
        self.down = [up + tree.n_links(level) for level, up in enumerate(self.up)]

    def ends(self) -> tuple[Ints, Ints, Ints]:
        begin, end, levels = [], [], []
        for level in range(self.tree.height):
            lower, upper = xgft.link_ends(self.tree, level)
            lower, upper = lower + self.first_node[level], upper + self.first_node[level + 1]
            begin += [lower, upper]
            end += [upper, lower]
            levels += [level] * (2 * len(lower))
        return np.concatenate(begin), np.concatenate(end), np.array(levels)

    def down_links(self, level: int) -> NDArray[np.int64]:
        """Link of each switch of a level towards each host below it, and of others somewhere else."""
        switches, hosts = np.arange(self.tree.n_nodes(level))[:, None], np.arange(self.tree.n_hosts)
        roots = self.tree.subtree_roots(level)
        return hosts // self.tree.subtree_hosts(level - 1) * roots + switches % roots

    def is_below(self, level: int) -> NDArray[np.bool_]:
        """Whether each host is below each switch of a level."""
        trees = np.arange(self.tree.n_nodes(level))[:, None] // self.tree.subtree_roots(level)
        return np.asarray(np.arange(self.tree.n_hosts) // self.tree.subtree_hosts(level) == trees)

    def up_links(self, level: int) -> NDArray[np.int64]:
        """Links of each node of a level to those above, in the order of its ports, shape (n_nodes, w)."""
        roots = self.tree.subtree_roots(level)
        tree, copy = np.divmod(np.arange(self.tree.n_nodes(level)), roots)
        ports = np.arange(self.tree.w[level])
        return (tree * self.tree.subtree_roots(level + 1) + copy)[:, None] + roots * ports


def _alive(tree: Topology, failed: Collection[Link]) -> list[NDArray[np.bool_]]:
    alive = [np.ones(tree.n_links(level), dtype=bool) for level in range(tree.height)]
    for level, number in failed:
        if not (0 <= level < tree.height and 0 <= number < tree.n_links(level)):
            raise DataError(f"failed link {number} of level {level}: {tree} has none of that number")
        alive[level][number] = False
    return alive


def _routes(wires: _Wires, alive: list[NDArray[np.bool_]]) -> tuple[Ints, list[Ints], list[int]]:
    """Table of routes, and the sets of up-links from which the routing chooses, with their divisors."""
    tree = wires.tree
    reaches = _reaching_down(wires, alive)
    table = np.zeros((tree.n_switches, tree.n_hosts), dtype=np.int32)
    sets: list[Ints] = []
    divisors: list[int] = []
    arrives = reaches[tree.height]
    for level in range(tree.height, 0, -1):
        begin = wires.first_node[level] - tree.n_hosts
        rows = table[begin : begin + tree.n_nodes(level)]
        rows[:] = wires.down[level - 1] + wires.down_links(level)
        if level < tree.height:
            arrives = _up_routes(
                wires, level, (alive[level], reaches[level], arrives), (rows, sets, divisors)
            )
    for host in range(tree.n_hosts):
        switches = xgft.link_ends(tree, 0)[1][wires.up_links(0)[host][alive[0][wires.up_links(0)[host]]]]
        lost = np.flatnonzero(~arrives[switches].all(axis=0)) if len(switches) else np.array([host])
        lost = lost[lost != host] if len(switches) else lost
        if len(lost):
            raise DataError(
                f"failed links: host {host} cannot reach host {lost[0]} any more: fail fewer links"
            )
    return table, sets, divisors


def _reaching_down(wires: _Wires, alive: list[NDArray[np.bool_]]) -> list[NDArray[np.bool_]]:
    """Whether each node of each level reaches each host by going down, which is possible on one way only."""
    tree = wires.tree
    reaches = [np.eye(tree.n_hosts, dtype=bool)]
    hosts = np.arange(tree.n_hosts)
    for level in range(1, tree.height + 1):
        links = wires.down_links(level)
        child = xgft.link_ends(tree, level - 1)[0][links]
        reaches.append(wires.is_below(level) & alive[level - 1][links] & reaches[level - 1][child, hosts])
    return reaches


def _up_routes(
    wires: _Wires,
    level: int,
    known: tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]],
    routes: tuple[Ints, list[Ints], list[int]],
) -> NDArray[np.bool_]:
    """Fill in the routes up of a level's switches. Returns whether each switch of it arrives at each host."""
    (alive, reaches, above_arrives), (rows, sets, divisors) = known, routes
    links = wires.up_links(level)
    parents = xgft.link_ends(wires.tree, level)[1]
    arrives = reaches.copy()
    for switch, own in enumerate(links):
        leads = alive[own][:, None] & above_arrives[parents[own]]
        goes_up = ~reaches[switch]
        patterns, which = _distinct(leads[:, goes_up])
        entries = np.empty(patterns.shape[1], dtype=np.int32)
        for i, pattern in enumerate(patterns.T):
            sets.append((wires.up[level] + own[pattern if pattern.any() else slice(None)]).astype(np.int32))
            divisors.append(wires.tree.subtree_roots(level))
            entries[i] = -len(sets)
        rows[switch, goes_up] = entries[which]
        arrives[switch] |= leads.any(axis=0)
    return arrives


def _distinct(columns: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Distinct columns, and which of them each is; mostly they are all alike, which is seen at once."""
    if columns.all():
        return columns[:, :1], np.zeros(columns.shape[1], dtype=np.int64)
    patterns, which = np.unique(columns, axis=1, return_inverse=True)
    return patterns, which.ravel()


def _first(wires: _Wires, sets: list[Ints], divisors: list[int]) -> Ints:
    """Links of the hosts; those with several get a set each."""
    links = wires.up_links(0)
    if links.shape[1] == 1:
        return links[:, 0].astype(np.int32)
    first = -len(sets) - 1 - np.arange(len(links), dtype=np.int32)
    sets += list(links.astype(np.int32))
    divisors += [1] * len(links)
    return first


def _latencies(tree: Topology, hardware: Hardware) -> NDArray[np.int64]:
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
