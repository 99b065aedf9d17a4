"""Routes through a network, each given as one path number (see `core.network`), and loads of links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.network import Hosts, Levelled, Topology, child_node, parent_node
from mpicoloc.errors import DataError, UsageError

Paths = NDArray[np.int64]
Route = Callable[[Levelled, Hosts, Hosts], Paths]
"""``route(topology, src, dst)``: the path of each message, in 0 .. n_paths - 1, from arrays of hosts."""

Messages = tuple[Hosts, Hosts, NDArray[np.number]]
"""Source hosts, destination hosts and bytes of messages."""

CHUNK = 1 << 16
"""Messages routed at a time, so that arrays fit into the processor's cache and memory is bounded."""

MAX_LINKS = 1 << 22
"""Largest number of links of a tree whose loads are computed; their loads take 64 MiB for each job."""


def d_mod_k(topology: Levelled, src: Hosts, dst: Hosts) -> Paths:
    """The destination chooses the path: the up-port of level l is ``dst // W_l mod w_(l+1)``.

    Notes
    -----
    Zahavi 2012, "Fat-tree routing and node ordering providing contention free traffic for MPI global
    collectives". Equal to ``dst // M_(l-1) mod w_(l+1)`` in trees that are not slimmed.
    """
    return np.broadcast_to(dst % topology.n_paths, np.broadcast(src, dst).shape)


def s_mod_k(topology: Levelled, src: Hosts, dst: Hosts) -> Paths:
    """The source chooses the path: the up-port of level l is ``src // W_l mod w_(l+1)``."""
    return np.broadcast_to(src % topology.n_paths, np.broadcast(src, dst).shape)


def random_route(seed: int) -> Route:
    """A route function with a random path for each pair of hosts, determined by the seed and the pair."""

    def route(topology: Levelled, src: Hosts, dst: Hosts) -> Paths:
        pair = _splitmix64(np.asarray(src).astype(np.uint64) + np.uint64(seed % 2**63))
        number = _splitmix64(pair ^ _splitmix64(np.asarray(dst).astype(np.uint64)))
        return (number % np.uint64(topology.n_paths)).astype(np.int64)

    return route


def _splitmix64(number: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of splitmix64: its results for consecutive numbers look independent."""
    number = number + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


def by_name(name: str) -> Route:
    """The route function with this name: d-mod-k, s-mod-k or random[:SEED].

    Raises
    ------
    UsageError
        If there is no such route function.
    """
    plain = {"d-mod-k": d_mod_k, "s-mod-k": s_mod_k, "random": random_route(0)}
    if name in plain:
        return plain[name]
    word, _, seed = name.partition(":")
    if word == "random" and seed.isascii() and seed.isdigit() and len(seed) < 19:
        return random_route(int(seed))
    raise UsageError(f"routing must be d-mod-k, s-mod-k or random[:SEED], got {name!r}")


@dataclass(frozen=True)
class LinkLoads:
    """Bytes on every link, read-only: on link k of level l, ``up[l][k]`` go up and ``down[l][k]`` down."""

    up: tuple[NDArray[np.float64], ...]
    down: tuple[NDArray[np.float64], ...]


def link_loads(
    topology: Levelled, src: Hosts, dst: Hosts, n_bytes: NDArray[np.number], route: Route = d_mod_k
) -> LinkLoads:
    """Bytes that messages put on each link, in each direction; time is linear in messages and links.

    Parameters
    ----------
    src, dst : ndarray of int, shape (n_messages,)
        Hosts at both ends; a message within a host loads no link.
    n_bytes : ndarray, shape (n_messages,)
        Bytes of each message.
    route : callable
        A route function of this module.
    """
    return sum_loads(topology, [(src, dst, n_bytes)], route)


def sum_loads(topology: Levelled, batches: Iterable[Messages], route: Route = d_mod_k) -> LinkLoads:
    """`link_loads` for messages in batches.

    Raises
    ------
    DataError
        If the tree has more than `MAX_LINKS` links.
    """
    sizes = check_links(topology)
    down, up = loads = [[np.zeros(size) for size in sizes] for _ in range(2)]
    step = max(CHUNK, *sizes)
    for src, dst, n_bytes in batches:
        for start in range(0, len(src), step):
            part = slice(start, start + step)
            paths = route(topology, src[part], dst[part])
            part_bytes = n_bytes[part].astype(np.float64)
            for level, is_up, passes, links in topology.crossings(src[part], dst[part], paths):
                load = loads[is_up][level]
                load += np.bincount(links, np.where(passes, part_bytes, 0.0), len(load))
    return _frozen(up, down)


def check_links(topology: Levelled) -> list[int]:
    """Number of links of each level. Raises an error if there are too many to compute their loads.

    Raises
    ------
    DataError
        If there are more than `MAX_LINKS`.
    """
    sizes = [topology.n_links(level) for level in range(topology.height)]
    if sum(sizes) > MAX_LINKS:
        raise DataError(
            f"{topology} has {sum(sizes)} links, more than {MAX_LINKS}: too many to compute "
            "their loads; correct the numbers of the topology"
        )
    return sizes


def exchange_loads(topology: Topology, hosts: Hosts, n_bytes: float, route: Route) -> LinkLoads:
    """Loads of an exchange in which all members send each other equally many bytes; members can share hosts.

    Under d-mod-k a message takes copy ``dst % roots`` of each level. Let c of the p members be in a subtree.
    The up-link of a copy carries c messages to each member outside the subtree whose remainder selects the
    copy, and its down-link carries p - c messages to each such member inside. Under s-mod-k, up and down are
    exchanged. Time is linear in members and links, not in pairs.

    Parameters
    ----------
    hosts : ndarray of int, shape (n_members,)
    n_bytes : float
        Bytes from each member to each other member.
    route : callable
        `d_mod_k` or `s_mod_k`.
    """
    check_links(topology)
    by_choosers, by_others = [], []
    for level in range(topology.height):
        roots, n_links = topology.subtree_roots(level + 1), topology.n_links(level)
        tree, copy = hosts // topology.subtree_hosts(level), hosts % roots
        inside = np.bincount(tree * roots + copy, minlength=n_links).reshape(-1, roots).astype(np.float64)
        members = inside.sum(axis=1, keepdims=True)
        by_choosers.append((n_bytes * inside * (len(hosts) - members)).ravel())
        by_others.append((n_bytes * members * (inside.sum(axis=0) - inside)).ravel())
    up, down = (by_others, by_choosers) if route is d_mod_k else (by_choosers, by_others)
    return _frozen(up, down)


def added(loads: Sequence[LinkLoads]) -> LinkLoads:
    """Sum of loads on the same topology."""
    up = [np.sum(column, axis=0) for column in zip(*(load.up for load in loads), strict=True)]
    down = [np.sum(column, axis=0) for column in zip(*(load.down for load in loads), strict=True)]
    return _frozen(up, down)


def _frozen(up: list[NDArray[np.float64]], down: list[NDArray[np.float64]]) -> LinkLoads:
    for array in (*up, *down):
        array.flags.writeable = False
    return LinkLoads(tuple(up), tuple(down))


def forwarding_table(topology: Topology, level: int, switch: int) -> NDArray[np.int64]:
    """Port of a switch for every destination host under d-mod-k, as in static routes or an LFT.

    Parameters
    ----------
    level, switch : int
        Level in 1 .. h, and number on that level.

    Returns
    -------
    ndarray of int, shape (n_hosts,)
        Ports 0 .. m_l - 1 go down: port c leads to child c. Ports m_l .. m_l + w_(l+1) - 1 go up.

    Notes
    -----
    `next_hop` returns the node at the other end. InfiniBand's port numbers are larger by one.
    """
    hosts = np.arange(topology.n_hosts)
    tree = switch // topology.subtree_roots(level)
    down = hosts // topology.subtree_hosts(level - 1) % topology.m[level - 1]
    below = hosts // topology.subtree_hosts(level) == tree
    if level == topology.height:
        return down
    up = topology.m[level - 1] + hosts // topology.subtree_roots(level) % topology.w[level]
    return np.where(below, down, up)


def next_hop(topology: Topology, level: int, node: int, dst: int) -> tuple[int, int]:
    """Level and number of the next node on the way to host `dst`, under d-mod-k.

    Hosts have level 0. A host is its own next hop.
    """
    if level == 0:
        return (0, node) if node == dst else (1, parent_node(topology, 0, node, dst % topology.w[0]))
    port = int(forwarding_table(topology, level, node)[dst])
    n_down = topology.m[level - 1]
    if port < n_down:
        return level - 1, child_node(topology, level, node, port)
    return level + 1, parent_node(topology, level, node, port - n_down)
