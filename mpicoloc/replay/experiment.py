"""How much longer jobs take because their packets meet: each by itself and all together, simulated.

The times are those of Jokanovic 2014, section 2.3: T_base on one switch for all hosts, T_alone on the network
without other jobs, T_sharing with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc.core import progress
from mpicoloc.core.arrays import Array
from mpicoloc.errors import DataError
from mpicoloc.replay.fabrics import Hardware, crossbar
from mpicoloc.replay.network import SimulatedNetwork
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
        Of its packets.
    compute_factor : ndarray of float, shape (n_ranks,), optional
        Multiplies the computation of each rank.
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
        """Hosts that the job has."""
        return len(np.unique(self.hosts))

    def simulated(self, hosts: Array | None = None) -> Job:
        """The job as the simulator takes it; on other hosts, if they are given."""
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
        """What the network costs the job by itself: T_alone - T_base (Jokanovic 2014, section 3.1)."""
        return None if self.base_s is None else self.alone_s - self.base_s

    @property
    def inter_s(self) -> float:
        """What other jobs cost it: T_sharing - T_alone (Jokanovic 2014, Eq. 2.2 and 5.1)."""
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
    """What all jobs cost each other together, s (Jokanovic 2014, Eq. 5.2)."""
    return sum(job.inter_s for job in times)


def j_inter_host_s(times: Sequence[JobTimes]) -> float:
    """Time of hosts that jobs lose to each other, host seconds (Jokanovic 2014, Eq. 2.3)."""
    return sum(job.n_hosts * job.inter_s for job in times)


def efficiency(before_host_s: float | None, after_host_s: float) -> float | None:
    """E(P): how many times less jobs lose to each other under a policy (Jokanovic 2014, Eq. 2.4).

    None if they lose nothing under it, or what they lost before is not known.
    """
    return None if before_host_s is None or after_host_s <= 0 else before_host_s / after_host_s


def simulate_base(
    job: PlacedJob, link_bps: float, hardware: Hardware | None = None, settings: Settings | None = None
) -> SimulatedRun:
    """The job with all of its hosts on one switch, which gives T_base."""
    hosts, numbers = np.unique(job.hosts, return_inverse=True)
    network = crossbar(max(len(hosts), 2), link_bps, hardware)
    return _simulated(network, [job.simulated(numbers)], settings, f"simulating {job.name} on one switch")


def simulate_alone(
    network: SimulatedNetwork, job: PlacedJob, settings: Settings | None = None
) -> SimulatedRun:
    """The job on the network without others, which gives T_alone."""
    return _simulated(network, [job.simulated()], settings, f"simulating {job.name} alone")


def simulate_sharing(
    network: SimulatedNetwork, jobs: Sequence[PlacedJob], settings: Settings | None = None
) -> SimulatedRun:
    """All jobs at the same time, which gives T_sharing."""
    return _simulated(
        network, [job.simulated() for job in jobs], settings, f"simulating {len(jobs)} jobs together"
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
    """Jobs by themselves and together on one network.

    Parameters
    ----------
    jobs : tuple of PlacedJob
    network : SimulatedNetwork
    base : tuple of SimulatedRun or None
        Each on one switch; None: not simulated.
    alone : tuple of SimulatedRun
        Each without the others.
    sharing : SimulatedRun
        All together.
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

    Raises `DataError` if it has not as many hosts.
    """
    hosts = np.unique(job.hosts)
    if not 0 <= n_hosts <= len(hosts):
        raise DataError(f"job {job.name} has {len(hosts)} hosts: {n_hosts} of them cannot be stretched")
    factors = np.where(np.isin(job.hosts, hosts[:n_hosts]), factor, 1.0)
    return replace(job, compute_factor=factors)
