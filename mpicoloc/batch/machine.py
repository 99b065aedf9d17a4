"""Nodes of a machine, and which switches and subtrees they are in."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc.core.network import Topology, subtree
from mpicoloc.core.profile import Bools, Ints
from mpicoloc.network.topology.fabric import Fabric

MARENOSTRUM = "MareNostrum"
"""Name of the machine of Jokanovic 2014, section 4.3."""


@dataclass(frozen=True, eq=False)
class Machine:
    """Nodes 0 .. n - 1 in the order of the tree: those of one subtree follow each other.

    Parameters
    ----------
    name : str
        For people.
    hosts : ndarray of int, shape (n_nodes,)
        Number of each node in the topology.
    subtree : tuple of ndarray of int, each of shape (n_nodes,)
        ``subtree[l - 1]``: number of the subtree of level l that each node is in, for l = 1 (first-level
        switches) to the tree's height (one subtree).
    host_names : tuple of str
        Name of each node; empty: the topology has none, then they are n0, n1, ...
    """

    name: str
    hosts: Ints
    subtree: tuple[Ints, ...]
    host_names: tuple[str, ...] = ()

    @functools.cached_property
    def starts(self) -> tuple[Ints, ...]:
        """First node of each subtree of a level; ``starts[0]`` of first-level switches."""
        return tuple(np.flatnonzero(np.diff(level, prepend=-1)) for level in self.subtree)

    @functools.cached_property
    def switch_sizes(self) -> Ints:
        """Nodes of each first-level switch."""
        return np.diff(self.starts[0], append=self.n_nodes)

    @functools.cached_property
    def place(self) -> Ints:
        """Number of each node at its first-level switch."""
        return np.arange(self.n_nodes) - np.repeat(self.starts[0], self.switch_sizes)

    @functools.cached_property
    def switch_size(self) -> int:
        """Nodes of the largest first-level switch: a job with more is *big* (thesis, section 4.2)."""
        return int(self.switch_sizes.max())

    def node_names(self) -> tuple[str, ...]:
        """Name of each node."""
        return self.host_names or tuple(f"n{i}" for i in range(self.n_nodes))

    @property
    def n_nodes(self) -> int:
        """Nodes of the machine."""
        return len(self.hosts)

    @property
    def height(self) -> int:
        """Levels of switches."""
        return len(self.subtree)

    @property
    def n_switches(self) -> int:
        """First-level switches."""
        return len(self.switch_sizes)

    @property
    def top_level(self) -> int:
        """Level of the subtrees below the roots; 1 in a tree of one or two levels."""
        return max(self.height - 1, 1)

    def switch_subtree(self) -> Ints:
        """Subtree below the roots that each first-level switch is in."""
        return self.subtree[self.top_level - 1][self.starts[0]]

    def per_switch(self, flags: Bools) -> Ints:
        """Nodes of each first-level switch for which a flag is set."""
        return np.add.reduceat(flags, self.starts[0], dtype=np.int64)


def of_hosts(topology: Topology, hosts: Ints, name: str | None = None) -> Machine:
    """The machine of some hosts of a tree, in ascending order."""
    levels = []
    for level in range(1, topology.height + 1):
        _, dense = np.unique(subtree(topology, level, hosts), return_inverse=True)
        levels.append(dense.astype(np.int64))
    return Machine(name or str(topology), np.asarray(hosts, np.int64), tuple(levels))


def of_fabric(fabric: Fabric) -> Machine:
    """The machine of all hosts that a fabric has; free ports of switches are none."""
    hosts = fabric.hosts()
    found = of_hosts(fabric.topology, hosts)
    return (
        replace(found, host_names=tuple(fabric.host_names[i] for i in hosts)) if fabric.host_names else found
    )


def named(name: str) -> Machine | None:
    """A machine by its name, or None: there is only `MARENOSTRUM`.

    Notes
    -----
    Jokanovic 2014, section 4.3 and Figure 4.10: 3,096 nodes, 18 at each switch, ten subtrees of 18 switches,
    the last of ten. The network is not blocking.
    """
    if name.lower() != MARENOSTRUM.lower():
        return None
    topology = Topology((18, 18, 10), (1, 18, 18), (1e9,) * 3)
    return of_hosts(topology, np.arange(3096), MARENOSTRUM)


def part_of(machine: Machine, nodes: Ints, name: str) -> Machine:
    """The machine of some nodes of another one."""
    levels = (np.unique(level[nodes], return_inverse=True)[1] for level in machine.subtree)
    names = tuple(machine.host_names[i] for i in nodes.tolist()) if machine.host_names else ()
    return Machine(name, machine.hosts[nodes], tuple(level.astype(np.int64) for level in levels), names)
