"""Run the packet simulator of csrc/replay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, UsageError
from mpicoloc.replay import native
from mpicoloc.replay.network import ROUTINGS, SimulatedNetwork

Ops = NDArray[np.void]
"""One program: a structured array of `native.OP`."""


@dataclass(frozen=True)
class Job:
    """A job of `n_ranks` programs.

    Parameters
    ----------
    name : str
        Name for messages.
    programs : sequence of structured ndarray (`native.OP`)
        Programs, read-only; memory-mapped files are allowed.
    program_of_rank : ndarray of int, shape (n_ranks,)
        Index of each rank's program; ranks can share one.
    host_of_rank : ndarray of int, shape (n_ranks,)
    service_level : int
    restarts : bool
        Whether the job is repeated until all jobs have run once.
    compute_factor_of_rank : ndarray of float, shape (n_ranks,), optional
        Factor for the rank's computation times; None: 1.
    start_s : float
        Start of the job's first run.
    """

    name: str
    programs: Sequence[Ops]
    program_of_rank: NDArray[np.integer[Any]]
    host_of_rank: NDArray[np.integer[Any]]
    service_level: int = 0
    restarts: bool = True
    compute_factor_of_rank: NDArray[np.float64] | None = None
    start_s: float = 0.0

    @property
    def n_ranks(self) -> int:
        """Number of ranks of the job."""
        return len(self.program_of_rank)


@dataclass(frozen=True)
class Settings:
    """Rules that turn messages into packets, and the choice of results to record.

    Parameters
    ----------
    mtu_bytes : int
        Bytes of a full packet on the wire; headers are not modelled.
    control_bytes : int
        Bytes of a request or clearance to send.
    eager_bytes : int
        Longer messages are sent after a rendezvous.
    mpi_latency_s : float
        Time from a send until the adapter has the message.
    send_overhead_s, recv_overhead_s : float
        Processor time of a send, and of a receive after its data have arrived.
    local_latency_s, local_bps : float
        Latency and bandwidth of messages between ranks of the same host.
    seed : int
        Seed of random routes.
    window_s : float
        Length of windows for link loads; 0: none.
    n_windows_max : int
        Largest number of windows. If more are needed, pairs of windows are merged.
    adapter_is_fifo : bool
        Whether an adapter sends the messages of a lane one after the other; otherwise it sends a packet of
        each in turn.
    shuffle_ties : int
        For tests. A value other than 0 shuffles three orders that must not affect the result: of places in
        memory, of credits that arrive at the same time, and of links that choose a packet at the same time.
    """

    mtu_bytes: int = 2048
    control_bytes: int = 64
    eager_bytes: int = 16384
    mpi_latency_s: float = 1e-6
    send_overhead_s: float = 0.0
    recv_overhead_s: float = 0.0
    local_latency_s: float = 5e-7
    local_bps: float = 5e9
    seed: int = 0
    window_s: float = 0.0
    n_windows_max: int = 256
    adapter_is_fifo: bool = False
    shuffle_ties: int = 0


@dataclass(frozen=True)
class JobRun:
    """Results of one job of a simulation.

    Parameters
    ----------
    name : str
    end_s : float
        End of the first run, from the job's start.
    rank_end_s, rank_compute_s : ndarray, shape (n_ranks,)
        End and computation time of each rank in the first run.
    n_runs : int
        Number of complete runs.
    """

    name: str
    end_s: float
    rank_end_s: NDArray[np.float64]
    rank_compute_s: NDArray[np.float64]
    n_runs: int


@dataclass(frozen=True)
class SimulatedRun:
    """Results of `simulate`. Times are simulated seconds.

    Parameters
    ----------
    jobs : tuple of JobRun
    end_s : float
        Time at which all jobs had completed their first runs.
    n_packet_hops, n_packets, n_messages, n_events : int
        Numbers of transmissions of packets over links, of packets and messages sent, and of simulator events,
        including control messages.
    marks : structured ndarray (`native.MARK`)
        Marks of the first runs in the order of time: value, t_ps, job, rank.
    window_s : float
        Length of a window; 0: no windows.
    window_bytes : ndarray of int, shape (n_windows, n_links)
        Bytes that each link began to send in each window.
    sent_bytes, received_bytes : ndarray of int, shape (n_links, n_lanes)
    busy_s : ndarray, shape (n_links,)
        Time that each link sent.
    wait_s : ndarray, shape (n_levels, n_jobs, n_lanes)
        Time from when a packet is ready until its sending begins, summed over packets, by the level of the
        link. Only the first run of each job counts, here and in the next three fields.
    n_waits : ndarray of int, shape (n_levels, n_jobs, n_lanes)
        Number of packets with a wait above 0.
    blocked_by_s : ndarray, shape (n_jobs, n_jobs + 1)
        Waits of job i while the link sent packets of job j. Last column: waits while the link sent nothing,
        because credits were lacking, or because the packet was behind one for another link. Repeated runs of
        job j count as causes too.
    transfer_by_s : ndarray, shape (n_jobs, n_jobs)
        The part of `blocked_by_s` for the packet that was already on the link when the wait began.
    message_s, head_s, serial_s : ndarray, shape (n_jobs,)
        Times of the first run's messages on the network, summed over messages (Jokanovic 2014, Eq. 1.2):
        `message_s` from the adapter until the last byte arrives; of that, `head_s` for the heads without
        contention, and `serial_s` for the bytes on the host's link. Requests and clearances of long messages
        count as messages.
    peak_bytes : int
        Peak memory of the simulator.
    """

    jobs: tuple[JobRun, ...]
    end_s: float
    n_packet_hops: int
    n_packets: int
    n_messages: int
    n_events: int
    marks: NDArray[np.void]
    window_s: float
    window_bytes: NDArray[np.int64]
    sent_bytes: NDArray[np.int64]
    received_bytes: NDArray[np.int64]
    busy_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    n_waits: NDArray[np.int64]
    blocked_by_s: NDArray[np.float64]
    transfer_by_s: NDArray[np.float64]
    message_s: NDArray[np.float64]
    head_s: NDArray[np.float64]
    serial_s: NDArray[np.float64]
    peak_bytes: int

    def utilisation_frac(self, link_bps: NDArray[Any]) -> NDArray[np.float64]:
        """Bytes of each window over the link's capacity, shape (n_windows, n_links)."""
        if not self.window_s:
            return np.zeros((0, self.sent_bytes.shape[0]))
        return np.asarray(self.window_bytes / (self.window_s * np.asarray(link_bps)), dtype=np.float64)


_CALLS = {
    native.RP_END_PROGRAM: "end of program",
    native.RP_COMPUTE: "compute",
    native.RP_SEND: "send",
    native.RP_ISEND: "isend",
    native.RP_RECV: "receive",
    native.RP_IRECV: "ireceive",
    native.RP_WAIT: "wait",
    native.RP_WAITALL: "waitall",
    native.RP_LOOP: "loop",
    native.RP_END: "end of loop",
    native.RP_MARK: "mark",
}
_N_SHOWN = 4


def explain(result: Any, jobs: Sequence[Job], network: SimulatedNetwork) -> MpicolocError:
    """The error for a status other than RP_DONE."""
    when = f"at {result.now_ps / 1e12:.9f} s of simulated time"
    reports = [result.reports[i] for i in range(min(result.n_reports, native.RP_N_REPORTS))]
    if result.status == native.RP_E_MEMORY:
        return EnvironmentFault(
            f"simulation: out of memory {when}, with {result.peak_bytes} bytes in use: replay fewer ranks"
        )
    if result.status == native.RP_E_UNMATCHED:
        return DataError(
            f"{_job(reports, jobs)} ended {when} with {result.n_reports} unmatched messages: "
            f"{_shown(reports, _message)}: is the trace complete?"
        )
    if result.status == native.RP_E_PROGRAM_DEADLOCK:
        return DataError(
            f"{_job(reports, jobs)}: {result.n_reports} ranks wait for ever {when}: {_cycle(reports)}: is "
            "the trace incomplete, or is the eager limit smaller than the program relies on?"
        )
    if result.status == native.RP_E_NETWORK_DEADLOCK:
        links = [network.link_name(result.cycle[i]) for i in range(result.n_cycle)]
        return DataError(
            f"network deadlock {when}: packets wait in a circle for the buffers of {'; '.join(links[:8])}"
            f"{' ...' if len(links) > 8 else ''}: use routes without cycles"
        )
    if result.status == native.RP_E_ROUTE:
        return DataError(
            f"routes: {when}, a packet reached a switch whose table leads nowhere or in a circle: "
            "correct the tables"
        )
    report = reports[0]
    which = f"job {jobs[report.job].name}: operation {report.i_op} of rank {report.rank}"
    if report.kind == native.Operation.COMPUTE:
        return DataError(f"{which} computes for {report.n_bytes} ns: give a time from 0 to 4e15 ns")
    call = _CALLS.get(report.kind, f"unknown kind {report.kind}")
    return DataError(
        f"{which} is impossible: {call}, peer {report.peer}, tag {report.tag}, {report.n_bytes} bytes"
    )


def _job(reports: Sequence[Any], jobs: Sequence[Job]) -> str:
    return f"job {jobs[reports[0].job].name}" if reports else "a job"


def _shown(reports: Sequence[Any], words: Any) -> str:
    more = f" and {len(reports) - _N_SHOWN} more" if len(reports) > _N_SHOWN else ""
    return "; ".join(words(report) for report in reports[:_N_SHOWN]) + more


def _message(report: Any) -> str:
    way = "from" if report.kind in (native.RP_RECV, native.RP_IRECV) else "to"
    return (
        f"{_CALLS[report.kind]} by rank {report.rank} {way} {_peer(report.peer)}, "
        f"tag {report.tag}, {report.n_bytes} bytes, operation {report.i_op}, "
        f"posted at {report.t_ps / 1e12:.9f} s"
    )


def _peer(peer: int) -> str:
    return "any rank" if peer < 0 else f"rank {peer}"


def _wait(report: Any) -> str:
    call = _CALLS.get(report.kind, "?")
    return (
        f"rank {report.rank} in {call} for {_peer(report.peer)} (tag {report.tag}, operation {report.i_op})"
    )


def _cycle(reports: Sequence[Any]) -> str:
    """The ranks of a cycle of waits; if the reports have no cycle, the first ranks reported."""
    by_rank = {report.rank: report for report in reports}
    for start in reports:
        path: list[int] = []
        rank = start.rank
        while rank in by_rank and rank not in path:
            path.append(rank)
            rank = by_rank[rank].peer
        if rank in path:
            circle = path[path.index(rank) :]
            return "in a circle, " + _shown([by_rank[i] for i in circle], _wait)
    return _shown(reports, _wait)


Progress = Callable[[float, int], None]
"""Called with the simulated time in seconds, and the number of jobs with a complete first run."""

_PS = 1e12
_Q20 = 1 << 20
_EVENTS_BETWEEN_REPORTS = 1 << 20
_TIME_MAX_S = 1e6

MAX_JOBS = 64
"""Largest number of jobs of a simulation: each link counts the waiting packets of every job."""


def simulate(
    network: SimulatedNetwork,
    jobs: Sequence[Job],
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> SimulatedRun:
    """Replay jobs that share a network until each has run once.

    Raises `UsageError` if a setting is out of range. Raises `DataError` if a job does not fit the network, a
    program has an impossible operation, ranks or packets deadlock, or messages were never received.

    Restarts and times are as in Dimemas (Jokanovic 2014, section 2.2.3): a job that ends starts again
    until all have run once, and its first run counts.
    """
    settings = settings or Settings()
    _check_settings(network, settings)
    _check_jobs(network, jobs)
    kept: list[Any] = []
    sim = native.lib.rp_open(_network(network, kept), _settings(settings, kept), len(jobs), _jobs(jobs, kept))
    if sim == native.ffi.NULL:
        raise EnvironmentFault("no memory for the simulation: give a smaller network or fewer ranks")
    try:
        result = _run(sim, progress)
        if result.status != native.RP_DONE:
            raise explain(result, jobs, network)
        return _read(result, jobs)
    finally:
        native.lib.rp_close(sim)


def _run(sim: Any, progress: Progress | None) -> Any:
    while native.lib.rp_run(sim, _EVENTS_BETWEEN_REPORTS) == native.RP_RUNNING:
        if progress is not None:
            result = native.lib.rp_get(sim)
            n_done = sum(result.job_end_ps[i] >= 0 for i in range(result.n_jobs))
            progress(result.now_ps / _PS, n_done)
    return native.lib.rp_get(sim)


def _check_settings(network: SimulatedNetwork, settings: Settings) -> None:
    for name, low, high in (
        ("mtu_bytes", 1, 1 << 20),
        ("control_bytes", 1, settings.mtu_bytes),
        ("eager_bytes", 0, 1 << 62),
        ("mpi_latency_s", 0, 1),
        ("send_overhead_s", 0, 1),
        ("recv_overhead_s", 0, 1),
        ("local_latency_s", 0, 1),
        ("local_bps", 1e5, 1e12),
        ("window_s", 0, _TIME_MAX_S),
        ("n_windows_max", 2, 1 << 20),
        ("seed", 0, (1 << 64) - 1),
    ):
        value = getattr(settings, name)
        if not (math.isfinite(value) and low <= value <= high):
            raise UsageError(f"{name} must be in [{low:g}, {high:g}], got {value}")
    for side in ("input", "output"):
        for lane, n_bytes in enumerate(getattr(network.lanes, f"{side}_bytes")):
            if not settings.mtu_bytes <= n_bytes < 1 << 31:
                raise UsageError(
                    f"the {side} buffer of lane {lane} has {n_bytes} bytes, but a packet "
                    f"{settings.mtu_bytes}, so it would never pass: give the lane more buffer, or a smaller "
                    "MTU"
                )


def _check_jobs(network: SimulatedNetwork, jobs: Sequence[Job]) -> None:
    if not 1 <= len(jobs) <= MAX_JOBS:
        raise DataError(f"{len(jobs)} jobs: give 1 to {MAX_JOBS}")
    for job in jobs:
        hosts, programs = np.asarray(job.host_of_rank), np.asarray(job.program_of_rank)
        if hosts.shape != programs.shape or hosts.ndim != 1 or not len(hosts):
            raise DataError(
                f"job {job.name}: hosts {hosts.shape} and programs {programs.shape}: give one each per rank"
            )
        if hosts.min() < 0 or hosts.max() >= network.n_hosts:
            rank = int(np.argmax((hosts < 0) | (hosts >= network.n_hosts)))
            raise DataError(
                f"job {job.name}: rank {rank} is on host {hosts[rank]}, but the network has hosts 0 to "
                f"{network.n_hosts - 1}: give another placement or a larger topology"
            )
        if programs.min() < 0 or programs.max() >= len(job.programs):
            raise DataError(f"job {job.name}: program numbers must be in [0, {len(job.programs) - 1}]")
        for program in job.programs:
            if program.dtype != native.OP or program.ndim != 1:
                raise DataError(f"job {job.name}: a program is not a one-dimensional array of native.OP")
        if not 0 <= job.service_level < len(network.lanes.lane_of_level):
            raise DataError(f"job {job.name}: service level {job.service_level} has no lane")
        factors = job.compute_factor_of_rank
        if factors is not None and not (
            np.shape(factors) == hosts.shape and np.isfinite(factors).all() and np.min(factors) >= 0
        ):
            raise DataError(f"job {job.name}: give a finite factor >= 0 of computation for each rank")
        if not 0 <= job.start_s <= _TIME_MAX_S:
            raise DataError(f"job {job.name}: start_s must be in [0, {_TIME_MAX_S:g}], got {job.start_s}")


def _pointer(array: Any, dtype: Any, kept: list[Any], ctype: str = "") -> Any:
    """A C pointer to an array; `kept` holds objects that must live as long as the simulation."""
    array = np.ascontiguousarray(array, dtype=dtype)
    kept.append(array)
    return native.ffi.cast(f"const {ctype or f'{array.dtype}_t'} *", array.ctypes.data)


def _new(ctype: str, kept: list[Any], *more: Any) -> Any:
    made = native.ffi.new(ctype, *more)
    kept.append(made)
    return made


def per_byte_q20(bps: Any) -> Any:
    """Picoseconds per byte times 2^20, rounded."""
    return np.rint(_PS / np.asarray(bps, dtype=np.float64) * _Q20).astype(np.int64)


def _network(network: SimulatedNetwork, kept: list[Any]) -> Any:
    c, lanes = _new("rp_network *", kept), network.lanes
    c.n_hosts, c.n_switches, c.n_links = network.n_hosts, network.n_switches, network.n_links
    c.n_levels, c.n_sets, c.n_vl = network.n_levels, len(network.sets), lanes.n
    arrays: dict[str, tuple[Any, type]] = {
        "from": (network.link_from, np.int32),
        "to": (network.link_to, np.int32),
        "level": (network.link_level, np.int32),
        "ps_per_byte_q20": (per_byte_q20(network.link_bps), np.int64),
        "latency_ps": (network.link_latency_ps, np.int64),
        "first": (network.first, np.int32),
        "next": (network.next, np.int32),
        "set_start": (np.cumsum([0, *map(len, network.sets)]), np.int32),
        "set_links": (np.concatenate([*network.sets, [0]]), np.int32),
        "set_divisor": ([*network.set_divisors, 1], np.int32),
    }
    for name, (array, dtype) in arrays.items():
        setattr(c, name, _pointer(array, dtype, kept))
    c.routing, c.n_paths = ROUTINGS.index(network.routing), network.n_paths
    c.switch_latency_ps, c.flit_bytes, c.is_voq = (
        network.switch_latency_ps,
        network.flit_bytes,
        network.is_voq,
    )
    c.crossing_q20 = round(_Q20 / network.input_speedup)
    for lane in range(lanes.n):
        c.input_bytes[lane], c.output_bytes[lane] = lanes.input_bytes[lane], lanes.output_bytes[lane]
    for level, lane in enumerate(lanes.lane_of_level):
        c.vl_of_sl[level] = lane
    for side in ("high", "low"):
        rows = np.array([*getattr(lanes, side), (0, 0)], dtype=np.int32)
        setattr(c, f"n_{side}", len(rows) - 1)
        setattr(c, side, _pointer(rows, np.int32, kept, "rp_arbitration"))
    c.high_limit, c.weight_unit_bytes = lanes.high_limit, lanes.weight_unit_bytes
    return c


def _settings(settings: Settings, kept: list[Any]) -> Any:
    c = _new("rp_settings *", kept)
    for name in ("mtu_bytes", "control_bytes", "eager_bytes", "seed", "n_windows_max"):
        setattr(c, name, getattr(settings, name))
    for name in ("mpi_latency", "send_overhead", "recv_overhead", "local_latency", "window"):
        setattr(c, f"{name}_ps", round(getattr(settings, f"{name}_s") * _PS))
    c.local_ps_per_byte_q20 = int(per_byte_q20(settings.local_bps))
    c.is_fifo_adapter, c.shuffle = settings.adapter_is_fifo, settings.shuffle_ties
    return c


def _jobs(jobs: Sequence[Job], kept: list[Any]) -> Any:
    array = _new("rp_job[]", kept, len(jobs))
    for c, job in zip(array, jobs, strict=True):
        c.n_ranks, c.n_programs = job.n_ranks, len(job.programs)
        pointers = [_pointer(program, native.OP, kept, "rp_op") for program in job.programs]
        c.programs = _new("const rp_op *[]", kept, pointers)
        c.program_lengths = _pointer([*map(len, job.programs)], np.int64, kept)
        c.program_of_rank = _pointer(job.program_of_rank, np.int32, kept)
        c.host_of_rank = _pointer(job.host_of_rank, np.int32, kept)
        factors = job.compute_factor_of_rank
        factors = np.ones(job.n_ranks) if factors is None else factors
        c.factor_of_rank = _pointer(factors, np.float64, kept, "double")
        c.start_ps = round(job.start_s * _PS)
        c.service_level, c.is_restarted = job.service_level, job.restarts
    return array


def _array(pointer: Any, dtype: Any, *shape: int) -> Any:
    """A copy of an array that the simulation owns."""
    dtype = np.dtype(dtype)
    n_bytes = math.prod(shape) * dtype.itemsize
    if not n_bytes:
        return np.zeros(shape, dtype)
    return np.frombuffer(native.ffi.buffer(pointer, n_bytes), dtype).reshape(shape).copy()


def _read(result: Any, jobs: Sequence[Job]) -> SimulatedRun:
    n_jobs, n_vl, n_links = result.n_jobs, result.n_vl, result.n_links
    n_ranks = sum(job.n_ranks for job in jobs)
    ends, computed = (
        _array(pointer, np.int64, n_ranks) / _PS for pointer in (result.rank_end_ps, result.rank_compute_ps)
    )
    runs, start = [], 0
    for i, job in enumerate(jobs):
        part = slice(start, start := start + job.n_ranks)
        # Subtract in whole picoseconds, so that a shift of the start does not change the last digit.
        end_s = (result.job_end_ps[i] - round(job.start_s * _PS)) / _PS
        runs.append(JobRun(job.name, end_s, ends[part], computed[part], result.job_n_runs[i]))
    waits = (result.n_levels, n_jobs, n_vl)
    return SimulatedRun(
        jobs=tuple(runs),
        end_s=result.now_ps / _PS,
        n_packet_hops=result.n_packet_hops,
        n_packets=result.n_packets,
        n_messages=result.n_messages,
        n_events=result.n_events,
        marks=_array(result.marks, native.MARK, result.n_marks),
        window_s=result.window_ps / _PS,
        window_bytes=_array(result.window_bytes, np.int64, result.n_windows, n_links),
        sent_bytes=_array(result.sent_bytes, np.int64, n_links, n_vl),
        received_bytes=_array(result.received_bytes, np.int64, n_links, n_vl),
        busy_s=_array(result.busy_ps, np.int64, n_links) / _PS,
        wait_s=_array(result.wait_ps, np.int64, *waits) / _PS,
        n_waits=_array(result.wait_packets, np.int64, *waits),
        blocked_by_s=_array(result.blocked_ps, np.int64, n_jobs, n_jobs + 1) / _PS,
        transfer_by_s=_array(result.transfer_ps, np.int64, n_jobs, n_jobs) / _PS,
        message_s=_array(result.message_ps, np.int64, n_jobs) / _PS,
        head_s=_array(result.head_ps, np.int64, n_jobs) / _PS,
        serial_s=_array(result.serial_ps, np.int64, n_jobs) / _PS,
        peak_bytes=result.peak_bytes,
    )
