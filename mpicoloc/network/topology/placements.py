"""Synthetic placements of a job: the fragmentations of Jokanovic 2014, section 3.1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpicoloc.core.network import Hosts, Levelled, Placement, shown
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network.topology.fabric import Fabric, host_finder
from mpicoloc.network.topology.hostlist import expand

_FEWER = "use fewer ranks, or more ranks per host (--ranks-per-host)"


def regular(
    topology: Levelled, n_ranks: int, per_switch: int, ranks_per_host: int = 1, free: Hosts | None = None
) -> Placement:
    """Fragmentation Fk: k of the job's hosts on each first-level switch, one switch after the other.

    Switches with fewer than k hosts are skipped.

    Raises `UsageError` if k is 0 or above the number of hosts of a switch. Raises `DataError` if the job does
    not fit.
    """
    if not 1 <= per_switch <= topology.leaf_hosts:
        raise UsageError(
            f"placement F{per_switch}: {topology} has {topology.leaf_hosts} hosts on a first-level switch: "
            f"give F1 to F{topology.leaf_hosts}"
        )
    n_hosts = _hosts_needed(n_ranks, ranks_per_host)
    switch, place = np.divmod(np.arange(n_ranks) // ranks_per_host, per_switch)
    free = np.arange(topology.n_hosts) if free is None else free
    # `first` is the index in `free` of each first-level switch's first host.
    _, first, count = np.unique(topology.subtree(1, free), return_index=True, return_counts=True)
    first = first[count >= per_switch]
    if n_hosts > len(first) * per_switch:
        raise DataError(
            f"placement F{per_switch}: {n_ranks} ranks need {n_hosts} hosts, but {topology} has "
            f"{len(first) * per_switch} free: {_FEWER}"
        )
    return Placement(free[first[switch] + place])


def scattered(
    topology: Levelled,
    n_ranks: int,
    rng: np.random.Generator,
    ranks_per_host: int = 1,
    free: Hosts | None = None,
) -> Placement:
    """Random fragmentation RF: hosts drawn uniformly from the free hosts, in random order.

    Raises `DataError` if the job does not fit.
    """
    n_hosts = _hosts_needed(n_ranks, ranks_per_host)
    free = np.arange(topology.n_hosts) if free is None else free
    if n_hosts > len(free):
        raise DataError(
            f"placement RF: {n_ranks} ranks need {n_hosts} hosts, but {topology} has {len(free)} free: "
            f"{_FEWER}"
        )
    hosts = rng.choice(free, n_hosts, replace=False, shuffle=True)
    return Placement(hosts[np.arange(n_ranks) // ranks_per_host])


def by_name(
    name: str,
    topology: Levelled,
    n_ranks: int,
    rng: np.random.Generator,
    ranks_per_host: int = 1,
    free: Hosts | None = None,
) -> Placement:
    """The placement with a name like F8 or RF, on the hosts in `free` (ascending; default: all).

    Raises `UsageError` if the name is unknown. Raises `DataError` if the job does not fit.
    """
    word = name.strip().upper()
    if word == "RF":
        return scattered(topology, n_ranks, rng, ranks_per_host, free)
    if word[:1] == "F" and word[1:].isascii() and word[1:].isdigit() and len(word) < 12:
        return regular(topology, n_ranks, int(word[1:]), ranks_per_host, free)
    raise UsageError(f"placement {shown(name)} is unknown: give Fk (like F8), RF or the name of a file")


def _hosts_needed(n_ranks: int, ranks_per_host: int) -> int:
    if ranks_per_host < 1:
        raise DataError(f"placement: ranks per host must be >= 1, got {ranks_per_host}")
    return -(-n_ranks // ranks_per_host)


def from_text(text: str, source: str, fabric: Fabric, n_ranks: int) -> Placement:
    """The placement in a file: one host for each rank, by number or name, in the order of ranks.

    Raises `DataError` if the numbers of hosts and ranks differ, or the topology lacks a host.
    """
    lines = (line.split("#", 1)[0] for line in text.split("\n"))
    rows = [(i, word.strip(",")) for i, line in enumerate(lines, 1) for word in line.split()]
    lines_of: list[str] = []
    words: list[str] = []
    for i, word in rows:
        words += expand(word, f"{source}, line {i}") if word else []
        lines_of += [f"{source}, line {i}"] * (len(words) - len(lines_of))
    if len(words) != n_ranks:
        raise DataError(
            f"{source}: {counted(len(words), 'host')} for {counted(n_ranks, 'rank')}: "
            "give one host per rank, in the order of ranks"
        )
    are_numbers = all(word.isascii() and word.isdigit() and len(word) <= 10 for word in words)
    # A host's name can be a number, which may differ from the host's number in the topology.
    if are_numbers and set(words).isdisjoint(fabric.host_names):
        return Placement(_numbered_hosts(words, lines_of, fabric))
    host = host_finder(fabric)
    return Placement(np.array([host(word, i, lines_of[i]) for i, word in enumerate(words)]))


def _numbered_hosts(words: Sequence[str], places: Sequence[str], fabric: Fabric) -> Hosts:
    hosts = np.array([int(word) for word in words])
    wrong = np.flatnonzero(~np.isin(hosts, fabric.hosts()))
    if len(wrong):
        rank, last = int(wrong[0]), fabric.topology.n_hosts - 1
        why = f"{fabric.topology} has hosts 0 to {last}" if hosts[rank] > last else "this is a free port"
        raise DataError(f"{places[rank]}: rank {rank} is on host {hosts[rank]}, but {why}: name another host")
    return hosts
