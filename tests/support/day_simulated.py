"""The tutorial's twenty jobs once more, in the simulator, from what Slurm's accounting says of them.

Of each job the accounting tells how long it was alone and how long beside another one, and so, with the
slowdown of its program, its work. Simulated are who begins when, how long jobs are together, and so when each
ends.
"""

from collections import defaultdict
from statistics import mean

import numpy as np

from mpicoloc.batch import allocation, engine, order
from mpicoloc.batch.inputs import NO_JOB, JobLog, of_hosts, workload
from mpicoloc.batch.shared_simulation import Join, SharedSimulation, Slowdowns
from mpicoloc.batch.sharing_rules import Joining
from mpicoloc.core.network import Topology


def alone_s(jobs):
    """Mean run time of each program's jobs, which had their nodes for themselves, s."""
    times = defaultdict(list)
    for job in jobs:
        times[job.name].append(job.end_s - job.start_s)
    return {name: mean(found) for name, found in times.items()}


def gap_s(jobs, others=()):
    """Mean time from the end of a job to the begin of the next on its node, s; not of `others`."""
    found = []
    for i, job in enumerate(jobs):
        ends = [one.end_s for one in jobs if one.node == job.node and one.end_s <= job.start_s]
        if ends and i not in others:
            found.append(job.start_s - max(ends))
    return mean(found) if found else 0.0


def together_s(job, jobs):
    """Time that a job had a co-runner, s; assumes at most two jobs on a node."""
    both = (min(job.end_s, other.end_s) - max(job.start_s, other.start_s)
            for other in jobs if other is not job and other.node == job.node)  # fmt: skip
    return sum(max(time_s, 0.0) for time_s in both)


def slowdowns(jobs, solo_s):
    """Slowdown of each program beside others.

    A job with work w that was alone for a s and together for t s went w - a while together, so its slowdown
    was t / (w - a); of a program's jobs it is that of the sums, since Slurm tells whole seconds. At least 1,
    also if the machine had more else to do when the jobs were alone.
    """
    both, left = defaultdict(float), defaultdict(float)
    for job in jobs:
        t_s = together_s(job, jobs)
        if t_s:
            both[job.name] += t_s
            left[job.name] += solo_s[job.name] - (job.end_s - job.start_s - t_s)
    return {name: max(both[name] / max(left[name], 1e-9), 1.0) if name in both else 1.0 for name in solo_s}


def work_s(jobs, slowdown):
    """Work of each job, s of its run alone: its time alone, and what it did while it had others beside it."""
    together = [together_s(job, jobs) for job in jobs]
    return [job.end_s - job.start_s - t_s * (1 - 1 / slowdown[job.name])
            for job, t_s in zip(jobs, together, strict=True)]  # fmt: skip


class AsChosen:
    """Joins that the pairing service chose, and how long after its partner each second job came.

    `leader` has the job that was there before, by the second one.
    """

    packs = True

    def __init__(self, leader, jobs):
        self.leader = leader
        self.late_s = {job: jobs[job].start_s - jobs[first].start_s for job, first in leader.items()}
        self._look_s = np.inf
        self._gone = set()

    def began(self, simulation, job, nodes):
        """Nothing."""

    def ended(self, simulation, job, nodes):
        """Jobs that wait for this job's node may start on any other."""
        self._gone.add(job)

    def waits(self, job):
        """Whether a job goes to the node of another one, and so to no free one."""
        return job in self.leader and self.leader[job] not in self._gone

    def next_join(self, simulation):
        """A waiting job whose partner has run for as long as it did in Slurm when this one came."""
        self._look_s = np.inf
        for job in simulation.waiting["job"].tolist():
            first = self.leader.get(job)
            if first in simulation.nodes:
                due_s = simulation.schedule.start_s[first] + self.late_s[job]
                if due_s <= simulation.now_s:
                    return Join(job, simulation.nodes[first])
                self._look_s = min(self._look_s, due_s)
        return None

    def next_look_s(self):
        """When the next second job is due, s."""
        return self._look_s


def leaders(jobs):
    """For each job that came to another one's node: index of that one."""
    return {
        i: k
        for i, job in enumerate(jobs)
        for k, other in enumerate(jobs)
        if other.node == job.node and (other.start_s, k) < (job.start_s, i) and job.start_s < other.end_s
    }


def ends_s(way, jobs, solo_s):
    """When each job of this way (exclusive, shared or pairs) ends in simulation, s since 1970.

    The jobs are in ascending order of their numbers; `solo_s` is that of `alone_s`.
    """
    begin_s = min(job.start_s for job in jobs)
    first = leaders(jobs) if way == "pairs" else {}
    wait_s, slowdown = gap_s(jobs, first), slowdowns(jobs, solo_s)
    submit_s = [max(job.submit_s - begin_s, 0.0) for job in jobs]
    # A job has its node until the next one can begin; where all are together that is stretched, too.
    stretch = [slowdown[job.name] if way == "shared" else 1.0 for job in jobs]
    held_s = [one + wait_s / by for one, by in zip(work_s(jobs, slowdown), stretch, strict=True)]
    log = _log(submit_s, held_s)
    n_nodes = len({job.node for job in jobs})
    nodes = of_hosts(Topology((n_nodes,), (1,), (1e9,)), np.arange(n_nodes))
    work, chosen = workload(log, 1, n_nodes), allocation.named("first-available")
    if way == "exclusive":
        return engine.simulate(work, nodes, order.named("fcfs"), chosen).end_s - wait_s + begin_s
    names = sorted(solo_s)
    cost = np.repeat([[slowdown[name]] for name in names], len(names), axis=1)
    programs = np.array([names.index(job.name) for job in jobs])
    sharing, next_job, watchers = Joining(is_blind=True, overtakes=False), order.named("fcfs"), ()
    if way == "pairs":
        sharing = AsChosen(first, jobs)
        next_job, watchers = _in_order([job.start_s for job in jobs], sharing.waits), (sharing,)
    run = SharedSimulation(
        work, nodes, next_job, chosen, watchers, programs, Slowdowns(cost, cost), sharing
    )  # fmt: skip
    return run.run().end_s - wait_s + begin_s


def _in_order(start_s, waits):
    """The order in which the service let jobs begin, but for those that wait for another one's node."""

    def next_job(view):
        jobs = view.queue["job"].tolist()
        places = [place for place, job in enumerate(jobs) if not waits(job)]
        if not places:
            return None
        place = min(places, key=lambda place: (start_s[jobs[place]], jobs[place]))
        return place if view.can_start(place) else None

    return next_job


def _log(submit_s, run_s):
    n = len(run_s)
    unknown = ("n_processors", "user", "program", "queue", "partition", "previous")
    return JobLog(
        number=np.arange(1, n + 1),
        submit_s=np.array(submit_s),
        run_s=np.array(run_s),
        limit_s=np.array(run_s),
        n_nodes=np.ones(n, int),
        think_s=np.zeros(n),
        **{name: np.full(n, NO_JOB) for name in unknown},
    )
