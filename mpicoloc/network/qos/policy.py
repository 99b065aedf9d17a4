"""A policy: lanes of jobs, weights of lanes, and the ports that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpicoloc.errors import UsageError
from mpicoloc.network.qos.assignment import assign_lanes
from mpicoloc.network.qos.demand import Demands
from mpicoloc.network.qos.weights import MAX_WEIGHT, Rows, arbitration_rows, favouring_weights, n_rows_needed

PORT_LANES = (1, 2, 4, 8, 15)
"""Numbers of data lanes that ports can have, in the order of InfiniBand's codes 1 to 5."""
PORT_MTUS = (256, 512, 1024, 2048, 4096)
N_LEVELS = 16
NO_LIMIT = 255


@dataclass(frozen=True)
class Ports:
    """What all ports of the fabric can do.

    Parameters
    ----------
    n_lanes : int
        Data lanes (``VLCap``).
    mtu_bytes : int
        Bytes of a full packet (``NeighborMTU``).
    n_rows : int
        Rows of each arbitration table (``VLArbLowCap``, ``VLArbHighCap``).
    """

    n_lanes: int = 4
    mtu_bytes: int = 4096
    n_rows: int = 8

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("--lanes", self.n_lanes, PORT_LANES),
            ("--mtu", self.mtu_bytes, PORT_MTUS),
        ):
            if value not in allowed:
                words = ", ".join(map(str, allowed))
                raise UsageError(f"{name} must be one of {words}, as InfiniBand's ports have, got {value}")
        if not 1 <= self.n_rows <= 64:
            raise UsageError(f"--rows must be in [1, 64], got {self.n_rows}")


@dataclass(frozen=True)
class Policy:
    """Lanes of jobs and how links serve lanes. The service level of a job is the number of its lane.

    Parameters
    ----------
    ports : Ports
    lane_of_job : tuple of int
    weights : tuple of int
        Packets that each lane in use may send in its turn.
    high_lanes : tuple of int
        Lanes of high priority; the others have low priority.
    high_limit : int
        Units of 4096 bytes that lanes of high priority may send before one packet of the others; 255: no
        limit.
    is_lane_0_free : bool
        Whether no job uses lane 0, which is that of all who set no service level.

    Raises
    ------
    UsageError
        If a number is out of range, or the ports have too few lanes or rows.
    """

    ports: Ports
    lane_of_job: tuple[int, ...]
    weights: tuple[int, ...]
    high_lanes: tuple[int, ...] = ()
    high_limit: int = NO_LIMIT
    is_lane_0_free: bool = False

    def __post_init__(self) -> None:
        _check_lanes(self)
        for lane, weight in enumerate(self.weights):
            if not weight >= 1:
                raise UsageError(
                    f"weight of lane {lane} must be at least 1 packet, got {weight}: without weight it is "
                    "never served"
                )
        if not 0 <= self.high_limit <= NO_LIMIT:
            raise UsageError(f"--high-limit must be in [0, {NO_LIMIT}], got {self.high_limit}")
        for is_high in (False, True):
            self._rows(is_high)  # raises if the ports have too few rows

    @property
    def n_lanes(self) -> int:
        """Lanes in use."""
        return len(self.weights)

    @property
    def n_operational(self) -> int:
        """Lanes to switch on: the fewest that ports can have, because lanes divide the buffers among them."""
        return min(n for n in PORT_LANES if n >= self.n_lanes)

    @property
    def low_rows(self) -> Rows:
        """The table of low priority; lanes of high priority are only in the other."""
        return self._rows(is_high=False)

    @property
    def high_rows(self) -> Rows:
        """The table of high priority."""
        return self._rows(is_high=True)

    @property
    def lane_of_level(self) -> tuple[int, ...]:
        """Lane of each service level; those of no job use lane 0, so that no traffic is dropped."""
        return tuple(level if level < self.n_lanes else 0 for level in range(N_LEVELS))

    def _rows(self, is_high: bool) -> Rows:
        chosen = [row for row in enumerate(self.weights) if (row[0] in self.high_lanes) is is_high]
        return arbitration_rows(chosen, self.ports.mtu_bytes, self.ports.n_rows)


def _check_lanes(policy: Policy) -> None:
    n_lanes, first = policy.n_lanes, int(policy.is_lane_0_free)
    if not 1 <= n_lanes <= policy.ports.n_lanes:
        raise UsageError(
            f"{n_lanes} lanes in use, and the ports have {policy.ports.n_lanes}: give --lanes if they have "
            "more, or fewer weights"
        )
    for lane in policy.lane_of_job:
        if not first <= lane < n_lanes:
            raise UsageError(
                f"lane {lane} is not in [{first}, {n_lanes - 1}]: give each job a lane that is in use, and "
                "each lane a weight"
            )
    for lane in policy.high_lanes:
        if not 0 <= lane < n_lanes:
            raise UsageError(f"lane {lane} of high priority is not in [0, {n_lanes - 1}]")
    if len(set(policy.high_lanes)) == n_lanes > 1:
        raise UsageError("all lanes have high priority, so none has: leave one out")


def choose_policy(
    demands: Demands,
    ports: Ports,
    lane_of_job: Sequence[int] | None = None,
    weights: Sequence[int] | None = None,
    is_lane_0_free: bool = False,
) -> Policy:
    """The policy of the thesis for these jobs.

    Parameters
    ----------
    demands : Demands
    ports : Ports
    lane_of_job, weights : sequence of int, optional
        Where they are given, they are not chosen.
    is_lane_0_free : bool
        Leave lane 0 to those who set no service level.

    Raises
    ------
    UsageError
        As of `Policy`, or if there is one lane and it is to be left free.

    Notes
    -----
    Jokanovic 2014, section 5.1: `assign_lanes`, then `favouring_weights`.
    """
    first = int(is_lane_0_free)
    if ports.n_lanes <= first:
        raise UsageError("the ports have one lane, and it is to be left free: give --lanes if they have more")
    if lane_of_job is None:
        lane_of_job = [first + lane for lane in assign_lanes(demands, ports.n_lanes - first)]
    elif len(lane_of_job) != demands.n_jobs:
        raise UsageError(
            f"--assign must have {demands.n_jobs} lanes, one for each job, got {len(lane_of_job)}"
        )
    if weights is None:
        if not first <= min(lane_of_job) <= max(lane_of_job) < ports.n_lanes:
            raise UsageError(f"--assign: lanes must be in [{first}, {ports.n_lanes - 1}], got {lane_of_job}")
        weights = _weights_that_fit(demands, lane_of_job, ports)
    return Policy(ports, tuple(lane_of_job), tuple(weights), is_lane_0_free=is_lane_0_free)


def _weights_that_fit(demands: Demands, lane_of_job: Sequence[int], ports: Ports) -> tuple[int, ...]:
    """`favouring_weights`, as unequal as the ports' tables have rows for."""
    most = MAX_WEIGHT
    while True:
        weights = favouring_weights(demands, lane_of_job, max(lane_of_job) + 1, most)
        if most == 1 or n_rows_needed(weights, ports.mtu_bytes) <= ports.n_rows:
            return weights
        most //= 2
