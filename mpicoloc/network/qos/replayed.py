"""A policy in the packet simulator: the lanes of its ports, and how long jobs take under it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpicoloc.errors import DataError
from mpicoloc.network.qos.policy import Policy
from mpicoloc.network.replay.experiment import PlacedJob
from mpicoloc.network.replay.job import Settings
from mpicoloc.network.replay.lanes import Lanes
from mpicoloc.network.replay.network import SimulatedNetwork
from mpicoloc.network.replay.simulate import simulate


def lanes_of(policy: Policy, buffer_bytes: int) -> Lanes:
    """Simulated lanes that a fabric has which the policy was loaded into.

    Parameters
    ----------
    policy : Policy
    buffer_bytes : int
        Of each port at each end; lanes that are switched on divide it.
    """
    each = (buffer_bytes // policy.n_operational,) * policy.n_operational
    return Lanes(
        each,
        each,
        policy.lane_of_level,
        high=policy.high_rows,
        low=policy.low_rows,
        high_limit=policy.high_limit,
        weight_unit_bytes=64,
    )


@dataclass(frozen=True)
class Replays:
    """Jobs on a network that are replayed under several policies.

    Parameters
    ----------
    network : SimulatedNetwork
        Its own lanes do not count.
    jobs : tuple of PlacedJob
        In the order of the policies'; their own service levels do not count.
    buffer_bytes : int
        See `lanes_of`.
    settings : Settings, optional
    """

    network: SimulatedNetwork
    jobs: tuple[PlacedJob, ...]
    buffer_bytes: int
    settings: Settings | None = None


def sharing_s(replays: Replays, policy: Policy) -> tuple[float, ...]:
    """Time of each job while all run under the policy: T_sharing; of one job by itself, T_alone."""
    simulated_jobs = [
        replace(job, service_level=lane).simulated()
        for job, lane in zip(replays.jobs, policy.lane_of_job, strict=True)
    ]
    network = replace(replays.network, lanes=lanes_of(policy, replays.buffer_bytes))
    return tuple(job.end_s for job in simulate(network, simulated_jobs, replays.settings).jobs)


def alone_s(replays: Replays, policy: Policy) -> tuple[float, ...]:
    """Time of each job without the others, on its own lane: T_alone.

    Raises
    ------
    DataError
        If a job takes no time, so that nothing can be told of what others cost it.

    Notes
    -----
    Jokanovic 2014, section 5.2.1: all but the other jobs is the same, the lane's buffer too (Table 5.3).
    """
    times: list[float] = []
    for job, lane in zip(replays.jobs, policy.lane_of_job, strict=True):
        times += sharing_s(replace(replays, jobs=(job,)), replace(policy, lane_of_job=(lane,)))
    for job, time_s in zip(replays.jobs, times, strict=True):
        if time_s <= 0:
            raise DataError(
                f"job {job.name} takes no time alone, as its trace has neither messages nor computation "
                "to replay: leave it out, or record it again with --trace all"
            )
    return tuple(times)
