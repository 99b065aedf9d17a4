"""Simulated deployment of a queue on shared servers: Zacarias et al. 2021, section 3.5.1.

The policies decide by predicted slowdowns; jobs then run with the true ones. A job beside others has the rate
1 / slowdown, and gets faster when one of them ends.

A dispatcher chooses jobs for a server: `take(running)` gives the jobs to begin now beside those running
there, none if it has what it should have; `over(jobs)` says that a server is empty on which these were.
"""

import math
from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from mpicoloc.errors import UsageError
from mpicoloc.pairing import production
from mpicoloc.pairing.policies import Queue, Rules, degradation_graph, plan
from mpicoloc.pairing.sharing_plan import WINDOW

NOISE_SD = 0.1
"""Of the logarithm of a slowdown as it is measured."""
LEVELS = {"low": (0.0, 0.75), "medium": (0.75, 1.0), "high": (1.0, np.inf)}
"""Degraded run time of a pair over that of one after the other (section 4.4.1)."""
DONE_FRAC = 1e-9
SIZES = ("n_cores", "memory_bytes", "intensity")


def dispatcher(queue, rules):
    """The dispatcher of a policy for jobs that all wait; DataError if one does not fit a server."""
    rules.room.check(queue)
    return {"fifo-shared": InOrder, "greedy": Greedy}.get(rules.policy, Planned)(queue, rules)


class Planned:
    """Groups of a plan in order of arrival; the next one begins when a server is empty.

    That is blossom as the paper has it: the next pair only after both of a pair are over. It is FIFO where
    all groups are single jobs.
    """

    def __init__(self, queue, rules):
        self._groups = deque(group.jobs for group in plan(queue, rules).groups)

    def take(self, running):
        return self._groups.popleft() if self._groups and not running else ()

    def over(self, jobs):
        pass


class InOrder:
    """Whoever is next in order of arrival, as soon as a server has a place and room; nobody overtakes."""

    def __init__(self, queue, rules):
        self._queue, self._rules, self._waiting = queue, rules, deque(range(len(queue)))

    def take(self, running):
        if not self._waiting or len(running) >= self._rules.n_per_node:
            return ()
        if running and not self._rules.room.fits(self._queue, [running, (self._waiting[0],)])[0, 1]:
            return ()
        return (self._waiting.popleft(),)

    def over(self, jobs):
        pass


class Greedy:
    """Of the groups allowed the one that is over soonest, as soon as a server has a place.

    An empty server gets the best pair of jobs that wait; one with jobs on it gets the best further one.
    """

    def __init__(self, queue, rules):
        self._queue = queue.counted_on(is_cautious=rules.is_cautious, prior_slowdown=rules.prior_slowdown)
        self._rules = rules
        self._pair_s = self._together_s([(job,) for job in range(len(queue))]).copy()
        np.fill_diagonal(self._pair_s, np.inf)
        self._waiting = np.ones(len(queue), np.bool_)

    def take(self, running):
        """A pair, a further job, or a job that nothing may run beside."""
        ids = np.flatnonzero(self._waiting)
        if not len(ids) or len(running) >= self._rules.n_per_node:
            return ()
        best = self._further(running, ids) if running else self._begun(ids)
        self._waiting[list(best)] = False
        return best

    def over(self, jobs):
        pass

    def _begun(self, ids):
        times_s = self._pair_s[np.ix_(ids, ids)]
        i, j = divmod(int(times_s.argmin()), len(ids))
        return (int(ids[i]), int(ids[j])) if np.isfinite(times_s[i, j]) else (int(ids[0]),)

    def _further(self, running, ids):
        if len(running) == 1:
            times_s = self._pair_s[running[0], ids]
        else:
            times_s = self._together_s([running, *((job,) for job in ids.tolist())])[0, 1:]
        best = int(times_s.argmin())
        return (int(ids[best]),) if np.isfinite(times_s[best]) else ()

    def _together_s(self, groups):
        rules = self._rules
        return degradation_graph(
            self._queue, groups, rules.room, rules.n_per_node, rules.threshold_frac
        ).weights


class Meetings:
    """Expected slowdowns of jobs of n kinds beside each other, updated by each pair that met.

    `prior_slowdown` is assumed for kinds that have not met; `rng` draws the errors of measurement.
    """

    def __init__(self, n_kinds, prior_slowdown, rng):
        self._assumed, self._rng, self._n_kinds = prior_slowdown, rng, n_kinds
        self._measured = defaultdict(list)
        self.slowdown = np.full((n_kinds, n_kinds), prior_slowdown)

    def add(self, target, co_runner, slowdown):
        """A job of kind `target` suffered `slowdown` beside one of kind `co_runner`."""
        value = slowdown * math.exp(self._rng.normal(0, NOISE_SD))
        self._measured[target, co_runner].append(production.scattered(value, NOISE_SD, 1, "measured"))
        self.slowdown, _ = production.expected_pair_slowdowns(
            range(self._n_kinds), self._measured, self._assumed
        )


class Learning:
    """Pairs of a plan that is made anew whenever a server is empty, by the meetings so far.

    As the service does it: the first group begins, all others may yet get a better partner.
    """

    def __init__(self, true, kinds, rules, meetings):
        rules.room.check(true)
        self._true, self._kinds, self._rules, self._meetings = true, kinds, rules, meetings
        self._waiting = np.arange(len(true))

    def take(self, running):
        if running or not len(self._waiting):
            return ()
        first, kinds = self._waiting[:WINDOW], self._kinds[self._waiting[:WINDOW]]
        slowdown = self._meetings.slowdown[np.ix_(kinds, kinds)]
        queue = Queue(self._true.runtime_s[first], slowdown, **sizes_of(self._true, first))
        chosen = first[list(plan(queue, self._rules).groups[0].jobs)]
        self._waiting = np.setdiff1d(self._waiting, chosen)
        return tuple(chosen.tolist())

    def over(self, jobs):
        """Two that met are measured; of more nobody knows who was to blame."""
        if len(jobs) == 2:
            for job, other in permutations(jobs):
                known = float(np.nan_to_num(self._true.slowdown[job, other], nan=1.0))
                self._meetings.add(int(self._kinds[job]), int(self._kinds[other]), known)


def sizes_of(queue, jobs):
    """Cores, memory and intensity of some jobs of a queue; None where the queue has none."""
    columns = {name: getattr(queue, name) for name in SIZES}
    return {name: None if column is None else column[jobs] for name, column in columns.items()}


@dataclass(frozen=True)
class Programs:
    """Pool of p programs that queues are drawn from: run times, true and predicted slowdowns.

    Sizes and intensity are those of `predicted`. `beside_itself`, shape (p,): slowdown of a program beside
    another job of the same program; None: 1. `beside_itself_predicted`: the same as predicted; None: exact.
    """

    true: Queue
    predicted: Queue
    beside_itself: np.ndarray | None = None
    beside_itself_predicted: np.ndarray | None = None

    def queue(self, jobs, *, is_true):
        """The queue of `jobs`, each the index of a program."""
        source, own = self.true, self.beside_itself
        if not is_true:
            source = self.predicted
            own = own if self.beside_itself_predicted is None else self.beside_itself_predicted
        slowdown = source.slowdown.copy()
        np.fill_diagonal(slowdown, 1.0 if own is None else own)
        return Queue(source.runtime_s[jobs], slowdown[np.ix_(jobs, jobs)], **sizes_of(self.predicted, jobs))


@dataclass(frozen=True)
class Deployment:
    """When and where each job ran; arrays of shape (n,)."""

    start_s: np.ndarray
    end_s: np.ndarray
    server: np.ndarray

    @property
    def makespan_s(self):
        """From the start of the first job to the end of the last."""
        return float(self.end_s.max(initial=0.0))


def draw(programs, n_jobs, rng):
    """A random queue: indexes of programs, shape (n_jobs,)."""
    return rng.integers(0, len(programs.true), n_jobs)


def draw_level(programs, level, n_jobs, rng):
    """A queue in which each two neighbours, from the first on, are a pair of that level of degradation.

    Zacarias et al. 2021, section 4.4.1: low, medium and high degradation queues. UsageError if there is no
    such level, or no such pair.
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
    return pairs[rng.integers(0, len(pairs), (n_jobs + 1) // 2)].ravel()[:n_jobs]


def deploy(programs, jobs, rules, n_servers=1):
    """Run a queue of programs in order of arrival, all there from the start.

    UsageError if there is no server, DataError if a job does not fit one.
    """
    true = programs.queue(jobs, is_true=True)
    return Servers(true, dispatcher(programs.queue(jobs, is_true=False), rules), n_servers).run()


def deploy_learning(programs, jobs, rules, meetings, n_servers=1):
    """Run a queue under a service that learns from pairs that met; `meetings` gets to know them.

    Errors as of `deploy`; nothing predicted is looked at.
    """
    true = programs.queue(jobs, is_true=True)
    return Servers(true, Learning(true, jobs, rules, meetings), n_servers).run()


def normalised(programs, queues, rules, n_servers=1):
    """Makespans over that of FIFO, as in Figures 6 to 11: shape (n_queues, n_rules)."""
    made = [
        [deploy(programs, jobs, rule, n_servers).makespan_s for rule in (Rules("fifo"), *rules)]
        for jobs in queues
    ]
    times_s = np.array(made).reshape(len(queues), len(rules) + 1)
    return times_s[:, 1:] / times_s[:, :1]


class Servers:
    """The servers while time passes from one end of a job to the next."""

    def __init__(self, true, dispatcher, n_servers):
        if n_servers < 1:
            raise UsageError(f"servers must be >= 1, got {n_servers}")
        self._lost = np.nan_to_num(true.slowdown, nan=1.0) - 1.0
        self._dispatcher = dispatcher
        self._running, self._since_empty = [()] * n_servers, [()] * n_servers
        self._left_s, self._all_s = true.runtime_s.copy(), true.runtime_s
        n = len(true)
        self._start_s, self._end_s, self._server = np.full(n, np.nan), np.full(n, np.nan), np.full(n, -1)

    def run(self):
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

    def _rate(self, job, group):
        return float(1.0 / (1.0 + sum(self._lost[job, other] for other in group if other != job)))

    def _end(self, now_s):
        for server, group in enumerate(self._running):
            over = [job for job in group if self._left_s[job] <= DONE_FRAC * self._all_s[job]]
            self._end_s[over] = now_s
            self._running[server] = tuple(job for job in group if job not in over)
            if group and not self._running[server]:
                self._dispatcher.over(self._since_empty[server])
                self._since_empty[server] = ()

    def _fill(self, now_s):
        """Servers with the fewest jobs first, until no server gets another one."""
        asked = set(range(len(self._running)))
        while asked:
            server = min(asked, key=lambda server: (len(self._running[server]), server))
            taken = self._dispatcher.take(self._running[server])
            if taken:
                # There may be room for who is next where there was none for these.
                asked = set(range(len(self._running)))
            else:
                asked.remove(server)
            for job in taken:
                self._start_s[job], self._server[job] = now_s, server
            self._running[server] += taken
            self._since_empty[server] += taken
