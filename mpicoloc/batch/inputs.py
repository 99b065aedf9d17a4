"""Inputs of a simulation: the jobs of a log, and the nodes, switches and subtrees of a machine."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.network import Levelled, Topology
from mpicoloc.core.profile import Bools, Floats, Ints
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network.topology.fabric import Fabric

ESTIMATES = ("user", "perfect")
"""Sources of the run times that the batch system expects: the users' limits, or the true run times."""
NO_JOB = -1
"""Number of a job, queue or program that the log does not give."""


@dataclass(frozen=True)
class JobLog:
    """n jobs in order of submission, one column for each property.

    Parameters
    ----------
    number : ndarray of int, shape (n,)
        Number of the job in its log.
    submit_s : ndarray, shape (n,)
        Time of submission since the start of the log, s; ascending.
    run_s : ndarray, shape (n,)
        Run time, s; -1: not known, for example because the job never ran.
    limit_s : ndarray, shape (n,)
        Run time that the user requested, s; -1: not known.
    n_processors : ndarray of int, shape (n,)
        Number of processors; -1: not known.
    n_nodes : ndarray of int, shape (n,)
        Number of nodes; -1: not known, and then computed from the number of processors.
    user, program, queue, partition : ndarray of int, shape (n,)
        Number of the user, program, queue and partition; -1: not known.
    previous : ndarray of int, shape (n,)
        Index of the job whose end this one waits for; -1: none.
    think_s : ndarray, shape (n,)
        Time from the end of that previous job to the submission of this one, s.
    header : mapping of str to str
        Fields of the log's header, for example ``{"MaxNodes": "1152"}``.
    names : mapping of str to mapping of int to str
        Names for the numbers in a column, if the log has them, for example ``{"program": {0: "lammps"}}``.
    wait_s : ndarray, shape (n,), optional
        Wait recorded in the log, s; -1: not known.
    memory_bytes : ndarray, shape (n,), optional
        Memory that the job requests or, if the log does not say, uses for each processor; -1: not known.
    node_list : ndarray of str, shape (n,), optional
        Names of the nodes that the job had, as a hostlist of Slurm; "": not known.
    """

    number: Ints
    submit_s: Floats
    run_s: Floats
    limit_s: Floats
    n_processors: Ints
    n_nodes: Ints
    user: Ints
    program: Ints
    queue: Ints
    partition: Ints
    previous: Ints
    think_s: Floats
    header: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    wait_s: Floats | None = None
    memory_bytes: Floats | None = None
    node_list: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.number)

    @property
    def machine_size(self) -> tuple[int, int]:
        """Nodes and processors of the machine, from the log's header; 0: not known."""
        return _positive(self.header.get("MaxNodes", "")), _positive(self.header.get("MaxProcs", ""))

    def cores_per_node(self) -> int | None:
        """Processors of a node: from the log's header, else the most that a job used per node, else None."""
        nodes, processors = self.machine_size
        if nodes and processors:
            return max(processors // nodes, 1)
        known = (self.n_nodes > 0) & (self.n_processors > 0)
        return int((-(-self.n_processors[known] // self.n_nodes[known])).max()) if known.any() else None

    def name(self, column: str, number: int) -> str | int:
        """The name for a number in a column, or the number itself."""
        return self.names.get(column, {}).get(number, number)


def _positive(word: str) -> int:
    word = word.split()[0] if word.split() else ""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 12 else 0


def select(log: JobLog, keep: Bools) -> JobLog:
    """The selected jobs. A job whose predecessor is left out arrives at the time in the log."""
    new_index = np.where(keep, np.cumsum(keep) - 1, NO_JOB)
    previous = np.where(log.previous >= 0, new_index[log.previous], NO_JOB)
    columns = {
        one.name: getattr(log, one.name)[keep]
        for one in fields(JobLog)
        if one.name not in ("header", "names", "previous") and getattr(log, one.name) is not None
    }
    return replace(log, **columns, previous=previous[keep])


@dataclass(frozen=True)
class Workload:
    """n jobs to simulate, in order of submission.

    Parameters
    ----------
    log : JobLog
        Rows of these jobs in the log.
    n_nodes : ndarray of int, shape (n,)
        Number of nodes that each job needs.
    estimate_s : ndarray, shape (n,)
        Run time that the batch system expects, s; never shorter than the run time.
    cores_per_node : int
        Cores of each node; a job has all cores of its nodes.
    node_bytes : float
        Memory of each node; infinite: memory does not matter.
    """

    log: JobLog
    n_nodes: Ints
    estimate_s: Floats
    cores_per_node: int
    node_bytes: float = np.inf

    def __len__(self) -> int:
        return len(self.log)


def workload(log: JobLog, cores_per_node: int, n_nodes: int, estimates: str = "user") -> Workload:
    """Convert a log to jobs on whole nodes.

    If a job ran longer than its limit, its run time is used as its estimate: the real system let the job run
    on, so the simulation does not end it at its limit either.

    Raises `UsageError` if `estimates` is unknown. Raises `DataError` if there is no job, or a job needs more
    nodes than the machine has.
    """
    if estimates not in ESTIMATES:
        raise UsageError(f"estimates must be {' or '.join(ESTIMATES)}, got {estimates!r}")
    if not len(log):
        raise DataError("the log has no job that ran: nothing to simulate; give another log or other flags")
    needed = nodes_needed(log, cores_per_node)
    too_large = np.flatnonzero(needed > n_nodes)
    if len(too_large):
        i = int(too_large[0])
        # If the log gives the numbers of nodes, cores per node do not change them.
        more_cores = "" if (log.n_nodes[too_large] > 0).all() else "more --cores-per-node, "
        raise DataError(
            f"job {log.number[i]} needs {needed[i]:,} nodes of "
            f"{counted(cores_per_node, 'core')}, but the topology has "
            f"{n_nodes:,}; {len(too_large):,} of {len(log):,} jobs do not fit: give a larger --topology, "
            f"{more_cores}or --skip-larger"
        )
    is_known = (log.limit_s > 0) & (estimates == "user")
    estimate_s = np.where(is_known, np.maximum(log.limit_s, log.run_s), log.run_s)
    return Workload(log, needed, estimate_s, cores_per_node)


def nodes_needed(log: JobLog, cores_per_node: int) -> Ints:
    """Number of nodes of each job: from the log, else from its processors, rounded up to whole nodes."""
    return np.where(log.n_nodes > 0, log.n_nodes, -(-log.n_processors // cores_per_node))


def most_at_once(work: Workload) -> int:
    """Largest number of nodes that were in use at one instant of the log, if no two jobs shared a node.

    Jobs whose start is not known are left out. If no start is known, the result is 0.
    """
    log = work.log
    if log.wait_s is None or not (is_known := log.wait_s >= 0).any():
        return 0
    begin_s = (log.submit_s + log.wait_s)[is_known]
    times_s = np.concatenate([begin_s, begin_s + log.run_s[is_known]])
    change = np.concatenate([work.n_nodes[is_known], -work.n_nodes[is_known]])
    return int(np.cumsum(change[np.lexsort((change, times_s))]).max())  # ends before starts


def ran(log: JobLog) -> Bools:
    """Whether each job ran on a processor for some time; other jobs were cancelled before they began."""
    return (log.run_s > 0) & ((log.n_processors > 0) | (log.n_nodes > 0))


MARENOSTRUM = "MareNostrum"
"""Name of the machine of Jokanovic 2014, section 4.3."""


@dataclass(frozen=True, eq=False)
class Machine:
    """Nodes 0 .. n - 1 in the order of the tree: the nodes of each subtree are consecutive.

    Parameters
    ----------
    name : str
        Name for messages and figures.
    hosts : ndarray of int, shape (n_nodes,)
        Number of each node in the topology.
    subtree : tuple of ndarray of int, each of shape (n_nodes,)
        ``subtree[l - 1]`` has, for each node, the index of its subtree of level l. Level 1 is the first-level
        switches; at the level of the tree's height there is a single subtree.
    host_names : tuple of str
        Name of each node. Empty if the topology has no names, in which case `node_names` has n0, n1, ...
    """

    name: str
    hosts: Ints
    subtree: tuple[Ints, ...]
    host_names: tuple[str, ...] = ()

    @functools.cached_property
    def starts(self) -> tuple[Ints, ...]:
        """First node of each subtree, by level; ``starts[0]`` is for first-level switches."""
        return tuple(np.flatnonzero(np.diff(level, prepend=-1)) for level in self.subtree)

    @functools.cached_property
    def switch_sizes(self) -> Ints:
        """Number of nodes of each first-level switch."""
        return np.diff(self.starts[0], append=self.n_nodes)

    @functools.cached_property
    def place(self) -> Ints:
        """Position of each node at its first-level switch, from 0."""
        return np.arange(self.n_nodes) - np.repeat(self.starts[0], self.switch_sizes)

    @functools.cached_property
    def switch_size(self) -> int:
        """Nodes of the largest first-level switch. A job with more nodes is *big* (thesis, section 4.2)."""
        return int(self.switch_sizes.max())

    def node_names(self) -> tuple[str, ...]:
        """Name of each node."""
        return self.host_names or tuple(f"n{i}" for i in range(self.n_nodes))

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.hosts)

    @property
    def height(self) -> int:
        """Number of levels of switches."""
        return len(self.subtree)

    @property
    def n_switches(self) -> int:
        """Number of first-level switches."""
        return len(self.switch_sizes)

    @property
    def top_level(self) -> int:
        """Level of the subtrees below the roots; 1 in a tree of one or two levels."""
        return max(self.height - 1, 1)

    def switch_subtree(self) -> Ints:
        """The top-level subtree (just below the roots) that contains each first-level switch."""
        return self.subtree[self.top_level - 1][self.starts[0]]

    def per_switch(self, flags: Bools) -> Ints:
        """Number of nodes of each first-level switch whose flag is set."""
        return np.add.reduceat(flags, self.starts[0], dtype=np.int64)


def of_hosts(topology: Levelled, hosts: Ints, name: str | None = None) -> Machine:
    """The machine that consists of the given hosts of a tree. Host numbers must be in ascending order."""
    levels = []
    for level in range(1, topology.height + 1):
        _, dense = np.unique(topology.subtree(level, hosts), return_inverse=True)
        levels.append(dense.astype(np.int64))
    return Machine(name or str(topology), np.asarray(hosts, np.int64), tuple(levels))


def of_fabric(fabric: Fabric) -> Machine:
    """The machine of all hosts of a fabric; free switch ports do not count as hosts."""
    hosts = fabric.hosts()
    found = of_hosts(fabric.topology, hosts)
    return (
        replace(found, host_names=tuple(fabric.host_names[i] for i in hosts)) if fabric.host_names else found
    )


def of_log(log: JobLog, cores_per_node: int | None) -> Machine | None:
    """The nodes in a log's header, on one switch; with `cores_per_node`, its processors in such nodes.

    None if the header has no numbers.
    """
    nodes, processors = log.machine_size
    if not nodes or (cores_per_node and processors):
        nodes = -(-processors // (cores_per_node or 1))
    return of_hosts(Topology((nodes,), (1,), (1e9,)), np.arange(nodes)) if nodes else None


def named(name: str) -> Machine | None:
    """The machine with this name, or None; the only one is `MARENOSTRUM`.

    Notes
    -----
    Jokanovic 2014, section 4.3 and Figure 4.10: 3,096 nodes, 18 at each switch. There are ten subtrees: nine
    have 18 switches each, the last has ten. The network is non-blocking.
    """
    if name.lower() != MARENOSTRUM.lower():
        return None
    return of_hosts(Topology((18, 18, 10), (1, 18, 18), (1e9,) * 3), np.arange(3096), MARENOSTRUM)


def part_of(machine: Machine, nodes: Ints, name: str) -> Machine:
    """The machine that consists of some nodes of another machine."""
    levels = (np.unique(level[nodes], return_inverse=True)[1] for level in machine.subtree)
    names = tuple(machine.host_names[i] for i in nodes.tolist()) if machine.host_names else ()
    return Machine(name, machine.hosts[nodes], tuple(level.astype(np.int64) for level in levels), names)
