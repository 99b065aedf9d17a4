"""Who joins whom: two jobs a node whatever they suffer, or where a slowdown model finds a gain.

A policy never delays the first job of the queue by what it knows: it keeps the nodes that this one waits for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpicoloc.batch.shared_simulation import NO_JOB, Join, SharedSimulation
from mpicoloc.batch.view import FREE
from mpicoloc.core.arrays import Floats, Ints

WINDOW = 200
"""Waiting jobs that are looked at, as of `sharing_plan`."""


@dataclass(frozen=True)
class Joining:
    """A policy that lets waiting jobs join running ones.

    Parameters
    ----------
    is_blind : bool
        Join whoever is there: two jobs a node, in order of the queue. Else only where the model finds that
        the machine then works faster.
    overtakes : bool
        Jobs behind the first one may join, if that does not delay the first one.
    packs : bool
        Jobs join others even while there are free nodes for them, so that nodes stay free.
    """

    is_blind: bool
    overtakes: bool = True
    packs: bool = False

    def next_join(self, simulation: SharedSimulation) -> Join | None:
        """The first job of the queue that may join; see `shared_simulation.Sharing`."""
        if not len(simulation.waiting):
            return None
        half = _Half(simulation)
        tried: set[tuple[int, int]] = set()
        n_looked_at = WINDOW if self.overtakes else 1
        sizes = simulation.workload.n_nodes[simulation.waiting["job"][:n_looked_at].astype(np.int64)]
        for place in np.flatnonzero(sizes <= half.n_room).tolist():
            job, n_nodes = int(simulation.waiting["job"][place]), int(sizes[place])
            key = int(simulation.programs[job]), n_nodes
            # What was no gain for one job is none for another of that program and size.
            if key in tried:
                continue
            nodes = half.first_nodes(n_nodes) if self.is_blind else half.best_nodes(job, n_nodes)
            if nodes is None:
                tried.add(key)
            elif not place or not _delays_first(simulation, place, nodes):
                return Join(job, nodes)
        return None

    def next_look_s(self) -> float:
        """Never: it decides when jobs come and go."""
        return np.inf


class _Half:
    """Nodes that have room for a job: free ones where any will do, and those with one job."""

    def __init__(self, simulation: SharedSimulation) -> None:
        self.simulation = simulation
        first, second = simulation.jobs_on
        self.has_one = (first != NO_JOB) & (second == NO_JOB)
        # Other allocations have their own rules for free nodes.
        takes_free = simulation.view.allocation.is_bound_by_number and not simulation.sharing.packs
        self.free = np.flatnonzero(simulation.view.uses == FREE) if takes_free else np.empty(0, np.int64)
        self.n_room = len(self.free) + int(np.count_nonzero(self.has_one))
        counts = np.bincount(first[self.has_one], minlength=1)
        self.hosts = np.flatnonzero(counts)
        self.counts = counts[self.hosts]
        self._ranked: dict[int, tuple[Ints, Floats]] = {}

    def first_nodes(self, n_nodes: int) -> Ints | None:
        """Free nodes, then the first with one job."""
        taken = np.concatenate((self.free, np.flatnonzero(self.has_one)))[:n_nodes]
        return np.sort(taken) if len(taken) == n_nodes and n_nodes > len(self.free) else None

    def best_nodes(self, job: int, n_nodes: int) -> Ints | None:
        """Free nodes, then those of the jobs that lose least, if all work more per second together."""
        order, loss = self._rank(int(self.simulation.programs[job]))
        n_shared = n_nodes - len(self.free)
        if n_shared < 1 or not len(order):
            return None
        # A job that can take all that is missing costs no third one anything.
        room = np.cumsum(self.counts[order])
        whole = np.flatnonzero(self.counts[order] >= n_shared)
        choices = [order[: int(np.searchsorted(room, n_shared)) + 1]] if room[-1] >= n_shared else []
        choices += [order[whole[:1]]] if len(whole) else []
        gains = [self._gain(job, n_nodes, chosen, loss) for chosen in choices]
        if not gains or max(gains) <= 0:
            return None
        chosen = self.hosts[choices[int(np.argmax(gains))]]
        first = self.simulation.jobs_on[0]
        own = [np.flatnonzero(self.has_one & (first == host)) for host in chosen.tolist()]
        return np.sort(np.concatenate((self.free, *own))[:n_nodes])

    def _rank(self, program: int) -> tuple[Ints, Floats]:
        """Hosts by what a job of this program costs beside them for each node that they give, and that loss.

        Notes
        -----
        A host on m nodes that slows from s to s' loses m (1/s - 1/s') nodes' work; the job beside it goes
        with 1/s of its own.
        """
        if program not in self._ranked:
            run = self.simulation
            hosts = self.hosts
            beside = run.slowdowns.believed[run.programs[hosts], program]
            now = np.array([run.believed[host] for host in hosts.tolist()])
            sizes = run.workload.n_nodes[hosts]
            loss = sizes * (1.0 / now - 1.0 / np.maximum(now, beside))
            own = 1.0 / run.slowdowns.believed[program, run.programs[hosts]]
            self._ranked[program] = np.argsort(loss / np.maximum(self.counts, 1) - own, kind="stable"), loss
        return self._ranked[program]

    def _gain(self, job: int, n_nodes: int, chosen: Ints, loss: Floats) -> float:
        """Nodes' worth of work per second that the job adds, less what its hosts lose."""
        run = self.simulation
        slowest = run.slowdowns.believed[run.programs[job], run.programs[self.hosts[chosen]]].max()
        return float(n_nodes / slowest - loss[chosen].sum())


def _delays_first(simulation: SharedSimulation, place: int, nodes: Ints) -> bool:
    """Whether nodes that the first job counts on would be free later, by what is believed.

    Notes
    -----
    EASY's condition (Mu'alem and Feitelson 2001, section 2.1), where the jobs that get slower count, too.
    """
    view, run = simulation.view, simulation
    if int(run.waiting["n_nodes"][0]) <= view.n_free and view.allocation.is_bound_by_number:
        return True
    reserved = view.reservation(0)
    job = int(run.waiting["job"][place])
    hosts = np.unique(run.jobs_on[0, nodes][run.jobs_on[0, nodes] != NO_JOB]).tolist()
    own = max((run.pair_slowdown(job, host) for host in hosts), default=1.0)
    ends_s = {job: run.now_s + float(run.workload.estimate_s[job]) * own}
    for host in hosts:
        slowdown = max(run.believed[host], run.pair_slowdown(host, job))
        ends_s[host] = run.now_s + run.work_left_s(host) * (slowdown + run.link_delay[host])
    later_s = view.expected_end_s.copy()
    for host in hosts:
        theirs = run.nodes[host]
        later_s[theirs] = np.maximum(later_s[theirs], ends_s[host])
    later_s[nodes] = np.maximum(later_s[nodes], ends_s[job])
    n_lost = np.count_nonzero((view.expected_end_s <= reserved.start_s) & (later_s > reserved.start_s))
    return bool(n_lost > reserved.n_spare)
