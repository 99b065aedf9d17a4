"""Networks with named nodes, made from a graph: an XGFT if the graph is one, else an irregular network."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.network import MAX_HEIGHT, Hosts, Placement, Topology, prefix_products, shown
from mpicoloc.errors import DataError
from mpicoloc.network.topology import irregular
from mpicoloc.network.topology.graph import Graph, distances, likely_levels, natural_key
from mpicoloc.network.topology.irregular import Irregular


@dataclass(frozen=True)
class Fabric:
    """A network with named nodes.

    Parameters
    ----------
    topology : Topology or Irregular
    host_names : tuple of str
        Names of hosts 0, 1, ..., with "" for each free port of a first-level switch; empty if hosts have no
        names.
    switch_names : tuple of tuple of str
        Names of the switches of level 1, 2, ...; empty if switches have no names.
    assumed_levels : tuple of int
        Levels whose link capacity comes from the caller, because the file lacks it.
    assumes_up_links : bool
        Whether one up-link per switch is assumed, because the file lacks their number.
    file_notes : tuple of str
        Notes on parts of the file that are not used.
    """

    topology: Topology | Irregular
    host_names: tuple[str, ...] = ()
    switch_names: tuple[tuple[str, ...], ...] = ()
    assumed_levels: tuple[int, ...] = ()
    assumes_up_links: bool = False
    file_notes: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the network, to print with results."""
        if isinstance(self.topology, Topology):
            return self.file_notes
        return (
            *self.file_notes,
            f"{self.topology}: no XGFT, because {self.topology.reason.removeprefix('network: ')}; routes are "
            "the shortest paths up and then down over the existing links",
        )

    def hosts(self) -> Hosts:
        """Numbers of the existing hosts, without free ports."""
        if not self.host_names:
            return np.arange(self.topology.n_hosts)
        return np.flatnonzero([bool(name) for name in self.host_names])


def placement_of(fabric: Fabric, hostnames: Iterable[str]) -> Placement:
    """Placement of ranks on hosts with these names, looked up by `host_finder`.

    Raises `DataError` if the fabric lacks a name, or has no names at all.
    """
    host = host_finder(fabric)
    return Placement(np.array([host(name, rank) for rank, name in enumerate(hostnames)], dtype=np.int64))


def host_finder(fabric: Fabric) -> Callable[..., int]:
    """A function that returns a host's number by its name: ``host(name, rank, where="placement")``.

    The whole name is looked up first. If no host has it, the name up to the first dot is looked up, and must
    belong to only one host. IP addresses are always compared as a whole.

    Raises `DataError` if the fabric has no names. The returned function raises `DataError` for a name that
    the fabric lacks.
    """
    if not fabric.host_names:
        raise DataError(
            f"{fabric.topology}: its hosts have no names: give another placement, or a file with names"
        )
    number = {name: i for i, name in enumerate(fabric.host_names) if name}
    times = Counter(_short(name) for name in number)
    short = {_short(name): i for name, i in number.items() if times[_short(name)] == 1}

    def host(name: str, rank: int, where: str = "placement") -> int:
        i_host = number.get(name, short.get(_short(name)))
        if i_host is not None:
            return i_host
        why = "the name of several hosts" if times[_short(name)] > 1 else "unknown to the topology"
        raise DataError(
            f"{where}: rank {rank} is on host {shown(name)}, {why}; the "
            f"topology's first hosts are {shown(', '.join(list(number)[:4]))}: give the topology of the "
            "job's cluster"
        )

    return host


def _short(name: str) -> str:
    """A host's name without its domain."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.split(".")[0]
    return name


def recognise(graph: Graph, capacity_bps: float | Sequence[float]) -> Fabric:
    """The XGFT of a graph, or else its irregular network.

    First-level switches of an XGFT can have different numbers of hosts; in all other respects the XGFT must
    be complete. Parallel links between two nodes count as one link with the sum of their capacities. All
    links of a level of an XGFT must have the same capacity.

    Raises `UsageError` if the numbers of capacities and levels differ. Raises `DataError` if the network
    is not connected.
    """
    level_of = distances(graph)
    try:
        return _xgft(graph, level_of, capacity_bps)
    except DataError as error:
        reason = str(error)
    likely = dict(graph.levels) or likely_levels(graph)
    try:
        if likely != level_of:
            return _xgft(graph, likely, capacity_bps)
    except DataError as error:
        reason = str(error)
    found = irregular.of_graph(graph, likely, capacity_bps, reason)
    names = found.names[: found.n_hosts], found.names[found.n_hosts :]
    return Fabric(found, names[0], names[1:], irregular.assumed_levels(graph, likely))


def _xgft(graph: Graph, level_of: dict[str, int], capacity_bps: float | Sequence[float]) -> Fabric:
    """The XGFT of a graph whose nodes have these levels.

    Raises `DataError` if the graph is not an XGFT; the message names the first misfit (link, node or level).
    """
    _check_levels(graph, level_of)
    wiring = _Wiring(graph, level_of)
    rates = irregular.rates_of_levels(capacity_bps, wiring.height)
    topology = Topology(wiring.m, wiring.w, tuple(map(wiring.capacity, wiring.below, rates)))
    _check_counts(wiring, topology)
    try:
        copies = _copy_numbers(wiring, topology)
        trees = _subtree_numbers(wiring, topology, copies)
        names = _names_by_number(wiring, topology, copies, trees)
    except KeyError as error:
        raise DataError(
            f"network: the links of {graph.shown(error.args[0])} are not those of {topology}, which has the "
            "same numbers of neighbours: the network is not wired as an XGFT"
        ) from None
    return Fabric(topology, names[0], names[1:], irregular.assumed_levels(graph, level_of))


def _check_levels(graph: Graph, level_of: dict[str, int]) -> None:
    for node, ports in graph.ports.items():
        for other, _ in ports:
            if abs(level_of[other] - level_of[node]) != 1:
                raise DataError(
                    f"network: a link joins {graph.shown(node)} of level {level_of[node]} and "
                    f"{graph.shown(other)} of level {level_of[other]}: an XGFT has links between adjacent "
                    "levels only"
                )


class _Wiring:
    """Neighbours above and below each node in port order, and the degrees of each level's nodes."""

    def __init__(self, graph: Graph, level_of: dict[str, int]) -> None:
        self.graph = graph
        self.height = max(level_of.values())
        if not 1 <= self.height <= MAX_HEIGHT:
            raise DataError(
                f"network: the number of switch levels must be in [1, {MAX_HEIGHT}], got {self.height}"
            )
        self.below = range(self.height)
        self.nodes: list[list[str]] = [[] for _ in range(self.height + 1)]
        for node in graph.ports:
            self.nodes[level_of[node]].append(node)
        self.up = {node: self._neighbours(node, level_of, +1) for node in graph.ports}
        self.down = {node: self._neighbours(node, level_of, -1) for node in graph.ports}
        self.w = tuple(self._degree(self.up, level, "up") for level in self.below)
        most_hosts = max(len(self.down[node]) for node in self.nodes[1])
        upper = range(2, self.height + 1)
        self.m = (most_hosts, *(self._degree(self.down, level, "down") for level in upper))

    def _neighbours(self, node: str, level_of: dict[str, int], step: int) -> list[str]:
        level = level_of[node] + step
        return list(dict.fromkeys(other for other, _ in self.graph.ports[node] if level_of[other] == level))

    def _degree(self, neighbours: dict[str, list[str]], level: int, way: str) -> int:
        """The number of neighbours of each node of a level, which must be the same for all nodes."""
        number, first = len(neighbours[self.nodes[level][0]]), self.nodes[level][0]
        for node in self.nodes[level]:
            if len(neighbours[node]) != number:
                raise DataError(
                    f"network: {self.graph.shown(first)} of level {level} has {number} neighbours {way}, "
                    f"{self.graph.shown(node)} has {len(neighbours[node])}: all nodes of an XGFT level "
                    "have the same number"
                )
        return number

    def capacity(self, level: int, default_bps: float) -> float:
        """Bytes/s between two neighbours, which must be the same for all neighbours on the level."""
        first: tuple[float, str, str] | None = None
        for node in self.nodes[level]:
            above, total = set(self.up[node]), Counter[str]()
            for other, capacity_bps in self.graph.ports[node]:
                if other in above:
                    total[other] += capacity_bps or default_bps  # type: ignore[assignment]
            for other, capacity in total.items():
                first = first or (capacity, node, other)
                if capacity != first[0]:
                    ends = (first[1], first[2], node, other)
                    a, b, c, d = (self.graph.shown(end) for end in ends)
                    raise DataError(
                        f"network: links of level {level} differ: {a} to {b} carries {first[0]:g} bytes/s, "
                        f"{c} to {d} carries {capacity:g}: the links of an XGFT level have the same capacity"
                    )
        assert first is not None
        return first[0]


def _check_counts(wiring: _Wiring, topology: Topology) -> None:
    for level in range(1, topology.height + 1):
        n_switches = len(wiring.nodes[level])
        if n_switches != topology.n_nodes(level):
            raise DataError(
                f"network: {n_switches} switches on level {level}, but the links imply {topology}, which has "
                f"{topology.n_nodes(level)}: the network is not wired as an XGFT, or is not complete"
            )


def _copy_numbers(wiring: _Wiring, topology: Topology) -> dict[str, int]:
    """Copy number of each node: assigned upwards from one host, then downwards from the roots."""
    graph, roots = wiring.graph, prefix_products(topology.w)
    layer = {min(graph.hosts, key=lambda host: natural_key(graph.label(host))): 0}
    for level in wiring.below:
        layer = {
            other: copy + roots[level] * port
            for node, copy in layer.items()
            for port, other in enumerate(wiring.up[node])
        }
    copies = dict(layer)
    for level in range(topology.height, 0, -1):
        for node in wiring.nodes[level]:
            for child in wiring.down[node]:
                copies.setdefault(child, copies[node] % roots[level - 1])
    return copies


def _subtree_numbers(wiring: _Wiring, topology: Topology, copies: dict[str, int]) -> dict[str, int]:
    """Subtree number of each node: assigned downwards from the first root, then upwards to other copies."""
    trees = {node: 0 for node in wiring.nodes[topology.height] if copies[node] == 0}
    for level in range(topology.height, 0, -1):
        for node in wiring.nodes[level]:
            if copies[node] == 0:
                for digit, child in enumerate(wiring.down[node]):
                    trees.setdefault(child, trees[node] * topology.m[level - 1] + digit)
    for level, nodes in enumerate(wiring.nodes):
        for node in nodes:
            if node not in trees:
                # Every host is below a switch of copy 0. A switch of another copy is above the same nodes as
                # a switch of copy 0.
                below = wiring.down[node] or [node]
                trees[node] = trees[below[0]] // topology.m[level - 1]
    return trees


def _names_by_number(
    wiring: _Wiring, topology: Topology, copies: dict[str, int], trees: dict[str, int]
) -> tuple[tuple[str, ...], ...]:
    """Names of the nodes of each level in the order of their numbers.

    Raises `KeyError`, with the node, if a node's links or number do not fit the topology.
    """
    for level in wiring.below:
        roots = topology.subtree_roots(level)
        for node in wiring.nodes[level]:
            for other in wiring.up[node]:
                same_tree = trees[node] // topology.m[level] == trees[other]
                if not (same_tree and copies[other] % roots == copies[node]):
                    raise KeyError(node)
    names = []
    for level, nodes in enumerate(wiring.nodes):
        row = [""] * topology.n_nodes(level)
        for node in nodes:
            number = trees[node] * topology.subtree_roots(level) + copies[node]
            if row[number]:
                raise KeyError(node)
            row[number] = wiring.graph.label(node)
        names.append(tuple(row))
    return tuple(names)
