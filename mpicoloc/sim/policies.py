"""What a server gets next, under each policy: Zacarias et al. 2021, sections 3.5 and 4.4.1."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np

from mpicoloc.model.groups import degradation_graph
from mpicoloc.model.pairs import Rules, plan
from mpicoloc.model.queue import Queue


class Dispatcher(Protocol):
    """Chooses jobs for a server."""

    def take(self, running: tuple[int, ...]) -> tuple[int, ...]:
        """Jobs to begin now beside those `running` on that server; none: it has what it should have."""


def dispatcher(queue: Queue, rules: Rules) -> Dispatcher:
    """The dispatcher of a policy for the jobs of `queue`, all waiting."""
    if rules.policy == "fifo-shared":
        return _InOrder(queue, rules)
    if rules.policy == "greedy":
        return _Greedy(queue, rules)
    return _Planned(queue, rules)


class _Planned:
    """Groups of a plan in order of arrival; the next one begins when a server is empty.

    That is blossom as the paper has it: the next pair only after both of a pair are over. It is FIFO where
    all groups are single jobs.
    """

    def __init__(self, queue: Queue, rules: Rules) -> None:
        self._groups = deque(group.jobs for group in plan(queue, rules).groups)

    def take(self, running: tuple[int, ...]) -> tuple[int, ...]:
        """The next group."""
        return self._groups.popleft() if self._groups and not running else ()


class _InOrder:
    """Whoever is next in order of arrival, as soon as a server has a place."""

    def __init__(self, queue: Queue, rules: Rules) -> None:
        self._waiting = deque(range(len(queue)))
        self._n_per_node = rules.n_per_node

    def take(self, running: tuple[int, ...]) -> tuple[int, ...]:
        """The next job."""
        return (self._waiting.popleft(),) if self._waiting and len(running) < self._n_per_node else ()


class _Greedy:
    """Of the pairs allowed the one that is over soonest, as soon as a server has a place.

    An empty server gets the best pair of jobs that wait; one where a job is left gets the best partner for
    that one.
    """

    def __init__(self, queue: Queue, rules: Rules) -> None:
        queue = queue.counted_on(is_cautious=rules.is_cautious, prior_slowdown=rules.prior_slowdown)
        singles = [(job,) for job in range(len(queue))]
        self._pair_s = degradation_graph(queue, singles, rules.room, 2, rules.threshold_frac).weights.copy()
        np.fill_diagonal(self._pair_s, np.inf)
        self._waiting = np.ones(len(queue), np.bool_)

    def take(self, running: tuple[int, ...]) -> tuple[int, ...]:
        """A pair, a partner, or a job that nothing may run beside."""
        if len(running) > 1 or not self._waiting.any():
            return ()
        ids = np.flatnonzero(self._waiting)
        if running:
            times_s = self._pair_s[running[0], ids]
            best: tuple[int, ...] = (int(ids[times_s.argmin()]),)
        else:
            times_s = self._pair_s[np.ix_(ids, ids)]
            i, j = divmod(int(times_s.argmin()), len(ids))
            best = (int(ids[i]), int(ids[j])) if np.isfinite(times_s.min()) else (int(ids[0]),)
        if running and not np.isfinite(times_s.min()):
            return ()
        self._waiting[list(best)] = False
        return best
