"""Switch tables for shortest routes that go up and then down, in a network whose links have an upper end.

In up*/down* routing a packet that has gone down never goes up again, which rules out deadlock. Tables are
indexed by destination only, so a switch sends all packets for a host either down or up. If one switch sends
the packets for a host down to another switch, the other switch must therefore send them down, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.network import Levelled
from mpicoloc.core.profile import Ints
from mpicoloc.errors import DataError

Ints32 = NDArray[np.int32]
Hops = NDArray[np.uint8]

FAR = 255
"""Number of hops to an unreachable host: more than any route has."""

MAX_ROUTES = 1 << 28
"""Largest number of routes (switches times hosts) of a network; these take 1 GiB."""


def up_link(network: Levelled, level: int, number: int) -> int:
    """Number of a link's upward direction among the directed links.

    Directed links are numbered level by level from the hosts: on each level first all upward links, then all
    downward links. The number of a link's downward direction is therefore larger by `n_links(level)`.
    """
    return 2 * sum(network.n_links(below) for below in range(level)) + number


@dataclass(frozen=True)
class DirectedLinks:
    """Nodes at both ends of each directed link, its level, and whether it goes up."""

    begin: Ints32
    end: Ints32
    level: Ints32
    is_up: NDArray[np.bool_]


def directed_links(network: Levelled) -> DirectedLinks:
    """All links of a network in both directions."""
    begin, end, levels, ups = [], [], [], []
    for level in range(network.height):
        lower, upper = network.ends(level)
        begin += [lower.astype(np.int32), upper.astype(np.int32)]
        end += [upper.astype(np.int32), lower.astype(np.int32)]
        levels += [np.full(2 * len(lower), level, np.int32)]
        ups += [np.ones(len(lower), bool), np.zeros(len(lower), bool)]
    return DirectedLinks(
        np.concatenate(begin), np.concatenate(end), np.concatenate(levels), np.concatenate(ups)
    )


@dataclass(frozen=True)
class Tables:
    """Directed links over which hosts and switches send. An entry -1 - s stands for any link of the set s.

    Shapes: `first` (n_hosts,), `next` (n_switches, n_hosts).
    """

    first: Ints32
    next: Ints32
    sets: tuple[Ints32, ...]


class _Ways:
    """Live links of each node in order of number, and switches in order of rank."""

    def __init__(self, n_hosts: int, links: DirectedLinks, is_alive: NDArray[np.bool_], rank: Ints) -> None:
        self.n_hosts = n_hosts
        self.end = links.end
        self.own = _by_node(links.begin, np.ones(len(is_alive), bool), len(rank))
        self.ups = _by_node(links.begin, is_alive & links.is_up, len(rank))
        self.downs = _by_node(links.begin, is_alive & ~links.is_up, len(rank))
        order = np.argsort(rank, kind="stable")
        self.switches: list[int] = order[order >= n_hosts].tolist()  # each switch after those below it

    def hops_down(self) -> Hops:
        """Number of links on the way down from each switch to each host, shape (n_switches, n_hosts)."""
        hops = np.full((len(self.switches), self.n_hosts), FAR, np.uint8)
        for switch in self.switches:
            row = hops[switch - self.n_hosts]
            ends = self.end[self.downs[switch]]
            for below in ends[ends >= self.n_hosts]:
                np.minimum(row, _one_more(hops[below - self.n_hosts]), out=row)
            row[ends[ends < self.n_hosts]] = 1
        return hops

    def hops(self, down: Hops) -> Hops:
        """Number of links on the shortest route from each switch to each host: down only, or up first."""
        hops = down.copy()
        for switch in reversed(self.switches):
            self._shorten_by_ups(switch, hops)
        self._keep_down(hops, down)
        return hops

    def _shorten_by_ups(self, switch: int, hops: Hops) -> None:
        row = hops[switch - self.n_hosts]
        for above in self.end[self.ups[switch]]:
            np.minimum(row, _one_more(hops[above - self.n_hosts]), out=row)

    def _keep_down(self, hops: Hops, down: Hops) -> None:
        """Correct routes on which a switch sends down to another switch that would send up again.

        Towards the hosts at the end of such routes, every switch sends down if it can. Only networks with
        several consecutive links inside a level have such routes.
        """
        both = np.flatnonzero(((hops < down) & (down < FAR)).any(axis=0))
        if not len(both):
            return
        part, goes_down = down[:, both], (hops == down)[:, both] & (down[:, both] < FAR)
        arrives = np.zeros(part.shape, bool)
        for switch in self.switches:
            row = switch - self.n_hosts
            for below in self.end[self.downs[switch]]:
                if below < self.n_hosts:
                    arrives[row] |= both == below
                else:
                    i = below - self.n_hosts
                    arrives[row] |= arrives[i] & (_one_more(part[i]) == part[row])
            arrives[row] &= goes_down[row]
        for host in both[(goes_down & ~arrives).any(axis=0)]:
            hops[:, host] = down[:, host]
            for switch in reversed(self.switches):
                if down[switch - self.n_hosts, host] == FAR:
                    self._shorten_by_ups(switch, hops[:, host : host + 1])


def _one_more(hops: Hops) -> Hops:
    return np.minimum(hops, FAR - 1) + np.uint8(1)


def _by_node(begin: Ints32, chosen: NDArray[np.bool_], n_nodes: int) -> list[Ints]:
    """Numbers of the chosen links that begin at each node."""
    numbers = np.flatnonzero(chosen)
    numbers = numbers[np.argsort(begin[numbers], kind="stable")]
    return np.split(numbers, np.cumsum(np.bincount(begin[numbers], minlength=n_nodes))[:-1])


def tables(network: Levelled, links: DirectedLinks, is_alive: NDArray[np.bool_]) -> Tables:
    """The routes of a network over its live links.

    Raises `Unreachable` if a host has no route to another host.
    """
    n_hosts, rank = network.n_hosts, network.rank
    ways = _Ways(n_hosts, links, is_alive, rank)
    down = ways.hops_down()
    hops = ways.hops(down)
    sets: list[Ints32] = []
    next_link = np.zeros(hops.shape, np.int32)
    for switch in range(n_hosts, len(rank)):
        _fill(ways, switch, (down, hops), next_link[switch - n_hosts], sets)
    first = np.array([_entry(_first_links(ways, host, hops), sets) for host in range(n_hosts)], np.int32)
    return Tables(first, next_link, tuple(sets))


def _first_links(ways: _Ways, host: int, hops: Hops) -> Ints:
    """Links of a host that lead to all other hosts."""
    ups = ways.ups[host]
    lost = hops[ways.end[ups] - ways.n_hosts] == FAR
    lost[:, host] = False
    if lost.any(axis=1).all():
        raise Unreachable(host, int(np.argmax(lost[0])) if len(ups) else (host + 1) % ways.n_hosts)
    return ups[~lost.any(axis=1)]


class Unreachable(DataError):
    """A host has no route to another host."""

    def __init__(self, src: int, dst: int) -> None:
        super().__init__(f"host {src} cannot reach host {dst}")
        self.src, self.dst = src, dst


def _entry(links: Ints, sets: list[Ints32]) -> int:
    if len(links) == 1:
        return int(links[0])
    sets.append(links.astype(np.int32))
    return -len(sets)


def _fill(ways: _Ways, switch: int, known: tuple[Hops, Hops], row: Ints32, sets: list[Ints32]) -> None:
    """Fill a switch's entries for all hosts, and add the sets of links that they need."""
    down, hops = known
    n_hosts, own = ways.n_hosts, switch - ways.n_hosts
    row[:] = ways.own[switch][0]  # for unreachable hosts
    goes_up = hops[own] < down[own]
    downs, ups = ways.downs[switch], ways.ups[switch]
    is_last = ways.end[downs] < n_hosts
    links = np.concatenate((downs[~is_last], ups))
    leads = np.zeros((len(links), n_hosts), bool)
    for i, other in enumerate(ways.end[links] - n_hosts):
        leads[i] = _one_more(hops[other]) == hops[own]
        leads[i] &= goes_up if i >= len(links) - len(ups) else ~goes_up & (hops[other] == down[other])
    leads &= hops[own] < FAR
    n = leads.sum(axis=0)
    for i, link in enumerate(links.tolist()):
        row[leads[i] & (n == 1)] = link
    if len(hosts := np.flatnonzero(n > 1)):
        patterns, which = _distinct(leads[:, hosts])
        row[hosts] = np.array([_entry(links[pattern], sets) for pattern in patterns.T], np.int32)[which]
    row[ways.end[downs[is_last]]] = downs[is_last]


def _distinct(columns: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Ints]:
    """Distinct columns, and each column's index among them; fast in the usual case that all are equal."""
    if (columns == columns[:, :1]).all():
        return columns[:, :1], np.zeros(columns.shape[1], dtype=np.int64)
    which = np.zeros(columns.shape[1], dtype=np.int64)
    for begin in range(0, len(columns), 32):
        rows = columns[begin : begin + 32]
        bits = (1 << np.arange(len(rows))) @ rows
        _, first, which = np.unique(which << 32 | bits, return_index=True, return_inverse=True)
    return columns[:, first], which
