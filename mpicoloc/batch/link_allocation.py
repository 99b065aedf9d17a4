"""Allocations that pick, of several sets of free nodes, the one whose links are least contended.

Jokanovic 2014, section 3.4: let few jobs share first-level switches; let jobs with high demands share them
with jobs of low demands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mpicoloc.batch.allocation import first_contiguous
from mpicoloc.batch.engine import Simulation
from mpicoloc.batch.inputs import Machine
from mpicoloc.batch.links import LEAST_CHANGE, LinkSharing, SharedLinks, links_of
from mpicoloc.batch.order import FREE, Uses
from mpicoloc.core.profile import Floats, Ints


def candidates(machine: Machine, uses: Uses, nodes: Ints, load: Ints | Floats) -> Iterator[Ints]:
    """Different sets of as many free nodes as `nodes`, which are the first candidate.

    `load` is that of the links above each first-level switch. Other candidates are contiguous nodes; the
    switches with least load, on the machine and below the least loaded subtree with room; and the switches
    with most free nodes.
    """
    seen: set[bytes] = set()
    for found in _candidates(machine, uses, nodes, load):
        if found.tobytes() not in seen:
            seen.add(found.tobytes())
            yield found


def _candidates(machine: Machine, uses: Uses, nodes: Ints, load: Ints | Floats) -> Iterator[Ints]:
    yield nodes
    n_nodes = len(nodes)
    if found := first_contiguous(machine, uses, n_nodes):
        yield found[0]
    n_free = machine.per_switch(uses == FREE)
    by_load, by_room = np.lexsort((-n_free, load)), np.lexsort((load, -n_free))
    yield _filled(machine, uses, n_free, by_load, n_nodes)
    yield _filled(machine, uses, n_free, by_room, n_nodes)
    tree = machine.switch_subtree()
    room = np.bincount(tree, n_free)
    loads = np.where(room >= n_nodes, np.bincount(tree, load), np.inf)
    if np.isfinite(loads).any():
        own = by_load[tree[by_load] == int(loads.argmin())]
        yield _filled(machine, uses, n_free, own, n_nodes)


def _filled(machine: Machine, uses: Uses, n_free: Ints, switches: Ints, n_nodes: int) -> Ints:
    """The free nodes of these switches in order, until there are enough."""
    is_taken = np.zeros(machine.n_switches, bool)
    n_whole = int(np.searchsorted(np.cumsum(n_free[switches]), n_nodes))
    is_taken[switches[:n_whole]] = True
    chosen = np.flatnonzero(is_taken[machine.subtree[0]] & (uses == FREE))
    last = np.flatnonzero((machine.subtree[0] == switches[n_whole]) & (uses == FREE))
    return np.sort(np.concatenate((chosen, last[: n_nodes - len(chosen)])))


def _least(found: Iterator[Ints], cost: Callable[[Ints], float]) -> Ints:
    """The first of the candidates with the least cost, which is at least 0."""
    best = next(found)
    least = cost(best)
    while least > 0 and (other := next(found, None)) is not None:
        if (costs := cost(other)) < least:
            best, least = other, costs
    return best


def _is_local(machine: Machine, nodes: Ints) -> bool:
    """Whether a job on these nodes uses no link above a switch."""
    return next(links_of(machine, nodes), None) is None


class FewestSharers(SharedLinks):
    """Picks the nodes on which a job shares links with the fewest others."""

    def pick(self, simulation: Simulation, job: int, nodes: Ints) -> Ints:
        """Return the first of the best candidates."""
        if _is_local(self.machine, nodes):
            return nodes
        found = candidates(self.machine, simulation.view.uses, nodes, self.n_users())
        return _least(found, lambda one: len(self.sharers(one)))


class LeastDelay(LinkSharing):
    """Picks the nodes on which a job and those that run delay each other least (Jokanovic 2014, Eq. 3.3).

    A delay counts by the job's nodes, and until it or the new job is expected to end. Contention between the
    job's own messages is taken to be the same everywhere.
    """

    def pick(self, simulation: Simulation, job: int, nodes: Ints) -> Ints:
        """Return the first of the best candidates."""
        if _is_local(self.machine, nodes):
            return nodes
        self.settle(simulation)  # jobs that have begun or ended at this instant count
        found = candidates(self.machine, simulation.view.uses, nodes, self.load())
        return _least(found, lambda one: self._cost(simulation, job, one))

    def _cost(self, simulation: Simulation, job: int, nodes: Ints) -> float:
        """Node seconds lost by all jobs."""
        left_s, n_nodes = float(simulation.workload.estimate_s[job]), simulation.workload.n_nodes
        return sum(
            delay * n_nodes[one] * (left_s if one == job else min(left_s, simulation.work_left_s(one)))
            for one, delay in self.added_delays(simulation, job, nodes).items()
            if delay > LEAST_CHANGE
        )
