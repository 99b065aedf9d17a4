"""Policies that give jobs parts of nodes: slots, which are cores or halves of a node.

With ``cores`` a job gets as many cores as it requests, and the jobs of a node are neighbours, as with Slurm's
``select/cons_tres`` without oversubscription. With ``spread`` a job gets half of each of twice its nodes. The
order plans with slots instead of nodes, and with the ends that the batch system expects now. A backfilled job
can therefore delay the first job of the queue by slowing down its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from mpicoloc.batch.allocation import best_fit, first_contiguous
from mpicoloc.batch.engine import Observer, Simulation
from mpicoloc.batch.inputs import Machine, Workload
from mpicoloc.batch.order import FREE, Allocation, Nodes, Order, Uses
from mpicoloc.batch.shared_simulation import NO_JOB, Slowdowns
from mpicoloc.core.profile import Bools, Floats, Ints
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, UsageError
from mpicoloc.pairing.cores_plan import EMPTY_NODE_FRAC, Losses, Pressure
from mpicoloc.pairing.spread_plan import HALVES, halves, least_loss

_N_DIGITS = 12
"""Digits of a slowdown that are kept, so that rounding errors change no speed."""


@dataclass(frozen=True)
class Policy:
    """A policy of slots.

    Parameters
    ----------
    is_spread : bool
        Whether jobs get half of each of twice their nodes. The run times in the log are those of packed jobs,
        which have their own processes as neighbours.
    by_model : bool
        Whether a slowdown model chooses the nodes and predicts the ends of jobs. Without it, the allocation
        chooses, and the batch system expects jobs to run as in the log.
    """

    is_spread: bool
    by_model: bool

    def n_slots(self, work: Workload) -> int:
        """Slots of a node.

        Raises `DataError` if nodes have fewer than two cores, or for halves an odd number.
        """
        if work.cores_per_node < 2:
            raise DataError(
                f"nodes have {work.cores_per_node} core, so jobs cannot share them: give --cores-per-node"
            )
        if self.is_spread and work.cores_per_node % HALVES:
            raise DataError(
                f"nodes have {work.cores_per_node} cores, of which jobs cannot have half: give an even "
                "--cores-per-node"
            )
        return HALVES if self.is_spread else work.cores_per_node

    def slots_of(self, work: Workload) -> Ints:
        """Number of slots that each job needs: its cores, or those of its share of a node's memory if more.

        Raises `DataError` if a job needs more cores or memory than its nodes have.
        """
        n_slots, wrong = self.n_slots(work), np.flatnonzero(~self.fits(work))
        if len(wrong):
            self._refuse(work, int(wrong[0]), len(wrong))
        return work.n_nodes * n_slots if self.is_spread else _cores_needed(work)

    def fits(self, work: Workload) -> Bools:
        """Whether the nodes of each job have the cores and the memory that it needs."""
        return np.asarray(_cores_needed(work) <= work.n_nodes * work.cores_per_node)

    def _refuse(self, work: Workload, i: int, n_wrong: int) -> NoReturn:
        n_processors, n_cores = int(_processors(work)[i]), int(work.n_nodes[i]) * work.cores_per_node
        needs, more = f"{n_processors:,} processors, too many", "cores"
        if n_processors <= n_cores:
            needs, more = f"the memory of {_cores_needed(work)[i]:,} processors, too much", "memory"
        raise DataError(
            f"job {work.log.number[i]} needs {needs} for {counted(work.n_nodes[i], 'node')} of "
            f"{counted(work.cores_per_node, 'core')}; {n_wrong:,} of {len(work):,} jobs do not fit: give "
            f"more --{more}-per-node, or --skip-larger"
        )

    def cores_of(self, work: Workload) -> Ints:
        """Number of cores that each job gets."""
        return self.slots_of(work) * work.cores_per_node // self.n_slots(work)


def _processors(work: Workload) -> Ints:
    """Processors that each job requests; all of its nodes if the log does not say."""
    known = work.log.n_processors
    return np.where(known > 0, known, work.n_nodes * work.cores_per_node)


def _cores_needed(work: Workload) -> Ints:
    """Processors that each job requests, or those of its share of a node's memory if more."""
    needed = _processors(work)
    if work.log.memory_bytes is None:
        return needed
    by_memory = needed * work.log.memory_bytes / work.node_bytes * work.cores_per_node
    return np.maximum(needed, np.ceil(by_memory - 1e-6).astype(np.int64))


POLICIES = {
    "cores": Policy(is_spread=False, by_model=False),
    "cores-model": Policy(is_spread=False, by_model=True),
    "spread": Policy(is_spread=True, by_model=False),
    "spread-model": Policy(is_spread=True, by_model=True),
}
"""Policies by name."""


def fill(allocation: Allocation) -> Allocation:
    """The rule that fills nodes with jobs, by the name of the allocation of whole nodes.

    Raises `UsageError` if the allocation has no counterpart for parts of nodes.
    """
    rules = {"best-fit": best_fit, "first-available": first_contiguous, "first-contiguous": first_contiguous}
    if allocation.name not in rules:
        raise UsageError(
            f"allocation {allocation.name} chooses whole nodes; for jobs that share them by cores or spread "
            f"give one of {', '.join(rules)}"
        )
    return Allocation(allocation.name, rules[allocation.name], is_bound_by_number=True)


def slot_machine(machine: Machine, n_slots: int) -> Machine:
    """The machine of all slots; its lowest subtrees are the nodes."""
    levels = (np.arange(machine.n_nodes), *machine.subtree)
    repeated = tuple(np.repeat(level, n_slots) for level in levels)
    return Machine(machine.name, np.repeat(machine.hosts, n_slots), repeated)


class SlotSimulation(Simulation):
    """A simulation in which jobs get slots of nodes.

    Parameters
    ----------
    workload, machine, order, observers
        As for `Simulation`; the machine's nodes, not its slots. Observers get nodes.
    allocation : Allocation
        From `fill`.
    programs : ndarray of int, shape (n_jobs,)
        Program of each job, an index of the slowdowns.
    slowdowns : Slowdowns
        Of programs that have half of a node each.
    policy : Policy

    Attributes
    ----------
    beside : dict of int to set of int
        For each running job its neighbours.

    Notes
    -----
    The slowdowns by neighbours are those of `pairing.cores_plan`. The slowest of its nodes sets the speed of
    a job.
    Under ``spread``, this is divided by the slowdown of the program beside itself, which the log's run times
    contain.
    """

    def __init__(
        self,
        workload: Workload,
        machine: Machine,
        order: Order,
        allocation: Allocation,
        observers: Sequence[Observer],
        programs: Ints,
        slowdowns: Slowdowns,
        policy: Policy,
    ) -> None:
        n_nodes, n_slots = machine.n_nodes, policy.n_slots(workload)
        in_slots = replace(workload, n_nodes=policy.slots_of(workload))
        super().__init__(in_slots, slot_machine(machine, n_slots), order, allocation, observers)
        self._policy, self._n_slots, self._programs = policy, n_slots, programs.tolist()
        self._job_of = np.full((n_nodes, n_slots), NO_JOB)
        self._n_jobs = np.zeros(n_nodes, np.int64)
        self._places: dict[int, tuple[Ints, Ints]] = {}
        believed = slowdowns.believed if policy.by_model else np.ones_like(slowdowns.true)
        self._true = self._believed = _Pressure(slowdowns.true, n_nodes, n_slots, policy.is_spread)
        if believed is not slowdowns.true:
            self._believed = _Pressure(believed, n_nodes, n_slots, policy.is_spread)
        self._expected: dict[int, float] = {}
        self.beside: dict[int, set[int]] = {}
        self._chooser = _Chooser(self._believed, machine, allocation) if policy.by_model else None

    @property
    def n_busy_nodes(self) -> int:
        """Number of nodes with a job."""
        return int(np.count_nonzero(self._n_jobs))

    @property
    def n_shared_nodes(self) -> int:
        """Number of nodes with several jobs."""
        return int(np.count_nonzero(self._n_jobs > 1))

    def nodes_of(self, taken: Ints) -> Ints:
        """The nodes of these slots, which ascend."""
        nodes = taken // self._n_slots
        return np.asarray(nodes[np.diff(nodes, prepend=-1) > 0])

    def _choose(self, job: int, n_nodes: int) -> Nodes | None:
        uses, n_slots = self.view.uses, self._n_slots
        if self._chooser is None and not self._policy.is_spread:
            return super()._choose(job, n_nodes)
        free = np.count_nonzero((uses == FREE).reshape(-1, n_slots), axis=1)
        if self._chooser is not None:
            wanted = self._chooser.choose(free, self._programs[job], n_nodes)
        else:
            wanted = halves(free, np.argsort(free, kind="stable"), n_nodes)
        return slots_on(uses, wanted, n_slots), 1

    def _begin(self, job: int, chosen: Nodes) -> None:
        nodes, counts = np.unique(chosen[0] // self._n_slots, return_counts=True)
        self._places[job], self._expected[job] = (nodes, counts), 1.0
        others = self._neighbours(nodes[self._n_jobs[nodes] > 0])
        self.beside[job] = others
        for other in others:
            self.beside[other].add(job)
        self._job_of.ravel()[chosen[0]] = job
        self._change(job, nodes, counts, 1)
        super()._begin(job, chosen)
        self._set_paces({job, *others} if others or self._policy.is_spread else ())
        if self._stale and self._looks_ahead():
            self._expect_again()

    def _leave(self, job: int, nodes: Ints) -> None:
        super()._leave(job, nodes)
        self._job_of.ravel()[nodes] = NO_JOB
        self._change(job, *self._places.pop(job), -1)
        others = self.beside.pop(job)
        del self._expected[job]
        for other in others:
            self.beside[other].remove(job)
        self._set_paces(others)

    def _neighbours(self, nodes: Ints) -> set[int]:
        """The jobs on these nodes."""
        return set(self._job_of[nodes].ravel().tolist()) - {NO_JOB} if len(nodes) else set()

    def _change(self, job: int, nodes: Ints, counts: Ints, sign: int) -> None:
        """Account for a job that begins (sign 1) or ends (-1) on nodes, with so many slots of each."""
        self._n_jobs[nodes] += sign
        program, empty = self._programs[job], nodes[self._n_jobs[nodes] == 0]
        self._true.change(program, nodes, sign * counts, empty)
        if self._believed is not self._true:
            self._believed.change(program, nodes, sign * counts, empty)
        if self._chooser is not None:
            self._chooser.change(program, nodes, sign * counts, empty)

    def _set_paces(self, jobs: Iterable[int]) -> None:
        """Update the speeds of jobs whose neighbours have changed."""
        for job in sorted(jobs):
            place = self._programs[job], *self._places[job]
            true = self._true.pace(*place)
            believed = true if self._true is self._believed else self._believed.pace(*place)
            if self.node_slowdown[job] != true:
                self.set_node_slowdown(job, true)
            if self._expected[job] != believed:
                self._expected[job] = believed
                self._stale.add(job)

    def _expected_pace(self, job: int) -> float:
        return self._expected[job] + self.link_delay[job]


class _Pressure(Pressure):
    """Pressures, and the speeds of jobs by them."""

    def __init__(self, slowdowns: Floats, n_nodes: int, n_slots: int, is_spread: bool) -> None:
        super().__init__(slowdowns, n_nodes, n_slots)
        self.is_spread = is_spread

    def pace(self, program: int, nodes: Ints, counts: Ints) -> float:
        """Slowdown of a job with these slots of nodes, by the slowest of its nodes."""
        own = float(self.excess[program, program])
        if self.is_spread:
            slowest = float(self.suffered[nodes, program].max()) - own
            return round((1.0 + slowest) / (1.0 + own), _N_DIGITS)
        others = self.suffered[nodes, program] - own * counts
        return round(1.0 + float(others.max()), _N_DIGITS)


class _Chooser(Losses):
    """Chooses the nodes on which a job and its neighbours lose least by the expected slowdowns."""

    def __init__(self, believed: _Pressure, machine: Machine, allocation: Allocation) -> None:
        super().__init__(believed)
        self._is_spread, self._machine, self._allocation = believed.is_spread, machine, allocation

    def choose(self, free: Ints, program: int, n_slots: int) -> Ints:
        """Slots on each node for a job of this program; at least as many are free."""
        wanted = self._spread(free, program, n_slots) if self._is_spread else None
        return self._packed(free, program, n_slots) if wanted is None else wanted

    def _packed(self, free: Ints, program: int, n_slots: int) -> Ints:
        """Slots on each node: whole nodes for as much of the job as possible, the rest beside others."""
        whole, rest = divmod(n_slots, self.n_slots)
        is_used = free < self.n_slots
        chosen = self._allocation.choose(self._machine, is_used.astype(np.uint8), whole) if whole else None
        if whole and chosen is None:
            return _filled(free, self.by_slot(program, n_slots), n_slots)
        wanted = np.zeros_like(free)
        if chosen is not None:
            wanted[chosen[0]] = self.n_slots
        if rest:
            left = free - wanted
            loss = np.where(is_used, self.by_slot(program, n_slots) * rest, EMPTY_NODE_FRAC * n_slots)
            holds_rest = left >= rest
            if holds_rest.any():
                loss[~holds_rest] = np.inf
            wanted += _filled(left, loss, rest)
        return wanted

    def _spread(self, free: Ints, program: int, n_slots: int) -> Ints | None:
        """Slots on each node: halves of nodes; None if the job is expected to be faster when packed."""
        suffered, is_used = self.believed.suffered[:, program], free < HALVES
        caused = np.where(is_used, self.caused[:, program], EMPTY_NODE_FRAC)
        own = float(self.believed.excess[program, program])
        best, _, least = least_loss(free, suffered, caused, own, n_slots)
        is_room = int(np.count_nonzero(~is_used)) * HALVES >= n_slots
        return None if is_room and n_slots * own <= least else best


def _filled(free: Ints, loss: Floats, n_slots: int) -> Ints:
    """Slots on each node: as many as are free, on the nodes with the least loss first."""
    order = np.argsort(loss, kind="stable")
    before = np.cumsum(free[order]) - free[order]
    wanted = np.zeros_like(free)
    wanted[order] = np.clip(n_slots - before, 0, free[order])
    return wanted


def slots_on(uses: Uses, wanted: Ints, n_slots: int) -> Ints:
    """The first free slots of each node, as many as wanted there."""
    is_free = (uses == FREE).reshape(-1, n_slots)
    return np.flatnonzero(is_free & (np.cumsum(is_free, axis=1) <= wanted[:, None]))
