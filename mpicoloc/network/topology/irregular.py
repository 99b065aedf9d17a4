"""A network that is not an XGFT: any connected graph of hosts and switches, with up*/down* routing."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.network import MAX_HEIGHT, Crossing, shown
from mpicoloc.core.profile import Floats, Ints
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network.topology import up_down
from mpicoloc.network.topology.graph import Graph, natural_key

N_PATHS = 1 << 30
"""Number of paths: large enough to spread almost evenly over any number of links."""
_MAX_DIVISOR = 1 << 20


@dataclass(frozen=True, eq=False)
class Irregular:
    """A network whose nodes have levels and whose links have an upper end (`core.network.Levelled`).

    Parameters
    ----------
    n_hosts : int
    names : tuple of str
        Name of each node, hosts first, then switches level by level.
    node_level, rank : ndarray of int, shape (n_nodes,)
        Level of each node, and its place in the order that defines which end of a link is up.
    lower, upper : ndarray of int, shape (n_links,)
        Nodes at both ends of each link, sorted by level. A link has the level of its lower end, or of both
        ends if they are on the same level.
    link_level : ndarray of int, shape (n_links,)
    bps : ndarray of float, shape (n_links,)
    subtrees : ndarray of int, shape (height, n_nodes)
        Subtree of each node on each level; -1 for nodes above that level, and for subtrees without hosts.
    reason : str
        Why the network is not an XGFT: the first property found that an XGFT cannot have.
    """

    n_hosts: int
    names: tuple[str, ...]
    node_level: Ints
    rank: Ints
    lower: Ints
    upper: Ints
    link_level: Ints
    bps: Floats
    subtrees: Ints
    reason: str

    def __str__(self) -> str:
        """Short description for messages."""
        return f"irregular network of {self.n_hosts} hosts and {self.n_switches} switches"

    @property
    def height(self) -> int:
        """See `Levelled`."""
        return len(self.subtrees)

    @property
    def n_switches(self) -> int:
        """See `Levelled`."""
        return len(self.names) - self.n_hosts

    @property
    def n_paths(self) -> int:
        """See `Levelled`."""
        return N_PATHS

    @functools.cached_property
    def leaf_hosts(self) -> int:
        """See `Levelled`."""
        return int(np.bincount(self.subtree(1, np.arange(self.n_hosts))).max())

    @functools.cached_property
    def capacity_bps(self) -> tuple[float, ...]:
        """See `Levelled`."""
        return tuple(float(self.link_bps(level).min()) for level in range(self.height))

    def _of_level(self, level: int) -> slice:
        return slice(*np.searchsorted(self.link_level, [level, level + 1]).tolist())

    def n_links(self, level: int) -> int:
        """See `Levelled`."""
        return int(np.count_nonzero(self.link_level == level))

    def ends(self, level: int) -> tuple[Ints, Ints]:
        """See `Levelled`."""
        return self.lower[self._of_level(level)], self.upper[self._of_level(level)]

    def link_bps(self, level: int) -> Floats:
        """See `Levelled`."""
        return self.bps[self._of_level(level)]

    def end_names(self, level: int, link: int) -> tuple[str, str]:
        """See `Levelled`."""
        lower, upper = (int(ends[link]) for ends in self.ends(level))
        return self.names[lower], self.names[upper]

    @functools.cached_property
    def _divisors(self) -> list[int]:
        """For each level, the product of the largest number of up-links of a node on each lower level."""
        n_ups = np.bincount(self.lower, minlength=len(self.names))
        divisors = [1]
        for level in range(int(self.node_level.max())):
            most = int(n_ups[self.node_level == level].max())
            divisors.append(min(divisors[-1] * max(most, 1), _MAX_DIVISOR))
        return divisors

    def set_divisor(self, node: int) -> int:
        """See `Levelled`."""
        return self._divisors[self.node_level[node]]

    def subtree(self, level: int, hosts: Ints) -> Ints:
        """See `Levelled`; all hosts are in one subtree of the last level."""
        return self.subtrees[level, hosts] if level < self.height else np.zeros_like(hosts)

    def n_hosts_of(self, level: int, subtrees: Ints) -> int:
        """See `Levelled`."""
        return int(np.isin(self.subtree(level, np.arange(self.n_hosts)), subtrees).sum())

    def leaving_bps(self, level: int, subtrees: Ints) -> float:
        """See `Levelled`."""
        sides = [self.subtrees[level, ends] for ends in self.ends(level)]
        leaves = sides[0] != sides[1]
        return float(sum(self.link_bps(level)[leaves & np.isin(side, subtrees)].sum() for side in sides))

    @functools.cached_property
    def links(self) -> up_down.DirectedLinks:
        """All links in both directions."""
        return up_down.directed_links(self)

    @functools.cached_property
    def tables(self) -> up_down.Tables:
        """Routes over all links."""
        try:
            return up_down.tables(self, self.links, np.ones(len(self.links.begin), bool))
        except up_down.Unreachable as error:
            # A host sends to every destination through each of its ports in turn, so all hosts must be
            # reachable from each port.
            src, dst = (shown(self.names[host]) for host in (error.src, error.dst))
            raise DataError(
                f"network: no port of host {src} leads to all hosts; the first does not lead to {dst}: give "
                "one plane of the network, or mend the cabling"
            ) from None

    @functools.cached_property
    def _sets(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Start, size and divisor of each set of links in the tables, and the links of all sets."""
        sets = self.tables.sets
        sizes = np.array([*map(len, sets), 1])
        links = np.concatenate([*sets, [0]]).astype(np.int64)
        divisors = [self.set_divisor(int(self.links.begin[one[0]])) for one in sets]
        return np.cumsum(sizes) - sizes, sizes, np.array([*divisors, 1]), links

    def climb(self, src: Ints, dst: Ints) -> Ints:
        """Number of levels on the path of d-mod-k; see `Levelled`."""
        levels = np.zeros(np.broadcast(src, dst).shape, dtype=np.int64)
        for level, _, passes, _ in self.crossings(src, dst, dst):
            np.maximum(levels, passes * (level + 1), out=levels)
        return levels

    def crossings(self, src: Ints, dst: Ints, paths: Ints) -> Iterator[Crossing]:
        """See `Levelled`."""
        node, links, n_hosts = src, self.links, self.n_hosts
        begins = [up_down.up_link(self, level, 0) for level in range(self.height)]
        starts, sizes, divisors, members = self._sets
        while (travels := node != dst).any():
            entry = np.where(
                node < n_hosts,
                self.tables.first[np.minimum(node, n_hosts - 1)],
                self.tables.next[np.maximum(node - n_hosts, 0), dst],
            )
            chosen = np.maximum(-1 - entry, 0)
            choice = members[starts[chosen] + paths // divisors[chosen] % sizes[chosen]]
            link = np.where(entry < 0, choice, entry)
            for level, begin in enumerate(begins):
                for is_up in (True, False):
                    passes = travels & (links.level[link] == level) & (links.is_up[link] == is_up)
                    if passes.any():
                        first = begin if is_up else begin + self.n_links(level)
                        yield level, is_up, passes, np.where(passes, link - first, 0)
            node = np.where(travels, links.end[link], node)


def of_graph(
    graph: Graph, level_of: Mapping[str, int], default_bps: float | Sequence[float], reason: str
) -> Irregular:
    """The irregular network of a graph whose nodes have these levels.

    `default_bps` is the bytes/s of links whose capacity is not in the graph: one number, or one per level.
    Parallel links count as one link with the sum of their capacities. A link from a node to itself is left
    out.

    Raises `UsageError` if the numbers of capacities and levels differ. Raises `DataError` if the graph is
    not connected, or too large.
    """
    nodes = sorted(graph.ports, key=lambda node: (level_of[node], natural_key(graph.label(node))))
    level, n_hosts = np.array([level_of[node] for node in nodes]), len(graph.hosts)
    bps = _capacities(graph, nodes, level, default_bps)
    ends = np.array(list(bps), np.int64).reshape(-1, 2)
    _check(graph, nodes, level, ends)
    subtrees = np.array(
        [_components(level, ends, up_to) for up_to in range(1 + level[ends].min(axis=1).max())]
    )
    # Make the hosts of each subtree consecutive; `level` stays valid, because all hosts have level 0.
    order = np.concatenate((np.lexsort(subtrees[:, :n_hosts]), np.arange(n_hosts, len(nodes))))
    ends = np.sort(np.argsort(order)[ends], axis=1)
    subtrees = np.array([_dense(row, n_hosts) for row in subtrees[:, order]])
    rank = _rank(n_hosts, level, ends)
    ends = np.take_along_axis(ends, np.argsort(rank[ends], axis=1), axis=1)
    link_level = level[ends].min(axis=1)
    by_level = np.lexsort((ends[:, 1], ends[:, 0], link_level))
    return Irregular(
        n_hosts=n_hosts,
        names=tuple(graph.label(nodes[i]) for i in order),
        node_level=level,
        rank=rank,
        lower=ends[by_level, 0],
        upper=ends[by_level, 1],
        link_level=link_level[by_level],
        bps=np.array(list(bps.values()))[by_level],
        subtrees=subtrees,
        reason=reason,
    )


def rates_of_levels(capacity_bps: float | Sequence[float], height: int) -> tuple[float, ...]:
    """Capacities of the links of each level.

    Raises `UsageError` if the numbers of capacities and levels differ.
    """
    rates = (capacity_bps,) * height if isinstance(capacity_bps, int | float) else tuple(capacity_bps)
    if len(rates) != height:
        raise UsageError(
            f"{len(rates)} link rates for a network of {height} levels of links: give one rate per level "
            "(beginning with the hosts' links), or one rate for all levels"
        )
    return rates


def assumed_levels(graph: Graph, level_of: Mapping[str, int]) -> tuple[int, ...]:
    """Levels with a link whose capacity is not in the graph."""
    levels = {
        min(level_of[node], level_of[other])
        for node, ports in graph.ports.items()
        for other, capacity_bps in ports
        if capacity_bps is None and level_of[node] <= level_of[other] and node != other
    }
    return tuple(sorted(levels))


def _capacities(
    graph: Graph, nodes: Sequence[str], level: Ints, default_bps: float | Sequence[float]
) -> dict[tuple[int, int], float]:
    """Total bytes/s of all links between two nodes, by the nodes' numbers, the lower number first."""
    number = {node: i for i, node in enumerate(nodes)}
    links = [
        (number[node], number[other], capacity_bps)
        for node in nodes
        for other, capacity_bps in graph.ports[node]
        if number[node] < number[other]
    ]
    rates = rates_of_levels(default_bps, max((int(level[lower]) + 1 for lower, _, _ in links), default=1))
    bps: dict[tuple[int, int], float] = {}
    for lower, upper, capacity_bps in links:
        bps[lower, upper] = bps.get((lower, upper), 0.0) + (capacity_bps or rates[level[lower]])
    return bps


def _check(graph: Graph, nodes: Sequence[str], level: Ints, ends: Ints) -> None:
    n_hosts = len(graph.hosts)
    n_switches = len(nodes) - n_hosts
    if not 1 <= level.max() <= MAX_HEIGHT:
        raise DataError(
            f"network: the number of switch levels must be in [1, {MAX_HEIGHT}], got {level.max()}"
        )
    if n_hosts * n_switches > up_down.MAX_ROUTES:
        raise DataError(
            f"network: an irregular network of {n_switches} switches and {n_hosts} hosts has more than "
            f"{up_down.MAX_ROUTES} routes: give the notation of a similar fat-tree"
        )
    whole = _joined(len(nodes), ends)
    apart = np.flatnonzero(whole[:n_hosts] != whole[0])
    if len(apart):
        raise DataError(
            f"network: no path leads from host {graph.shown(nodes[0])} to host "
            f"{graph.shown(nodes[apart[0]])}: mend the cabling, or give the part of the network that jobs use"
        )


def _joined(n_nodes: int, ends: Ints) -> Ints:
    """Lowest node in the connected component of each node. Does not use SciPy: compute nodes may lack it."""
    labels = np.arange(n_nodes)
    while True:
        lowest = labels[ends].min(axis=1)
        lower = labels.copy()
        for side in (0, 1):
            np.minimum.at(lower, ends[:, side], lowest)
        lower = lower[lower]
        if (lower == labels).all():
            return labels
        labels = lower


def _components(level: Ints, ends: Ints, up_to: int) -> Ints:
    """Connected component of each node over links between levels up to `up_to`; -1 for nodes above."""
    levels = level[ends]
    inside = (levels.max(axis=1) <= up_to) & (levels[:, 0] != levels[:, 1])
    return np.where(level <= up_to, _joined(len(level), ends[inside]), -1)


def _dense(row: Ints, n_hosts: int) -> Ints:
    """Renumber subtrees in the order of their hosts; -1 for a node without such a subtree."""
    number = dict.fromkeys(row[:n_hosts].tolist())
    number = {label: i for i, label in enumerate(number)}
    return np.array([number.get(label, -1) for label in row.tolist()])


def _rank(n_hosts: int, level: Ints, ends: Ints) -> Ints:
    """The order that defines which end of a link is up: by number if possible, else towards a highest switch.

    In order of number, links lead up to higher levels. If two hosts have no common switch above them in this
    order, there is no route between them. All links then lead up towards one of the highest switches.
    """
    by_number = np.arange(len(level))
    if _all_meet(n_hosts, ends):
        return by_number
    neighbours: list[list[int]] = [[] for _ in level]
    for one, other in ends[ends[:, 0] >= n_hosts].tolist():
        neighbours[one].append(other)
        neighbours[other].append(one)
    root = len(level) - 1
    distance = {root: 0}
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for other in neighbours[node]:
            if other not in distance:
                distance[other] = distance[node] + 1
                queue.append(other)
    far = np.array([distance.get(node, len(level)) for node in range(len(level))])
    return np.argsort(np.lexsort((by_number, -far)))


def _all_meet(n_hosts: int, ends: Ints) -> bool:
    """Whether any two hosts have a common switch above them if links lead up to higher numbers."""
    n_nodes = int(ends.max()) + 1
    above = [1 << node for node in range(n_nodes)]
    ups: list[list[int]] = [[] for _ in range(n_nodes)]
    for lower, upper in ends.tolist():
        ups[lower].append(upper)
    for node in range(n_nodes - 1, -1, -1):
        for upper in ups[node]:
            above[node] |= above[upper]
    distinct = list({above[host] >> n_hosts for host in range(n_hosts)})
    return all(one & other for i, one in enumerate(distinct) for other in distinct[:i])
