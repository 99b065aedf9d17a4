"""Simulated deployment of a queue on shared servers: Zacarias et al. 2021, section 3.5.1.

The policies decide by predicted slowdowns; jobs then run with the true ones. A job beside others has the rate
1 / slowdown, and gets faster when one of them ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.errors import UsageError
from mpicoloc.schedule.policies import Rules
from mpicoloc.schedule.queue import Queue
from mpicoloc.schedule.sim_learning import Learning, Meetings
from mpicoloc.schedule.sim_policies import Dispatcher, dispatcher

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVELS = {"low": (0.0, 0.75), "medium": (0.75, 1.0), "high": (1.0, np.inf)}
"""Degraded run time of a pair over that of one after the other (section 4.4.1)."""
_DONE_FRAC = 1e-9


@dataclass(frozen=True)
class Programs:
    """What queues are drawn from.

    Parameters
    ----------
    true, predicted : Queue
        Of p programs: run times, slowdowns as they are and as a model says. What is known besides (sizes,
        intensity) is taken from `predicted`.
    beside_itself : ndarray, shape (p,), optional
        True slowdown of a program beside another job of it. Default: it is told of none, and counts as 1.
    beside_itself_predicted : ndarray, shape (p,), optional
        As predicted. Default: as it is.
    """

    true: Queue
    predicted: Queue
    beside_itself: Floats | None = None
    beside_itself_predicted: Floats | None = None

    def queue(self, jobs: Ints, *, is_true: bool) -> Queue:
        """The queue of `jobs`, each the index of a program."""
        source = self.true if is_true else self.predicted
        own = (
            self.beside_itself
            if is_true or self.beside_itself_predicted is None
            else self.beside_itself_predicted
        )
        slowdown = source.slowdown.copy()
        np.fill_diagonal(slowdown, 1.0 if own is None else own)
        parts = {
            name: None if (column := getattr(self.predicted, name)) is None else column[jobs]
            for name in ("n_cores", "memory_bytes", "intensity")
        }
        return Queue(source.runtime_s[jobs], slowdown[np.ix_(jobs, jobs)], **parts)


@dataclass(frozen=True)
class Deployment:
    """When and where each job ran; arrays of shape (n,)."""

    start_s: Floats
    end_s: Floats
    server: Ints

    @property
    def makespan_s(self) -> float:
        """From the start of the first job to the end of the last."""
        return float(self.end_s.max(initial=0.0))


def draw(programs: Programs, n_jobs: int, rng: np.random.Generator) -> Ints:
    """A random queue: indexes of programs, shape (n_jobs,)."""
    return rng.integers(0, len(programs.true), n_jobs)


def draw_level(programs: Programs, level: str, n_jobs: int, rng: np.random.Generator) -> Ints:
    """A queue in which each two neighbours, from the first on, are a pair of that level of degradation.

    Raises
    ------
    UsageError
        If there is no such level, or no such pair.

    Notes
    -----
    Zacarias et al. 2021, section 4.4.1: low, medium and high degradation queues.
    """
    if level not in LEVELS:
        raise UsageError(f"no level {level!r}; there are {', '.join(LEVELS)}")
    ids = np.arange(len(programs.true))
    queue = programs.queue(ids, is_true=True)
    degraded_s = queue.runtime_s[:, None] * queue.slowdown
    ratio = np.maximum(degraded_s, degraded_s.T) / (queue.runtime_s[:, None] + queue.runtime_s)
    low, high = LEVELS[level]
    pairs = np.argwhere((ratio >= low) & (ratio < high) & (ids[:, None] != ids))
    if not len(pairs):
        raise UsageError(f"no two programs have a {level} degradation")
    chosen: Ints = pairs[rng.integers(0, len(pairs), (n_jobs + 1) // 2)].ravel()
    return chosen[:n_jobs]


def deploy(programs: Programs, jobs: Ints, rules: Rules, n_servers: int = 1) -> Deployment:
    """Run a queue.

    Parameters
    ----------
    programs : Programs
    jobs : ndarray of int, shape (n,)
        Programs in order of arrival; all are there from the start.
    rules : Rules
        Policy and threshold.
    n_servers : int

    Raises
    ------
    UsageError
        If there is no server.
    DataError
        If a job does not fit a server.
    """
    true = programs.queue(jobs, is_true=True)
    chooses = dispatcher(programs.queue(jobs, is_true=False), rules)
    return _Run(true, chooses, n_servers).done()


def deploy_learning(
    programs: Programs, jobs: Ints, rules: Rules, meetings: Meetings, n_servers: int = 1
) -> Deployment:
    """Run a queue under a service that learns from pairs that met; `meetings` gets to know them.

    Other parameters and errors as of `deploy`; nothing predicted is looked at.
    """
    true = programs.queue(jobs, is_true=True)
    return _Run(true, Learning(true, jobs, rules, meetings), n_servers).done()


def normalised(
    programs: Programs, queues: Sequence[Ints], rules: Sequence[Rules], n_servers: int = 1
) -> Floats:
    """Makespans over that of FIFO, as in Figures 6 to 11: shape (n_queues, n_rules)."""
    made = [
        [deploy(programs, jobs, rule, n_servers).makespan_s for rule in (Rules("fifo"), *rules)]
        for jobs in queues
    ]
    times_s = np.array(made).reshape(len(queues), len(rules) + 1)
    return np.asarray(times_s[:, 1:] / times_s[:, :1])


class _Run:
    """The servers while time passes from one end of a job to the next."""

    def __init__(self, true: Queue, chooses: Dispatcher, n_servers: int) -> None:
        if n_servers < 1:
            raise UsageError(f"servers must be >= 1, got {n_servers}")
        self._lost = np.nan_to_num(true.slowdown, nan=1.0) - 1.0
        self._chooses = chooses
        self._running: list[tuple[int, ...]] = [()] * n_servers
        self._since_empty: list[tuple[int, ...]] = [()] * n_servers
        self._left_s = true.runtime_s.copy()
        self._all_s = true.runtime_s
        n = len(true)
        self._start_s, self._end_s = np.full(n, np.nan), np.full(n, np.nan)
        self._server = np.full(n, -1)

    def done(self) -> Deployment:
        """All jobs run."""
        now_s = 0.0
        self._fill(now_s)
        while any(self._running):
            rates = {job: self._rate(job, group) for group in self._running for job in group}
            step_s = min(self._left_s[job] / rate for job, rate in rates.items())
            now_s += step_s
            for job, rate in rates.items():
                self._left_s[job] -= rate * step_s
            self._end(now_s)
            self._fill(now_s)
        return Deployment(self._start_s, self._end_s, self._server)

    def _rate(self, job: int, group: tuple[int, ...]) -> float:
        return float(1.0 / (1.0 + sum(self._lost[job, other] for other in group if other != job)))

    def _end(self, now_s: float) -> None:
        for server, group in enumerate(self._running):
            over = [job for job in group if self._left_s[job] <= _DONE_FRAC * self._all_s[job]]
            self._end_s[over] = now_s
            self._running[server] = tuple(job for job in group if job not in over)
            if group and not self._running[server]:
                self._chooses.over(self._since_empty[server])
                self._since_empty[server] = ()

    def _fill(self, now_s: float) -> None:
        """Servers with the fewest jobs first, until no server gets another one."""
        asked = set(range(len(self._running)))
        while asked:
            server = min(asked, key=lambda server: (len(self._running[server]), server))
            taken = self._chooses.take(self._running[server])
            if taken:
                # There may be room for who is next where there was none for these.
                asked = set(range(len(self._running)))
            else:
                asked.remove(server)
            for job in taken:
                self._start_s[job], self._server[job] = now_s, server
            self._running[server] += taken
            self._since_empty[server] += taken
