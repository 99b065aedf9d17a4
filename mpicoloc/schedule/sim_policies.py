"""What a server gets next, under each policy: Zacarias et al. 2021, sections 3.5 and 4.4.1."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mpicoloc.schedule.groups import degradation_graph
from mpicoloc.schedule.policies import Rules, plan
from mpicoloc.schedule.queue import Queue

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Dispatcher(Protocol):
    """Chooses jobs for a server."""

    def take(self, running: tuple[int, ...]) -> tuple[int, ...]:
        """Jobs to begin now beside those `running` on that server; none: it has what it should have."""

    def over(self, jobs: tuple[int, ...]) -> None:
        """A server is empty on which these were together; who does not learn does nothing."""
        return


def dispatcher(queue: Queue, rules: Rules) -> Dispatcher:
    """The dispatcher of a policy for the jobs of `queue`, all waiting.

    Raises
    ------
    DataError
        If a job does not fit a server.
    """
    rules.room.check(queue)
    if rules.policy == "fifo-shared":
        return _InOrder(queue, rules)
    if rules.policy == "greedy":
        return _Greedy(queue, rules)
    return _Planned(queue, rules)


class _Planned(Dispatcher):
    """Groups of a plan in order of arrival; the next one begins when a server is empty.

    That is blossom as the paper has it: the next pair only after both of a pair are over. It is FIFO where
    all groups are single jobs.
    """

    def __init__(self, queue: Queue, rules: Rules) -> None:
        self._groups = deque(group.jobs for group in plan(queue, rules).groups)

    def take(self, running: tuple[int, ...]) -> tuple[int, ...]:
        """The next group."""
        return self._groups.popleft() if self._groups and not running else ()


class _InOrder(Dispatcher):
    """Whoever is next in order of arrival, as soon as a server has a place and room; nobody overtakes."""

    def __init__(self, queue: Queue, rules: Rules) -> None:
        self._waiting = deque(range(len(queue)))
        self._n_per_node = rules.n_per_node
        self._fits = partial(rules.room.fits, queue)

    def take(self, running: tuple[int, ...]) -> tuple[int, ...]:
        """The next job."""
        if not self._waiting or len(running) >= self._n_per_node:
            return ()
        if running and not self._fits([running, (self._waiting[0],)])[0, 1]:
            return ()
        return (self._waiting.popleft(),)


class _Greedy(Dispatcher):
    """Of the groups allowed the one that is over soonest, as soon as a server has a place.

    An empty server gets the best pair of jobs that wait; one with jobs on it gets the best further one.
    """

    def __init__(self, queue: Queue, rules: Rules) -> None:
        self._queue = queue.counted_on(is_cautious=rules.is_cautious, prior_slowdown=rules.prior_slowdown)
        self._rules = rules
        self._pair_s = self._together_s([(job,) for job in range(len(queue))]).copy()
        np.fill_diagonal(self._pair_s, np.inf)
        self._waiting = np.ones(len(queue), np.bool_)

    def take(self, running: tuple[int, ...]) -> tuple[int, ...]:
        """A pair, a further job, or a job that nothing may run beside."""
        ids = np.flatnonzero(self._waiting)
        if not len(ids) or len(running) >= self._rules.n_per_node:
            return ()
        best = self._further(running, ids) if running else self._begun(ids)
        self._waiting[list(best)] = False
        return best

    def _begun(self, ids: Ints) -> tuple[int, ...]:
        times_s = self._pair_s[np.ix_(ids, ids)]
        i, j = divmod(int(times_s.argmin()), len(ids))
        return (int(ids[i]), int(ids[j])) if np.isfinite(times_s[i, j]) else (int(ids[0]),)

    def _further(self, running: tuple[int, ...], ids: Ints) -> tuple[int, ...]:
        if len(running) == 1:
            times_s = self._pair_s[running[0], ids]
        else:
            times_s = self._together_s([running, *((job,) for job in ids.tolist())])[0, 1:]
        best = int(times_s.argmin())
        return (int(ids[best]),) if np.isfinite(times_s[best]) else ()

    def _together_s(self, groups: Sequence[tuple[int, ...]]) -> Floats:
        rules = self._rules
        return degradation_graph(
            self._queue, groups, rules.room, rules.n_per_node, rules.threshold_frac
        ).weights
