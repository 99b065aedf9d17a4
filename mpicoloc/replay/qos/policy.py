"""A policy (lanes of jobs, weights of lanes, for given ports), and its files for ``opensm``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Job
from mpicoloc.errors import DataError, EnvironmentFault, UsageError, printable
from mpicoloc.network.characterise import Case, Shared
from mpicoloc.replay.network import NO_LIMIT


@dataclass(frozen=True)
class Demands:
    """Network demands of jobs that run together.

    Parameters
    ----------
    demand_frac : ndarray, shape (n_jobs,)
        Largest utilisation of a level above L0: bytes/s sent, divided by the bytes/s available to the job
        there.
    meeting : ndarray, shape (n_jobs, n_jobs)
        For each pair of jobs, the largest product of their utilisations over all levels on which they share
        links. If the jobs send independently, this is the probability that both send there at the same time.
        0 for jobs without a common link, and on the diagonal; symmetric.
    """

    demand_frac: NDArray[np.float64]
    meeting: NDArray[np.float64]

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""
        return len(self.demand_frac)


def demands_of(cases: Sequence[Case], shared: Shared | None) -> Demands:
    """Demands of jobs, from the result of `characterise`.

    Raises `DataError` if the time in which a job sent its bytes is unknown.
    """
    used = np.array([_utilisation(case) for case in cases])
    used[:, 0] = 0.0  # a host's link belongs to its job
    meeting = np.zeros((len(cases), len(cases)))
    if shared is not None:
        products = used.T[:, :, None] * used.T[:, None, :]
        meeting = np.where(shared.sharing.n_links > 0, products, 0.0).max(axis=0)
        np.fill_diagonal(meeting, 0.0)
    return Demands(used.max(axis=1), meeting)


def _utilisation(case: Case) -> list[float]:
    fractions = [row.utilisation_frac for row in case.levels]
    if None in fractions:
        raise DataError(
            f"job {case.job.id}: its run time is unknown, so its bytes/s are too: give --duration-s"
        )
    return [fraction for fraction in fractions if fraction is not None]


MAX_WEIGHT = 8
"""Largest weight chosen without a search: the largest sweet spot of the thesis (Figures 5.12 to 5.17)."""
UNIT_BYTES, MAX_UNITS = 64, 255

Rows = tuple[tuple[int, int], ...]
"""Rows (lane, weight in units of 64 bytes)."""


def favouring_weights(
    demands: Demands, lane_of_job: Sequence[int], n_lanes: int, max_weight: int = MAX_WEIGHT
) -> tuple[int, ...]:
    """Packets that each lane may send per turn. The less the lane's jobs communicate, the more it may send.

    Result: the largest demand of any lane over the lane's own demand, rounded to a power of two up to
    `max_weight`.

    Jokanovic 2014, section 5.1.2: jobs with the most computation per communication get more. The thesis
    determines the numbers by trials (`search.trials`).
    """
    lanes = np.asarray(lane_of_job)
    sums = [float(demands.demand_frac[lanes == lane].sum()) for lane in range(n_lanes)]
    most = max(sums)
    ratios = [min(most / total if total else math.inf, max_weight) for total in sums]
    return tuple(
        1 << round(math.log2(ratio)) if most and lane in lanes else 1 for lane, ratio in enumerate(ratios)
    )


def arbitration_rows(weights: Sequence[tuple[int, int]], mtu_bytes: int, n_rows: int) -> Rows:
    """Rows of an arbitration table that let each lane send its weight in full packets per turn.

    Raises `UsageError` if the weights need more than `n_rows` rows.

    InfiniBand Architecture Specification, volume 1, section 7.6.9: a row's weight is in units of 64
    bytes and at most 255, and a lane with any weight left sends a whole packet. So 255 units work like 256,
    headers do not matter, and larger weights take several rows, interleaved with those of other lanes.
    """
    parts = {lane: _split(packets, mtu_bytes) for lane, packets in weights}
    needed = n_rows_needed([packets for _, packets in weights], mtu_bytes)
    if needed > n_rows:
        listed = ":".join(str(packets) for _, packets in weights)
        raise UsageError(
            f"weights {listed} in packets of {mtu_bytes} bytes need {needed} rows of the arbitration table, "
            f"but the ports have {n_rows}: give smaller weights, a smaller --mtu, or --rows if they have more"
        )
    longest = max(map(len, parts.values()), default=0)
    rows = [
        (lane, min(own[turn] * mtu_bytes // UNIT_BYTES, MAX_UNITS))
        for turn in range(longest)
        for lane, own in parts.items()
        if turn < len(own)
    ]
    return tuple(rows)


def n_rows_needed(weights: Sequence[int], mtu_bytes: int) -> int:
    """Number of rows that `arbitration_rows` needs for weights in packets."""
    return sum(len(_split(packets, mtu_bytes)) for packets in weights)


def _split(packets: int, mtu_bytes: int) -> list[int]:
    """Split packets into as few rows as possible, with sizes as equal as possible."""
    units = mtu_bytes // UNIT_BYTES
    # With more packets per row, their headers, up to a unit each, would add up to a whole packet.
    per_row = max(n for n in range(1, MAX_UNITS) if (n - 1) * (units + 1) < min(n * units, MAX_UNITS))
    n = -(-packets // per_row)
    return [packets // n + (i < packets % n) for i in range(n)]


_MIN_GAIN = 1e-12


def assign_lanes(demands: Demands, n_lanes: int) -> tuple[int, ...]:
    """Lane of each job: its own if there are enough lanes; else, jobs that rarely send together share one.

    Result: lanes from 0 on, without gaps; lane 0 has the largest total demand. Raises `UsageError` if there
    is no lane.

    Jokanovic 2014, section 5.1.1 and Figure 5.2. The thesis groups jobs by demand class. Here the sum of
    `Demands.meeting` over all pairs on the same lane is minimised, which keeps heavy jobs apart without
    limits between classes: jobs are placed in the order of their demands, then moved and swapped while this
    reduces the sum.
    """
    if n_lanes < 1:
        raise UsageError(f"jobs need at least 1 lane, got {n_lanes}")
    order = np.argsort(-demands.demand_frac, kind="stable")
    lanes = np.full(demands.n_jobs, -1)
    for job in order:
        load = np.bincount(lanes[lanes >= 0], demands.demand_frac[lanes >= 0], n_lanes)
        costs = _costs(demands.meeting, lanes, n_lanes)[job]
        # While a lane is empty, a job gets it, even if the job shares no link.
        empty = np.setdiff1d(np.arange(n_lanes), lanes)
        lanes[job] = empty[0] if len(empty) else np.lexsort((load, costs))[0]
    _improve(demands.meeting, lanes, n_lanes)
    return numbered_lanes(demands, lanes)


def _costs(meeting: NDArray[np.float64], lanes: NDArray[np.int64], n_lanes: int) -> NDArray[np.float64]:
    """Sum of `meeting` of each job with the jobs of each lane, shape (n_jobs, n_lanes)."""
    return np.stack([meeting[:, lanes == lane].sum(axis=1) for lane in range(n_lanes)], axis=1)


def _improve(meeting: NDArray[np.float64], lanes: NDArray[np.int64], n_lanes: int) -> None:
    """Move a job to another lane or swap two jobs, whichever gains most; repeat until no step gains."""
    jobs = np.arange(len(lanes))
    while True:
        costs = _costs(meeting, lanes, n_lanes)
        own, theirs = costs[jobs, lanes], costs[:, lanes]  # theirs[i, j]: job i on the lane of j
        moves = own[:, None] - costs
        swaps = np.where(lanes[:, None] == lanes, 0.0, own[:, None] + own - theirs - theirs.T + 2 * meeting)
        if max(moves.max(), swaps.max()) <= _MIN_GAIN:
            return
        if moves.max() >= swaps.max():
            job, lane = np.unravel_index(moves.argmax(), moves.shape)
            lanes[job] = lane
        else:
            pair = list(np.unravel_index(swaps.argmax(), swaps.shape))
            lanes[pair] = lanes[pair[::-1]]


def numbered_lanes(demands: Demands, lanes: NDArray[np.int64]) -> tuple[int, ...]:
    """The same lanes, renumbered without gaps by total demand, largest first."""
    sums = {lane: demands.demand_frac[lanes == lane].sum() for lane in dict.fromkeys(lanes.tolist())}
    ranks = {lane: rank for rank, lane in enumerate(sorted(sums, key=lambda lane: -sums[lane]))}
    return tuple(ranks[lane] for lane in lanes.tolist())


PORT_LANES = (1, 2, 4, 8, 15)
"""Numbers of data lanes that ports can have, in the order of InfiniBand's codes 1 to 5."""
PORT_MTUS = (256, 512, 1024, 2048, 4096)
N_LEVELS = 16


@dataclass(frozen=True)
class Ports:
    """Capabilities that all ports of the fabric have.

    Parameters
    ----------
    n_lanes : int
        Number of data lanes (``VLCap``).
    mtu_bytes : int
        Bytes of a full packet (``NeighborMTU``).
    n_rows : int
        Number of rows of each arbitration table (``VLArbLowCap``, ``VLArbHighCap``).
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
                raise UsageError(f"{name} must be one of {words}, as InfiniBand allows, got {value}")
        if not 1 <= self.n_rows <= 64:
            raise UsageError(f"--rows must be in [1, 64], got {self.n_rows}")


@dataclass(frozen=True)
class Policy:
    """Lanes of jobs, and arbitration between lanes. The service level of a job is the number of its lane.

    Parameters
    ----------
    ports : Ports
    lane_of_job : tuple of int
    weights : tuple of int
        Packets that each lane in use may send per turn.
    high_lanes : tuple of int
        Lanes of high priority; other lanes have low priority.
    high_limit : int
        Units of 4096 bytes that lanes of high priority may send before one packet of low priority; 255: no
        limit.
    is_lane_0_free : bool
        Whether jobs leave lane 0 to programs that do not set a service level.

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
                    f"weight of lane {lane} must be at least 1 packet, got {weight}, because a lane without "
                    "weight is never served"
                )
        if not 0 <= self.high_limit <= NO_LIMIT:
            raise UsageError(f"--high-limit must be in [0, {NO_LIMIT}], got {self.high_limit}")
        for is_high in (False, True):
            self._rows(is_high)  # raises if the ports have too few rows

    @property
    def n_lanes(self) -> int:
        """Number of lanes in use."""
        return len(self.weights)

    @property
    def n_operational(self) -> int:
        """Number of lanes to enable: as few as possible, because enabled lanes share the port's buffer."""
        return min(n for n in PORT_LANES if n >= self.n_lanes)

    @property
    def low_rows(self) -> Rows:
        """The table of low priority, without lanes of high priority."""
        return self._rows(is_high=False)

    @property
    def high_rows(self) -> Rows:
        """The table of high priority."""
        return self._rows(is_high=True)

    @property
    def lane_of_level(self) -> tuple[int, ...]:
        """Lane of each service level; unused levels map to lane 0, so that no traffic is dropped."""
        return tuple(level if level < self.n_lanes else 0 for level in range(N_LEVELS))

    def _rows(self, is_high: bool) -> Rows:
        chosen = [row for row in enumerate(self.weights) if (row[0] in self.high_lanes) is is_high]
        return arbitration_rows(chosen, self.ports.mtu_bytes, self.ports.n_rows)


def _check_lanes(policy: Policy) -> None:
    n_lanes, first = policy.n_lanes, int(policy.is_lane_0_free)
    if not 1 <= n_lanes <= policy.ports.n_lanes:
        raise UsageError(
            f"{n_lanes} lanes are in use, but the ports have {policy.ports.n_lanes}: give --lanes if they "
            "have more, or fewer weights"
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
        raise UsageError("all lanes have high priority, so none is preferred: leave one out")


def choose_policy(
    demands: Demands,
    ports: Ports,
    lane_of_job: Sequence[int] | None = None,
    weights: Sequence[int] | None = None,
    is_lane_0_free: bool = False,
) -> Policy:
    """The policy of the thesis for these jobs.

    Raises `UsageError` as `Policy` does, or if the only lane must be left free.

    Jokanovic 2014, section 5.1: `assign_lanes`, then `favouring_weights`.
    """
    first = int(is_lane_0_free)
    if ports.n_lanes <= first:
        raise UsageError(
            "no lane is left for jobs, as the ports have only one, which stays free: if they have more, give "
            "--lanes"
        )
    if lane_of_job is None:
        lane_of_job = [first + lane for lane in assign_lanes(demands, ports.n_lanes - first)]
    elif len(lane_of_job) != demands.n_jobs:
        raise UsageError(
            f"--assign must list {demands.n_jobs} lanes, one for each job, got {len(lane_of_job)}"
        )
    if weights is None:
        if not first <= min(lane_of_job) <= max(lane_of_job) < ports.n_lanes:
            raise UsageError(
                f"--assign: lanes must be in [{first}, {ports.n_lanes - 1}], got {[*lane_of_job]}"
            )
        weights = _weights_that_fit(demands, lane_of_job, ports)
    return Policy(ports, tuple(lane_of_job), tuple(weights), is_lane_0_free=is_lane_0_free)


def _weights_that_fit(demands: Demands, lane_of_job: Sequence[int], ports: Ports) -> tuple[int, ...]:
    """`favouring_weights`, with the maximum halved until the ports' tables have enough rows."""
    most = MAX_WEIGHT
    while True:
        weights = favouring_weights(demands, lane_of_job, max(lane_of_job) + 1, most)
        if most == 1 or n_rows_needed(weights, ports.mtu_bytes) <= ports.n_rows:
            return weights
        most //= 2


VARIABLES = {
    "UCX_IB_SL": "UCX: Open MPI, MPICH (ch4:ucx), Intel MPI (mlx)",
    "OMPI_MCA_btl_openib_ib_service_level": "Open MPI up to 4, without UCX",
    "MV2_DEFAULT_SERVICE_LEVEL": "MVAPICH2",
}
"""Environment variables that set the service level. An MPI library ignores those of other libraries."""


def job_environment(level: int) -> dict[str, str]:
    """Environment variables that make a job use a service level."""
    return {name: str(level) for name in VARIABLES}


CONF, PARTITIONS = "opensm.conf", "partitions.conf"
FIRST_PKEY = 0x1000
"""Partition key of lane 0; the keys of other lanes follow."""


def configuration(policy: Policy) -> dict[str, str]:
    """The contents of each file by its name."""
    return {CONF: options(policy), PARTITIONS: partitions(policy)}


def options(policy: Policy) -> str:
    """Lines for ``opensm.conf``: quality of service of all ports of the fabric.

    Notes
    -----
    opensm(8), "QoS configuration". ``max_op_vls`` switches lanes on; with ``qos_max_vls`` alone, the buffers
    stay divided among all lanes of the port.
    """
    return "\n".join(
        (
            "# Quality of service by mpicoloc. Add these lines to the configuration of opensm (-F).",
            f"max_op_vls {PORT_LANES.index(policy.n_operational) + 1}",
            "qos TRUE",
            f"qos_max_vls {policy.n_operational}",
            f"qos_high_limit {policy.high_limit}",
            f"qos_vlarb_high {_table(policy.high_rows)}",
            f"qos_vlarb_low {_table(policy.low_rows)}",
            f"qos_sl2vl {','.join(map(str, policy.lane_of_level))}",
            "",
        )
    )


def _table(rows: Rows) -> str:
    """Rows in opensm's format. An empty table is 0:0, because opensm would replace "" by its default."""
    return ",".join(f"{lane}:{units}" for lane, units in rows) or "0:0"


def pkey(lane: int) -> int:
    """Key of a lane's partition for full members."""
    return 0x8000 | FIRST_PKEY + lane


def partitions(policy: Policy) -> str:
    """Lines for ``partitions.conf``: in each lane's partition, paths have the lane's service level.

    The partitions are for programs that cannot set a service level but take the path's level from the subnet
    manager, such as those that connect by ``librdmacm``.
    """
    lines = [
        "# Partitions by mpicoloc. Add the lines of lanes to the partitions of opensm (-P).",
        "Default=0x7fff,ipoib,defmember=full:ALL=full,SELF=full;",
    ]
    lines += [
        f"lane{lane}=0x{FIRST_PKEY + lane:04x},ipoib,sl={lane},defmember=full:ALL=full;"
        for lane in sorted(set(policy.lane_of_job))
    ]
    return "\n".join((*lines, ""))


def write_files(folder: str, contents: Mapping[str, str], flag: str) -> None:
    """Write files into a folder atomically, readable for all users.

    Raises `EnvironmentFault` if a file cannot be written.
    """
    try:
        for name, text in contents.items():
            path = os.path.join(folder, name)
            _make_folder(os.path.dirname(path))
            part = f"{path}.{os.getpid()}.part"
            with open(part, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
            os.replace(part, path)
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write to {folder}: {error.strerror}; choose another folder with {flag}"
        ) from None


def _make_folder(path: str) -> None:
    """Make a folder that all users can read, regardless of the caller's umask."""
    if not os.path.isdir(path):
        os.makedirs(path)
        os.chmod(path, 0o755)


def level_files(jobs: Sequence[Job], levels: Sequence[int]) -> dict[str, str]:
    """The variables (NAME=VALUE) of each job, by the path where the Slurm plugin looks them up: user/job
    name.

    Raises `DataError` if a job has no name that identifies later runs, or runs with the same name have
    different levels.
    """
    found: dict[str, int] = {}
    for job, level in zip(jobs, levels, strict=True):
        name = job.batch_name
        if not (job.user and name) or "/" in name or name.startswith("."):
            raise DataError(
                f"job {printable(job.id)}: the plugin cannot recognise its name in Slurm, "
                f"{printable(name)!r}: give the profile of a run in Slurm whose name "
                "has no / (sbatch --job-name)"
            )
        path = f"{job.user}/{name}"
        if found.setdefault(path, level) != level:
            raise DataError(
                f"two profiles of job {printable(path)} have service levels {found[path]} and {level}: "
                "give one profile of each job, or give both the same lane with --assign"
            )
    return {
        path: "".join(f"{name}={value}\n" for name, value in job_environment(level).items())
        for path, level in found.items()
    }
