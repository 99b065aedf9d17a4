"""A service that learns: it assumes one slowdown for all pairs, until jobs of two kinds have met."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.schedule.policies import Rules, plan
from mpicoloc.schedule.queue import Queue
from mpicoloc.schedule.sharing_plan import WINDOW
from mpicoloc.schedule.sim_policies import Dispatcher
from mpicoloc.slowdown import pair_history

Ints = NDArray[np.int64]

NOISE_SD = 0.1
"""Of the logarithm of a slowdown as it is measured."""


class Meetings:
    """What is expected of jobs of n kinds beside each other; it grows with each pair that met.

    Parameters
    ----------
    n_kinds : int
    prior_slowdown : float
        Assumed of kinds that have not met.
    rng : numpy.random.Generator
        For the errors of what is measured.
    """

    def __init__(self, n_kinds: int, prior_slowdown: float, rng: np.random.Generator) -> None:
        self._assumed, self._rng = prior_slowdown, rng
        self._measured: dict[tuple[int, int], list[Estimate]] = defaultdict(list)
        self._n_kinds = n_kinds
        self.slowdown = np.full((n_kinds, n_kinds), prior_slowdown)

    def add(self, target: int, co_runner: int, slowdown: float) -> None:
        """A job of kind `target` suffered `slowdown` beside one of kind `co_runner`."""
        value = slowdown * math.exp(self._rng.normal(0, NOISE_SD))
        self._measured[target, co_runner].append(pair_history.scattered(value, NOISE_SD, 1, "measured"))
        self.slowdown, _ = pair_history.expected_pair_slowdowns(
            range(self._n_kinds), self._measured, self._assumed
        )


class Learning(Dispatcher):
    """Pairs of a plan that is made anew whenever a server is empty, by the meetings so far.

    As the service does it: the first group begins, all others may yet get a better partner.
    """

    def __init__(self, true: Queue, kinds: Ints, rules: Rules, meetings: Meetings) -> None:
        rules.room.check(true)
        self._true, self._kinds, self._rules, self._meetings = true, kinds, rules, meetings
        self._waiting = np.arange(len(true))

    def take(self, running: tuple[int, ...]) -> tuple[int, ...]:
        """The next group."""
        if running or not len(self._waiting):
            return ()
        first, kinds = self._waiting[:WINDOW], self._kinds[self._waiting[:WINDOW]]
        slowdown = self._meetings.slowdown[np.ix_(kinds, kinds)]
        sizes = {
            name: None if (column := getattr(self._true, name)) is None else column[first]
            for name in ("n_cores", "memory_bytes", "intensity")
        }
        groups = plan(Queue(self._true.runtime_s[first], slowdown, **sizes), self._rules).groups
        chosen = first[list(groups[0].jobs)]
        self._waiting = np.setdiff1d(self._waiting, chosen)
        return tuple(chosen.tolist())

    def over(self, jobs: tuple[int, ...]) -> None:
        """Two that met are measured; of more nobody knows who was to blame."""
        if len(jobs) == 2:
            for job, other in permutations(jobs):
                known = float(np.nan_to_num(self._true.slowdown[job, other], nan=1.0))
                self._meetings.add(int(self._kinds[job]), int(self._kinds[other]), known)
