"""Jobs that use the same links of the tree at the same time, and the delays that result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from mpicoloc.batch.engine import Simulation
from mpicoloc.batch.inputs import Machine
from mpicoloc.core.profile import Floats, Ints
from mpicoloc.network.utilisation import MAX_ITERATIONS, TOLERANCE, crowding


def links_of(machine: Machine, nodes: Ints) -> Iterator[tuple[int, list[int], list[int]]]:
    """The links above subtrees that a job uses.

    Yields, for each level on which the job is in several subtrees, the level (from 1), these subtrees, and
    the number of the job's nodes in each subtree.
    """
    for level in range(1, machine.height):
        tree_of = machine.subtree[level - 1]
        if tree_of[nodes[0]] == tree_of[nodes[-1]]:
            return  # nodes are in order, so on this level and above the job is in a single subtree
        trees = tree_of[nodes]
        ends = np.append(np.flatnonzero(trees[1:] != trees[:-1]), len(trees) - 1)
        yield level, trees[ends].tolist(), np.diff(ends, prepend=-1).tolist()


class SharedLinks:
    """Observer of a simulation that counts pairs of jobs on the same links.

    Two jobs share the links of level l above a subtree of that level if, at the same time, both have nodes
    inside and nodes outside the subtree (Jokanovic 2014, section 4.3 and Figure 4.10). Level 1 is the
    up-links of first-level switches, which the thesis calls the second level.

    Parameters
    ----------
    machine : Machine
    n_jobs : int

    Attributes
    ----------
    n_sharers : ndarray of int, shape (n_jobs,)
        Number of other jobs with which each job shared a link of any level at any time.
    n_subtrees : ndarray of int, shape (n_jobs, height)
        Number of subtrees of level 1 (first-level switches), 2, ... with nodes of each job.
    n_pairs : dict of int to int
        Number of pairs of jobs that shared links of each level.
    used_switch_s : float
        Sum over first-level switches of the time in which a job used their up-links, s.
    """

    def __init__(self, machine: Machine, n_jobs: int) -> None:
        self.machine = machine
        self.n_sharers = np.zeros(n_jobs, np.int64)
        self.n_subtrees = np.ones((n_jobs, machine.height), np.int32)
        self.n_pairs = dict.fromkeys(range(1, machine.height), 0)
        self.used_switch_s = 0.0
        self._n_used, self._counted_s = 0, 0.0
        self._users: dict[tuple[int, int], set[int]] = {}
        self._links: dict[int, list[tuple[int, int]]] = {}

    def began(self, simulation: Any, job: int, nodes: Ints) -> None:
        """Count the jobs that already use links of a job that begins; nodes are in ascending order."""
        others: set[int] = set()
        links: list[tuple[int, int]] = []
        for level, trees, _ in links_of(self.machine, nodes):
            self.n_subtrees[job, level - 1] = len(trees)
            own = [(level, tree) for tree in trees]
            here = set().union(*(self._users.get(link, ()) for link in own))
            self.n_pairs[level] += len(here)
            others |= here
            links += own
        if links:
            self._links[job] = links
            self._count_time(simulation)
        for link in links:
            users = self._users.setdefault(link, set())
            self._n_used += link[0] == 1 and not users
            users.add(job)
        if others:
            self.n_sharers[job] += len(others)
            self.n_sharers[list(others)] += 1

    def sharers(self, nodes: Ints) -> set[int]:
        """The running jobs that use links which a job on these nodes would use."""
        own = ((level, tree) for level, trees, _ in links_of(self.machine, nodes) for tree in trees)
        return set().union(*(self._users.get(link, ()) for link in own))

    def n_users(self) -> Ints:
        """Number of jobs that use the links above each first-level switch."""
        return np.array([len(self._users.get((1, tree), ())) for tree in range(self.machine.n_switches)])

    def ended(self, simulation: Any, job: int, nodes: Ints) -> None:
        """Remove a job from its links."""
        links = self._links.pop(job, ())
        if links:
            self._count_time(simulation)
        for link in links:
            self._users[link].discard(job)
            self._n_used -= link[0] == 1 and not self._users[link]

    def _count_time(self, simulation: Any) -> None:
        self.used_switch_s += self._n_used * (simulation.now_s - self._counted_s)
        self._counted_s = simulation.now_s


@dataclass(frozen=True)
class LinkRows:
    """Links used by jobs: a row for each job and each subtree whose up-links it uses, grouped by subtree.

    A job keeps all links above a subtree busy for the same fraction of its time, so one row stands for all
    these links. `mutual_slowdown`, in contrast, needs the load of each link.

    Parameters
    ----------
    job : ndarray of int, shape (n,)
        Index of the job.
    n_users : ndarray of int, shape (n_links,)
        Number of rows for each subtree.
    busy : ndarray, shape (n,)
        Fraction of its time alone for which the job keeps these links busy, in (0, 1].
    n_hosts : ndarray, shape (2, n)
        Number of the job's hosts inside the subtree, which send upwards, and of those outside, whose messages
        come down. Each is at least 1.
    """

    job: Ints
    n_users: Ints
    busy: Floats
    n_hosts: Floats


def job_delays(rows: LinkRows, alone: Floats, pace: Floats, tolerance: float = TOLERANCE) -> Floats:
    """Delay that other jobs on its links cause to each job, s for each second of its work.

    Shapes: `alone` (n_jobs,), `pace` (n_jobs,), result (n_jobs,). Result: not below 0.

    For jobs with a pace of 1, the delay plus 1 is `mutual_slowdown`. A job that is slower for other reasons
    sends for a smaller fraction of its time, and so delays others less.
    """
    # A spread job has a pace below 1, but cannot keep links busy for more than all of its time.
    pace = np.maximum(pace, alone)
    first, second, starts = _pairs(rows.n_users)
    theirs = rows.n_hosts.take(second, axis=1)
    share = theirs / (theirs + rows.n_hosts.take(first, axis=1))
    share[:, first == second] = 0.0
    by_job = rows.job.argsort(kind="stable")
    first_of_job = rows.job[by_job].searchsorted(np.arange(len(alone)))
    found, sending = np.zeros(len(alone)), np.array([rows.busy / pace[rows.job]] * 2)
    for _ in range(MAX_ITERATIONS):
        crowded = crowding(sending.take(second, axis=1) * share)
        longer = rows.busy * (1.0 + np.add.reduceat(crowded, starts, axis=1))
        before = found
        found = np.maximum(np.maximum.reduceat(np.maximum(*longer)[by_job], first_of_job) - alone, 0.0)
        if np.abs(found - before).max() < tolerance:
            break
        sending = longer / (pace + found)[rows.job]
    return found


def _pairs(n_users: Ints) -> tuple[Ints, Ints, Ints]:
    """All pairs of rows of one subtree (also a row with itself), and the index of each row's first pair."""
    n_of_row = n_users.repeat(n_users)
    starts = n_of_row.cumsum() - n_of_row
    first = np.arange(len(n_of_row)).repeat(n_of_row)
    first_of_link = (n_users.cumsum() - n_users).repeat(n_users)
    second = np.arange(len(first)) - (starts - first_of_link).repeat(n_of_row)
    return first, second, starts


_TOLERANCE = 1e-4
"""Tolerance of a delay, s for each second of work."""
LEAST_CHANGE = _TOLERANCE
"""Changes of a delay that are smaller than this are ignored."""


class _Users:
    """The jobs that use the links above one subtree, as columns of `LinkRows`."""

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.columns: tuple[list[float], list[float], list[float]] = [], [], []

    def add(self, job: int, *row: float) -> None:
        """Add a job: busy fraction of its time, and numbers of nodes inside and outside."""
        self.jobs.append(job)
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)

    def remove(self, job: int) -> None:
        """Remove a job that has ended."""
        place = self.jobs.index(job)
        for column in (self.jobs, *self.columns):
            del column[place]


class LinkSharing:
    """Observer that delays jobs which share links above switches and subtrees.

    Jobs share links by the rule of `SharedLinks`. A job waits for its most loaded link, and keeps all links
    above the switches of a level equally busy.

    Parameters
    ----------
    machine : Machine
    utilisation : ndarray, shape (n_programs, height)
        See `utilisation_files.of_programs`.
    programs : ndarray of int, shape (n_jobs,)
        Program of each job.

    Attributes
    ----------
    lost_s : ndarray, shape (n_jobs,)
        Time that each job has lost to other jobs on its links, s.
    """

    def __init__(self, machine: Machine, utilisation: Floats, programs: Ints) -> None:
        self.machine, self.programs = machine, programs
        self._utilisation = utilisation.tolist()
        self.lost_s = np.zeros(len(programs))
        self._users: dict[tuple[int, int], _Users] = {}
        self._links: dict[int, list[tuple[int, int]]] = {}
        self._alone: dict[int, float] = {}
        self._beside: dict[int, set[int]] = {}
        self._touched: set[int] = set()

    def began(self, simulation: Simulation, job: int, nodes: Ints) -> None:
        """Add a job to the links above its subtrees, if it is in several."""
        self._enter(job, nodes)
        if self._beside.get(job):
            self._touched.add(job)

    def ended(self, simulation: Simulation, job: int, nodes: Ints) -> None:
        """Remove a job from its links, and mark the jobs that shared them for `settle`."""
        if job in self._links:
            self.lost_s[job] = simulation.link_lost_s[job]
            self._touched |= self._leave(job)
            self._touched.discard(job)

    def _enter(self, job: int, nodes: Ints) -> None:
        busy = self._utilisation[self.programs[job]]
        links, alone = [], busy[0] if len(nodes) > 1 else 0.0
        beside: set[int] = set()
        for level, trees, n_inside in links_of(self.machine, nodes):
            if not busy[level]:
                continue
            alone = max(alone, busy[level])
            for tree, n in zip(trees, n_inside, strict=True):
                users = self._users.get((level, tree))
                if users is None:
                    users = self._users[level, tree] = _Users()
                beside.update(users.jobs)
                users.add(job, busy[level], n, len(nodes) - n)
                links.append((level, tree))
        if links:
            self._links[job], self._alone[job], self._beside[job] = links, alone, beside
            for other in beside:
                self._beside[other].add(job)

    def _leave(self, job: int) -> set[int]:
        """Remove a job from its links; returns the jobs that shared them."""
        for link in self._links.pop(job):
            self._users[link].remove(job)
        del self._alone[job]
        beside = self._beside.pop(job)
        for other in beside:
            self._beside[other].discard(job)
        return beside

    def settle(self, simulation: Simulation) -> None:
        """Update the delays of all jobs that the latest starts, ends and changes of pace can affect."""
        if simulation.repaced:
            self._touched |= simulation.repaced & self._links.keys()
            simulation.repaced.clear()
        if not self._touched:
            return
        delays = self._delays(simulation, self._reached(self._touched))
        self._touched.clear()
        for job, delay in delays.items():
            before = simulation.link_delay[job]
            if abs(delay - before) > LEAST_CHANGE or (before and not delay):
                simulation.set_link_delay(job, delay)

    def load(self) -> Floats:
        """Sum over the jobs above each first-level switch: fraction of time that they keep its links busy."""
        above = (self._users.get((1, tree)) for tree in range(self.machine.n_switches))
        return np.array([sum(users.columns[0]) if users else 0.0 for users in above])

    def added_delays(self, simulation: Simulation, job: int, nodes: Ints) -> dict[int, float]:
        """Change of each job's delay if a waiting job began on these nodes, and the delay of that job."""
        self._enter(job, nodes)
        if job not in self._links:
            return {}
        delays = self._delays(simulation, self._reached([job]))
        self._leave(job)
        return {one: delay - simulation.link_delay.get(one, 0.0) for one, delay in delays.items()}

    def _reached(self, seeds: Iterable[int]) -> list[int]:
        """Jobs that are connected to these by shared links, directly or through other jobs."""
        found, todo = set(seeds), list(seeds)
        while todo:
            more = self._beside[todo.pop()] - found
            found |= more
            todo += more
        return sorted(found)

    def _delays(self, simulation: Simulation, reached: list[int]) -> dict[int, float]:
        """Delay of each of these jobs; 0 if the job shares no links at the moment."""
        jobs = [job for job in reached if self._beside[job]]
        delays = dict.fromkeys(reached, 0.0)
        if not jobs:
            return delays
        shared = [
            users
            for link in set().union(*(self._links[job] for job in jobs))
            if len((users := self._users[link]).jobs) > 1
        ]
        of_rows, busy, inside, outside = (
            list(chain.from_iterable(column))
            for column in zip(*((users.jobs, *users.columns) for users in shared), strict=True)
        )
        rows = LinkRows(
            np.searchsorted(jobs, of_rows),
            np.array([len(users.jobs) for users in shared]),
            np.array(busy),
            np.array([inside, outside], np.float64),
        )
        alone = np.array([self._alone[job] for job in jobs])
        pace = np.array([simulation.node_slowdown.get(job, 1.0) for job in jobs])
        return delays | dict(zip(jobs, job_delays(rows, alone, pace, _TOLERANCE).tolist(), strict=True))
