"""Simulated durations of jobs that share a network: each alone, and all together.

The times are those of Jokanovic 2014, section 2.3: T_base with all hosts on one switch, T_alone on the
network without other jobs, T_sharing with other jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mpicoloc.core import progress
from mpicoloc.core.profile import Array, Estimate
from mpicoloc.core.slowdown import JobFeatures, SlowdownModel, alone
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError
from mpicoloc.replay.network import Hardware, SimulatedNetwork, crossbar
from mpicoloc.replay.programs.builder import RankPrograms
from mpicoloc.replay.simulate import Job, Settings, SimulatedRun, simulate


@dataclass(frozen=True)
class PlacedJob:
    """A job on hosts of a network.

    Parameters
    ----------
    programs : RankPrograms
    hosts : ndarray of int, shape (n_ranks,)
        Host of each rank.
    service_level : int
        Service level of its packets.
    compute_factor : ndarray of float, shape (n_ranks,), optional
        Factor for the computation time of each rank.
    """

    programs: RankPrograms
    hosts: Array
    service_level: int = 0
    compute_factor: Array | None = None

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.programs.name

    @property
    def n_hosts(self) -> int:
        """Number of hosts of the job."""
        return len(np.unique(self.hosts))

    def simulated(self, hosts: Array | None = None) -> Job:
        """The job for the simulator, on `hosts` if given."""
        return Job(
            self.name,
            self.programs.programs,
            self.programs.program_of_rank,
            self.hosts if hosts is None else hosts,
            self.service_level,
            compute_factor_of_rank=self.compute_factor,
        )


@dataclass(frozen=True)
class JobTimes:
    """Times of a job, s; None: not simulated."""

    name: str
    n_ranks: int
    n_hosts: int
    base_s: float | None
    alone_s: float
    sharing_s: float

    @property
    def intra_s(self) -> float | None:
        """Time that the network alone costs the job: T_alone - T_base (Jokanovic 2014, section 3.1)."""
        return None if self.base_s is None else self.alone_s - self.base_s

    @property
    def inter_s(self) -> float:
        """Time that other jobs cost the job: T_sharing - T_alone (Jokanovic 2014, Eq. 2.2 and 5.1)."""
        return self.sharing_s - self.alone_s

    @property
    def normalised(self) -> float | None:
        """(T_base + T_intra + T_inter) / T_base (Jokanovic 2014, Eq. 3.1)."""
        return self.sharing_s / self.base_s if self.base_s else None

    @property
    def slowdown(self) -> float:
        """T_sharing / T_alone."""
        return self.sharing_s / self.alone_s if self.alone_s else 1.0


def total_contention_s(times: Sequence[JobTimes]) -> float:
    """Total time that jobs cost each other, s (Jokanovic 2014, Eq. 5.2)."""
    return sum(job.inter_s for job in times)


def j_inter_host_s(times: Sequence[JobTimes]) -> float:
    """Host time that jobs lose to each other, host seconds (Jokanovic 2014, Eq. 2.3)."""
    return sum(job.n_hosts * job.inter_s for job in times)


def lost_gflop(times: Sequence[JobTimes], host_gflops: float) -> float:
    """P_w, the work that hosts of this speed could do in the time that jobs lose to each other (Jokanovic
    2014, Eq. 5.3, generalised to any number of hosts).
    """
    return host_gflops * j_inter_host_s(times)


def efficiency(before_host_s: float | None, after_host_s: float) -> float | None:
    """E(P): host time lost before a policy, divided by host time lost under it (Jokanovic 2014, Eq. 2.4).

    None if jobs lose no time under the policy, or the loss before is unknown.
    """
    return None if before_host_s is None or after_host_s <= 0 else before_host_s / after_host_s


def simulate_base(
    job: PlacedJob, link_bps: float, hardware: Hardware | None = None, settings: Settings | None = None
) -> SimulatedRun:
    """Simulate the job with all of its hosts on one switch. The time is T_base."""
    hosts, numbers = np.unique(job.hosts, return_inverse=True)
    network = crossbar(max(len(hosts), 2), link_bps, hardware)
    return _simulated(network, [job.simulated(numbers)], settings, f"simulating {job.name} on one switch")


def simulate_alone(
    network: SimulatedNetwork, job: PlacedJob, settings: Settings | None = None
) -> SimulatedRun:
    """Simulate the job on the network without other jobs. The time is T_alone."""
    return _simulated(network, [job.simulated()], settings, f"simulating {job.name} alone")


def simulate_sharing(
    network: SimulatedNetwork, jobs: Sequence[PlacedJob], settings: Settings | None = None
) -> SimulatedRun:
    """Simulate all jobs at the same time. The times are T_sharing."""
    return _simulated(
        network,
        [job.simulated() for job in jobs],
        settings,
        f"simulating {counted(len(jobs), 'job')} together",
    )


def _simulated(
    network: SimulatedNetwork, jobs: Sequence[Job], settings: Settings | None, what: str
) -> SimulatedRun:
    with progress.stage(what, unit="us of simulated time") as advance:
        last_s = 0.0

        def report_progress(now_s: float, n_done: int) -> None:
            nonlocal last_s
            advance((now_s - last_s) * 1e6)
            last_s = now_s

        return simulate(network, jobs, settings, report_progress)


@dataclass(frozen=True)
class Experiment:
    """Jobs simulated separately and together on one network.

    Parameters
    ----------
    jobs : tuple of PlacedJob
    network : SimulatedNetwork
    base : tuple of SimulatedRun or None
        Each job on one switch; None: not simulated.
    alone : tuple of SimulatedRun
        Each job without the others.
    sharing : SimulatedRun
        All jobs together.
    """

    jobs: tuple[PlacedJob, ...]
    network: SimulatedNetwork
    base: tuple[SimulatedRun | None, ...]
    alone: tuple[SimulatedRun, ...]
    sharing: SimulatedRun

    @property
    def times(self) -> tuple[JobTimes, ...]:
        """Times of each job."""
        return tuple(
            JobTimes(
                job.name,
                job.programs.n_ranks,
                job.n_hosts,
                None if base is None else base.jobs[0].end_s,
                alone.jobs[0].end_s,
                together.end_s,
            )
            for job, base, alone, together in zip(
                self.jobs, self.base, self.alone, self.sharing.jobs, strict=True
            )
        )


def stretched(job: PlacedJob, n_hosts: int, factor: float) -> PlacedJob:
    """The job with computation `factor` times as long on the first `n_hosts` of its hosts.

    Raises `DataError` if it has fewer hosts.
    """
    hosts = np.unique(job.hosts)
    if not 0 <= n_hosts <= len(hosts):
        raise DataError(f"{n_hosts} hosts of job {job.name} cannot be stretched: it has {len(hosts)}")
    factors = np.where(np.isin(job.hosts, hosts[:n_hosts]), factor, 1.0)
    return replace(job, compute_factor=factors)


METHOD = "replay"
CONFIDENCE = 0.95


class ReplayedJobs:
    """A `SlowdownModel` of jobs on separate hosts that share links.

    Each random placement is simulated with all jobs together, and with the target alone on the same hosts.
    Predictions are cached, and depend only on the jobs' kinds.

    Parameters
    ----------
    programs : mapping of str to RankPrograms
        Programs of each kind of job (`JobFeatures.kind`), one rank on each host.
    network : SimulatedNetwork
    settings : Settings, optional
    seed : int
        Seed of the placements.
    n_placements : int
        Number of placements to draw.
    otherwise : SlowdownModel, optional
        Model for sets of jobs with unknown programs.

    Raises
    ------
    DataError
        If there are no placements.
    """

    def __init__(
        self,
        programs: Mapping[str, RankPrograms],
        network: SimulatedNetwork,
        settings: Settings | None = None,
        seed: int = 0,
        n_placements: int = 3,
        otherwise: SlowdownModel | None = None,
    ) -> None:
        if n_placements < 1:
            raise DataError(f"replay: the number of placements must be at least 1, got {n_placements}")
        self._programs, self._network, self._settings = dict(programs), network, settings
        self._orders = [
            np.random.default_rng([seed, i]).permutation(network.n_hosts) for i in range(n_placements)
        ]
        self._otherwise = otherwise
        self._known: dict[tuple[str, ...], NDArray[np.float64]] = {}

    def predict(self, target: JobFeatures, co_runners: Sequence[JobFeatures]) -> Estimate:
        """Simulated slowdown of `target`; see `SlowdownModel`.

        Raises `DataError` if the programs of a job are unknown and there is no other model, or the jobs do
        not fit.

        Beside several jobs, the slowdown is at least that beside each of them alone: a smaller simulated
        value only means that the draw gave the target better hosts.
        """
        if not co_runners:
            return alone(METHOD)
        kinds = sorted(job.kind for job in co_runners)
        unknown = [kind for kind in (target.kind, *kinds) if kind not in self._programs]
        if unknown:
            if self._otherwise is not None:
                return self._otherwise.predict(target, co_runners)
            raise DataError(f"no trace of {unknown[0]} is known: trace a run of it, or give a model")
        sets = dict.fromkeys([(kind,) for kind in kinds] + [tuple(kinds)])
        return _estimate(np.max([self._slowdowns(target.kind, one) for one in sets], axis=0))

    def _slowdowns(self, target: str, co_runners: tuple[str, ...]) -> NDArray[np.float64]:
        """Slowdown of the target on each placement, at least 1."""
        kinds = (target, *co_runners)
        if kinds not in self._known:
            self._known[kinds] = np.array([self._slowdown(kinds, order) for order in self._orders])
        return self._known[kinds]

    def _slowdown(self, kinds: tuple[str, ...], order: NDArray[Any]) -> float:
        sizes = [self._programs[kind].n_ranks for kind in kinds]
        if sum(sizes) > len(order):
            raise DataError(
                f"replay: jobs of {', '.join(map(str, sizes))} ranks need {sum(sizes)} hosts, but the "
                f"network has {len(order)}: take a larger topology"
            )
        ends = np.cumsum(sizes)
        jobs = [
            PlacedJob(self._programs[kind], order[end - size : end])
            for kind, size, end in zip(kinds, sizes, ends, strict=True)
        ]
        alone_s = simulate_alone(self._network, jobs[0], self._settings).jobs[0].end_s
        sharing_s = simulate_sharing(self._network, jobs, self._settings).jobs[0].end_s
        return max(sharing_s / alone_s, 1.0) if alone_s > 0 else 1.0


def _estimate(found: NDArray[np.float64]) -> Estimate:
    """Mean over placements, with an interval if there are several."""
    value, n = float(found.mean()), len(found)
    half = 0.0
    if n > 1:
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * found.std(ddof=1) / n**0.5)
    return Estimate(value, max(1.0, value - half), value + half, n, "1", METHOD)
