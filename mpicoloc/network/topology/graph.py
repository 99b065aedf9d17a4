"""A network as a graph, and the levels of its nodes."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from mpicoloc.core.network import shown
from mpicoloc.errors import DataError

Port = tuple[str, float | None]
"""Node at the other end of a link, and the link's bytes/s in each direction, or None if unknown."""


@dataclass(frozen=True)
class Graph:
    """Nodes and links of a network, as returned by a reader of files.

    Parameters
    ----------
    hosts : tuple of str
        Identities of the hosts; every other node is a switch.
    ports : mapping of str to tuple of Port
        The other ends of each node's links, in the order of its ports; parallel links are repeated.
    labels : mapping of str to str
        Names of nodes for users; a node without a label is shown by its identity.
    levels : mapping of str to int
        Level of each node if the file gives the hierarchy of switches; else empty.
    """

    hosts: tuple[str, ...]
    ports: Mapping[str, tuple[Port, ...]]
    labels: Mapping[str, str]
    levels: Mapping[str, int] = field(default_factory=dict)

    def label(self, node: str) -> str:
        """Name of a node for users."""
        return self.labels.get(node, node)

    def shown(self, node: str) -> str:
        """Name of a node for a one-line message."""
        return shown(self.label(node))


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorting key that puts n9 before n10."""
    words = re.findall(r"[0-9]+|[^0-9]+", name)
    return tuple((0, int(word[:18]), word) if word[0] in "0123456789" else (1, 0, word) for word in words)


def distances(graph: Graph, first_switches: Collection[str] | None = None) -> dict[str, int]:
    """Level of each node: its distance from the nearest host.

    If `first_switches` are given, these have level 1, and distances are measured from them.

    Raises `DataError` if there is no host, if no path leads from a switch to a host, or if hosts are linked
    to each other.
    """
    if not graph.hosts:
        raise DataError("network: no hosts were found: give the output for the whole network")
    level_of = dict.fromkeys(graph.hosts, 0) | dict.fromkeys(first_switches or (), 1)
    queue = deque(graph.hosts if first_switches is None else first_switches)
    while queue:
        node = queue.popleft()
        for other, _ in graph.ports[node]:
            if other not in level_of:
                level_of[other] = level_of[node] + 1
                queue.append(other)
    for node, ports in graph.ports.items():
        if node not in level_of:
            raise DataError(
                f"network: no path leads from switch {graph.shown(node)} to a host: give the output for one "
                "network, without isolated switches"
            )
        for other, _ in ports:
            if level_of[other] == level_of[node] == 0:
                raise DataError(
                    f"network: a link joins hosts {graph.shown(node)} and {graph.shown(other)}: jobs can "
                    "only be placed on hosts that are linked to switches"
                )
    return level_of


def likely_levels(graph: Graph) -> dict[str, int]:
    """`distances`, corrected for upper switches that have hosts and first-level switches that have none."""
    n_hosts = Counter(other for host in graph.hosts for other, _ in graph.ports[host])
    neighbours = {node: {other for other, _ in row} - {node} for node, row in graph.ports.items()}
    level_of = distances(
        graph,
        [
            node
            for node, own in n_hosts.items()
            if not _is_above(neighbours[node].difference(graph.hosts), own, n_hosts)
        ],
    )
    below = {
        node: [other for other in row if level_of[other] < level_of[node]] for node, row in neighbours.items()
    }
    reach = {host: 1 << i for i, host in enumerate(graph.hosts)}
    for node in sorted(set(level_of) - set(reach), key=level_of.__getitem__):
        reach[node] = 0
        for other in below[node]:
            reach[node] |= reach[other]
    for node, level in sorted(level_of.items(), key=lambda row: -row[1]):
        # If a top switch reaches no more hosts than a switch below it, it must be a first-level switch that
        # has no hosts.
        is_top = level > 2 and len(below[node]) == len(neighbours[node])
        if is_top and any(reach[other] == reach[node] for other in below[node]):
            level_of[node] = min(level_of[other] for other in below[node]) - 1
    return level_of


def _is_above(switches: Collection[str], own: int, n_hosts: Mapping[str, int]) -> bool:
    """Whether a switch seems to be above its neighbours: most have hosts, on average more than the switch."""
    theirs = [n_hosts[other] for other in switches if other in n_hosts]
    return len(theirs) >= 2 and 2 * len(theirs) >= len(switches) and sum(theirs) > own * len(theirs)
