"""The profile of one job: facts with intervals, and tables whose columns have units and meanings."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpicoloc.errors import DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Array = NDArray[Any]


Table = NDArray[np.void]

# Copies of constants in csrc/common/mpicoloc.h, because `core` must not import the compiled contract.
# tests/unit/core/test_contract_numbers.py compares them with the originals.
PHASES = ("corun", "solo", "alone")
"""Names of MC_PHASE_*, in the order of their numbers."""
VERDICTS = ("unknown", "valid", "moved", "late", "silent", "elsewhere", "bubbled", "partial")
"""Names of MC_VERDICT_*, in the order of their numbers."""
UNIT_SITE = 0xFFF
"""Call site of those cycles that are the application's units of work (MC_UNIT_SITE)."""
BEFORE_WINDOWS = tuple(f"before_{i}" for i in range(1, 9))
"""Windows of equal length in which places are counted. The last one ends MC_QUIET_NS before the shutter."""
COUNT_WINDOWS = (*BEFORE_WINDOWS, "during")
"""All windows in which places are counted, in the order of mc_count_row.n."""
N_SHUTTER_GROUPS = 16
"""Number of groups into which shutters are divided (MC_N_GROUPS)."""
N_SIZE_CLASSES = 128
"""Upper bound of size classes (MC_ONE_SIDED)."""


@dataclass(frozen=True)
class Column:
    """One column: name, numpy type, unit and meaning. The meaning mentions NaN if cells may be NaN."""

    name: str
    type: str
    unit: str
    meaning: str

    @property
    def has_gaps(self) -> bool:
        """Whether cells may be NaN, which means not measured."""
        return "NaN" in self.meaning


def _columns(text: str) -> tuple[Column, ...]:
    """Columns from lines of text. A line with ``before_*`` stands for all windows before a shutter."""
    rows = (line.split(None, 3) for line in text.strip().splitlines())
    return tuple(
        Column(name.replace("before_*", when), type_, unit, meaning)
        for name, type_, unit, meaning in rows
        for when in (BEFORE_WINDOWS if "before_*" in name else ("",))
    )


COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "ranks": _columns("""
        rank             i4   1      rank in the application's MPI_COMM_WORLD
        i_node           i4   1      row of the node in /nodes
        pid              i4   1      process id
        n_cores          i4   1      processors this rank may run on
        state            S12  1      running, finalized, aborted, exited or lost
        init_s           f8   s      time of MPI_Init after that of the first rank on the same node
        wall_s           f8   s      from MPI_Init to MPI_Finalize or the last sign of life
        n_calls          u8   1      MPI calls made by the application
        mpi_ns           u8   ns     time inside those calls, in part estimated by sampling
        sampled_ns       u8   ns     estimated part of mpi_ns, of calls that were counted but not timed
        comp_ns          u8   ns     time outside MPI calls since MPI_Init, without pauses
        sent_bytes       u8   bytes  bytes given to sends and collectives
        recv_bytes       u8   bytes  bytes taken from receives (as they came) and collectives
        read_bytes       u8   bytes  bytes read from files by MPI-IO
        written_bytes    u8   bytes  bytes written to files by MPI-IO
        n_sent           u8   1      messages sent: point-to-point and one-sided
        n_recv           u8   1      messages received: point-to-point and one-sided
        n_pauses         u8   1      pauses of a thread of this rank by the gate
        paused_ns        u8   ns     time the rank's first thread stood still in the gate
        n_site_overflow  u8   1      calls counted in the call-site overflow row
        n_cycle_overflow u8   1      cycles counted in the cycle overflow row
        n_peer_overflow  u8   1      messages counted in the message overflow row
        n_collective_overflow u8 1   collectives without a row: no room, or with ranks outside the job
        n_request_overflow u8 1      requests beyond the table's room, counted when posted or not at all
        n_pending_overflow u8 1      cycles in shutters beyond the table's room; such shutters are void
        n_lane_overflow  u8   1      calls by threads without a lane, which are not recorded
        n_events         u8   1      events offered to the trace
        n_events_dropped u8   1      events overwritten in the ring, refused or not written
        n_units          u8   1      units of work that the application marked
        wait_frac        f8   1      part of the job's time that it waited long or had ended; NaN unknown
        counts           u1   1      1: the others wait for this rank, so its slowdown is the job's
        slowdown         f8   1      T_co / T_solo of this rank while it had co-runners; NaN unknown
        slowdown_low     f8   1      lower end of its 95 % interval; NaN unknown
        slowdown_high    f8   1      upper end of it; NaN unknown
        cpu_s            f8   s      processor time, all threads, from MPI_Init to MPI_Finalize; NaN unknown
        minor_faults     f8   1      page faults without disk access in that time; NaN unknown
        major_faults     f8   1      page faults with disk access in that time; NaN unknown
        voluntary_switches f8 1      times its threads yielded the processor in that time; NaN unknown
        involuntary_switches f8 1    times the processor was taken from its threads; NaN unknown
        migrations       f8   1      times its threads moved to another processor; NaN unknown
        run_delay_s      f8   s      time its threads were ready to run but had no processor; NaN unknown
        peak_rss_bytes   f8   bytes  largest resident memory of the process; NaN unknown
    """),
    "nodes": _columns("""
        hostname         S64  1      name of the node
        meter            S8   1      meter in use: none, ipc, burst or count
        meter_reason     S256 1      why no better meter is in use
        n_hits           u8   1      passes of places while they were counted, trials included
        counting_s       f8   s      time that counting cost, summed over the job's threads
        watched_s        f8   s      time the node agent watched the job; NaN: it could not see co-runners
        shared_s         f8   s      time with a co-runner on this node; on any node if the nodes agree
        n_pauses         u8   1      pauses of the job on this node for shutters of others
        paused_s         f8   s      time in those pauses
        n_refused        u8   1      shutters of others refused because of the duty limit
        shutter_duration_s f8 s      shutter duration as adapted at the end
        shutter_period_s f8   s      shutter period as adapted at the end
        n_taken          u8   1      shutters taken for this job
        clock_offset_s   f8   s      its clock minus that of the first coordinator; NaN one node
        clock_bound_s    f8   s      largest error between the clocks of two nodes; NaN one node
        cpu_model        S96  1      name of its processors; empty: not known
        n_cpus           f8   1      its processors; NaN unknown
        memory_bytes     f8   bytes  its memory; NaN unknown
        cpus             S256 1      processors that the job's ranks may run on, like 0-3,8; empty: not known
        bubble_reason    S256 1      why no bubble ran in its shutters; empty: none was wanted, or some ran
    """),
    "modules": _columns("""
        path             S256 1      loaded object that contains call sites
        build_id         S40  1      its build ID from the linker, hexadecimal; empty: not known
    """),
    "call_sites": _columns("""
        rank             i4   1      rank
        lane             i2   1      thread of the rank
        i_site           i4   1      number of the site in its lane; 0 is the overflow row
        call             S40  1      MPI function
        i_module         i4   1      row of the loaded object in /modules, -1 unknown
        offset           u8   bytes  offset of the return address in that object
        n                u8   1      calls
        n_timed          u8   1      calls that were timed; fewer than n: the function is timed by sampling
        sent_bytes       u8   bytes  bytes given to these calls
        recv_bytes       u8   bytes  bytes taken from these calls
        time_ns          u8   ns     time inside all n calls, estimated from the timed ones
        max_ns           u8   ns     longest timed call
    """),
    "peers": _columns("""
        src              i4   1      rank that counted
        dst              i4   1      its peer, -1 unknown or outside the job
        size_class       i2   1      c > 0: 2^(c-1) <= bytes < 2^c; 0: empty
        n                u8   1      messages that src sent to dst
        bytes            u8   bytes  their bytes
        n_recv           u8   1      messages that src received from dst
        recv_bytes       u8   bytes  their bytes
        n_put            u8   1      part of n: puts by src into dst, which dst does not count
        put_bytes        u8   bytes  their bytes
        n_got            u8   1      part of n_recv: gets by src from dst, which dst does not count
        got_bytes        u8   bytes  their bytes
    """),
    "collectives": _columns("""
        rank             i4   1      rank that counted: the group's first one, or each where parts differ
        call             S40  1      MPI function
        group            u8   1      group of ranks that called it, as in /groups
        to_group         u8   1      remote group of an intercommunicator, whose ranks have own rows; else 0
        root             i4   1      root's rank in the group, or in the remote one; -1 none
        own_rank         i4   1      rank in the group of the rank that counted
        size_class       i2   1      size class of its bytes, as in /peers
        item_bytes       u8   bytes  size of the datatype in the last call
        n                u8   1      calls
        bytes            u8   bytes  of all calls: the buffer; or one rank's part; or all parts if they differ
        own_bytes        u8   bytes  the rank's own part if parts differ (allgatherv, reduce_scatter), else 0
    """),
    "parts": _columns("""
        src              i4   1      rank that counted
        dst              i4   1      rank to which src gave parts of varying size in collectives; -1 unknown
        n                u8   1      parts, in gatherv, scatterv, alltoallv, alltoallw and neighbour calls
        bytes            u8   bytes  their bytes
    """),
    "groups": _columns("""
        group            u8   1      number that identifies a group of ranks
        first            i4   1      its next members are first,
        stride           i4   1      first + stride, first + 2 stride, ...
        n                i4   1      number of these members
    """),
    "cycles": _columns("""
        rank             i4   1      rank
        lane             i2   1      thread of the rank
        from_site        i4   1      i_site of the call before the burst; 4095: the cycle is a unit of work
        to_site          i4   1      i_site of the call that ends the cycle
        size_class       i2   1      size class of that call, in half octaves of its bytes
        phase            u1   1      0 co-run, 1 solo (valid shutter), 2 alone on the node
        group            u1   1      group of shutters, for the interval
        n                u8   1      cycles that ended in this phase
        comp_ns          u8   ns     time in the burst, prorated at the edges of the phase
        mpi_ns           u8   ns     time in the call, prorated likewise
        n_cut            u8   1      those of the n cycles that a shutter of the job had cut
        cut_ns           u8   ns     time outside shutters of cut cycles; solo: of those that ended
        done_ns          u8   ns     solo: time of those that ended, from the begin of the pause on
    """),
    "regions": _columns("""
        rank             i4   1      rank
        lane             i2   1      thread of the rank
        name             S48  1      name that the application gave the region
        n                u8   1      times the region was entered and left
        time_ns          u8   ns     time in it, with nested regions, without pauses
        mpi_ns           u8   ns     part of time_ns inside MPI calls
    """),
    "counters": _columns("""
        rank             i4   1      rank
        event            S32  1      event, by its name in Linux perf
        value            f8   1      count in user code since MPI_Init, scaled if multiplexed; NaN never ran
        enabled_s        f8   s      processor time of the threads and children for which it was enabled
        running_s        f8   s      part of enabled_s in which it had a hardware counter
        cpu_s            f8   s      processor time in that period of the process and children waited for
    """),
    "shutters": _columns("""
        i_node           i4   1      row of the node in /nodes
        epoch            u8   ns     begin of the pauses, CLOCK_MONOTONIC of the node
        t0_ns            u8   ns     start of sampling, CLOCK_MONOTONIC of the node
        t1_ns            u8   ns     end of sampling
        verdict          u1   1      one of unknown, valid, moved, late, silent, elsewhere, bubbled, partial
        common           u8   1      number of a shutter common to all nodes of the job; 0: this node only
        n_corunners      i4   1      co-runners asked to pause
        moved_ns         u8   ns     processor time that co-runners used inside it
        before_instructions u8 1     instructions of user code, window before the shutter
        before_cycles    u8   1      processor cycles of that window
        during_instructions u8 1     instructions of user code, inside the shutter
        during_cycles    u8   1      processor cycles of that window
        after_instructions u8 1      instructions of user code, window after the shutter
        after_cycles     u8   1      processor cycles of that window
        before_outside_instructions u8 1 of before_instructions, those outside MPI; all six 0: not known
        before_outside_cycles u8 1   cycles likewise
        during_outside_instructions u8 1 of during_instructions, those outside MPI
        during_outside_cycles u8 1   cycles likewise
        after_outside_instructions u8 1 of after_instructions, those outside MPI
        after_outside_cycles u8 1    cycles likewise
        before_window_ns u8   ns     length of the meter's window before the shutter, 0 not measured
        during_window_ns u8   ns     length of its window inside the shutter, 0 not measured
        after_window_ns  u8   ns     length of its window after the shutter, 0 not measured
        busy_frac        f8   1      processor time of the counted threads over elapsed time
        before_*_samples u8   1      samples of threads outside MPI, in that window before it
        before_*_near    u8   1      those near counted places; all 0: not known
        during_samples   u8   1      samples outside MPI inside the shutter
        during_near      u8   1      those near counted places
        waited_frac      f8   1      part of it in which threads waited for a processor, below 0 not known
        since_ns         u8   ns     time from the previous shutter to before_window_ns, 0 not known
        since_waited_ns  u8   ns     mean time for which the ranks waited for a processor in since_ns
        before_waited_ns u8   ns     mean time for which they waited in before_window_ns
        bubble_level     f8   1      level of the bubble beside the job in it; 0: none, or not all the time
        probe_slowdown   f8   1      of the probe that ran there instead; 0: none, or not all the time
        present          u8   1      co-runners on the node: a bit for each `number` in /corunners
        spared           u8   1      co-runners that a partial shutter did not pause, likewise
    """),
    "bubble_levels": _columns("""
        i_node           i4   1      row of the node in /nodes
        level            f8   1      level of a bubble
        probe_slowdown   f8   1      slowdown of the probe beside it on that kind of node
        probe_low        f8   1      lower end of the 95 % interval
        probe_high       f8   1      upper end of it
    """),
    "sensitivity": _columns("""
        level            f8   1      level of the bubbles beside the job; 0: none
        slowdown         f8   1      slowdown of the job beside them
        low              f8   1      lower end of the 95 % interval
        high             f8   1      upper end of it
    """),
    "places": _columns("""
        i_node           i4   1      row of the node in /nodes
        path             S256 1      loaded object that holds the instruction
        offset           u8   bytes  offset of the instruction in that file
    """),
    "counts": _columns("""
        i_node           i4   1      row of the node in /nodes
        t0_ns            u8   ns     identifies the shutter: its t0_ns in /shutters
        place            i4   1      row of the instruction in /places
        n_before_*       u4   1      passes in that window before it (before_window_ns: all such windows)
        n_during         u4   1      passes inside the shutter (during_window_ns)
    """),
    "corunners": _columns("""
        i_node           i4   1      row of the node in /nodes
        job_id           S64  1      the other job
        overlap_s        f8   s      time that both jobs were on the node
        number           u1   1      its bit in `present` and `spared` of /shutters
        slowdown         f8   1      slowdown of this job by that one alone; 0: not known
        slowdown_low     f8   1      lower end of the 95 % interval
        slowdown_high    f8   1      upper end of it
        cpu_s            f8   s      processor time that it used on this job's processors meanwhile
    """),
    "events": _columns("""
        rank             i4   1      rank
        t_ns             u8   ns     start of the call, CLOCK_MONOTONIC of the rank's node
        duration_ns      u8   ns     time inside the call
        bytes            u8   bytes  bytes it moved
        peer             i4   1      rank at the other end, -1 none or unknown
        call             S40  1      MPI function
        i_site           i4   1      number of the call site
    """),
}


ROWS: Mapping[str, str] = {
    "ranks": "one row for each rank of the application, in order",
    "nodes": "one row for each node; other tables refer to it by its row number, from 0",
    "modules": "one row for each program file or library that called MPI; row numbers as for nodes",
    "call_sites": "one row for each rank, thread, place that calls MPI, and function that it calls",
    "peers": "one row for each rank, peer and size class of messages: point-to-point and one-sided",
    "collectives": "one row for each rank and kind of collective call: function, groups, root, size",
    "parts": "one row for each pair of ranks of which one gave the other parts of varying size",
    "groups": "one or more rows for each group of ranks, which together list its members in order",
    "cycles": "one row for each rank, thread, kind of cycle (a burst and the call that ends it) and phase",
    "regions": "one row for each rank, thread and region that the application named",
    "counters": "one row for each rank and event that was counted over its whole run",
    "shutters": "one row for each shutter that was taken for this job, on each node",
    "bubble_levels": "one row for each node that ran bubbles and each level of its calibration",
    "sensitivity": "one row for each level of bubbles with a measured slowdown, and for level 0",
    "places": "one row for each node and each instruction whose passes the meter `count` counted there",
    "counts": "one row for each shutter and each place that was counted around it",
    "corunners": "one row for each node and each other job that was seen there",
    "events": "one row for each of the last calls of each rank, if the job was run with --trace N",
}
"""The meaning of a row of each table."""


@functools.cache
def dtype(name: str) -> np.dtype[np.void]:
    """The numpy type of table `name`."""
    return np.dtype([(column.name, column.type) for column in COLUMNS[name]])


ADDED: Mapping[str, frozenset[str]] = {
    "shutters": frozenset({"present", "spared", "since_waited_ns", "before_waited_ns"}),
    "corunners": frozenset({"number", "slowdown", "slowdown_low", "slowdown_high", "cpu_s"}),
}
"""Columns that older profiles lack. They are read as 0, which means not known."""
DROPPED: Mapping[str, frozenset[str]] = {"shutters": frozenset({"since_bytes", "before_bytes"})}
"""Columns of older profiles that are not read."""


def table(name: str, columns: Mapping[str, ArrayLike] | None = None) -> Table:
    """Build table `name` from its columns. Missing columns are zeros; without any column the table is empty.

    Raises
    ------
    DataError
        If a column is unknown or the columns have different lengths.
    """
    columns = dict(columns or {})
    unknown = set(columns) - {column.name for column in COLUMNS[name]}
    if unknown:
        raise DataError(f"table {name}: unknown column {sorted(unknown)[0]!r}")
    arrays = {key: _as_array(value) for key, value in columns.items()}
    lengths = {array.shape for array in arrays.values()} or {(0,)}
    if len(lengths) != 1 or len(next(iter(lengths))) != 1:
        raise DataError(f"table {name}: columns must be 1-D and of one length, got shapes {sorted(lengths)}")
    out = np.zeros(next(iter(lengths)), dtype=dtype(name))
    for key, array in arrays.items():
        out[key] = array
    return frozen(out)


def valid_shutters(shutters: Table) -> Table:
    """The valid rows of table "shutters": those of shutters in which every co-runner stood still."""
    return shutters[shutters["verdict"] == VERDICTS.index("valid")]


def rank_time_s(ranks: Table) -> Floats:
    """Time of each rank in table "ranks": its wall time, or the sum over its threads if that is larger.

    Shapes: result (n_ranks,).
    """
    threads_s: Floats = (ranks["mpi_ns"].astype(float) + ranks["comp_ns"]) * 1e-9
    return np.fmax(ranks["wall_s"], threads_s)


def _as_array(value: ArrayLike) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.kind in "UO":
        array = np.array([str(text).encode("utf-8", "replace") for text in array.tolist()], dtype=bytes)
    return array


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, read-only."""
    array.flags.writeable = False
    return array


def text(value: Any) -> str:
    """A string cell of a table as str."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class Estimate:
    """A measured or predicted number with its 95 % interval.

    Parameters
    ----------
    value, low, high : float
        The number and the ends of its interval, ``low <= value <= high``, all finite. Equal
        ends mean that there is no interval: the number is exact, or its uncertainty is unknown.
    n : int
        Number of observations (shutters, cycles); 0 if the number needs none.
    unit : str
        "1" for a dimensionless number.
    method : str
        How the number was obtained, for example "burst-matched".

    Raises
    ------
    DataError
        If a number is not finite or the interval does not hold the value.
    """

    value: float
    low: float
    high: float
    n: int
    unit: str
    method: str

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            number = float(getattr(self, name))
            if not math.isfinite(number):
                raise DataError(f"estimate: {name} must be finite, got {number}")
            object.__setattr__(self, name, number)
        if not self.low <= self.value <= self.high:
            raise DataError(f"estimate: need low <= value <= high, got {self.low}, {self.value}, {self.high}")
        if int(self.n) != self.n or self.n < 0:
            raise DataError(f"estimate: n must be an int >= 0, got {self.n}")
        object.__setattr__(self, "n", int(self.n))

    @property
    def has_interval(self) -> bool:
        """Whether the interval has a width."""
        return self.low < self.high


SCHEMA_VERSION = 1
"""Version of the format. From release 0.2.0 on it rises by one when a table, column or fact is changed, or
one is added or removed that is not in `ADDED` or `DROPPED`. Readers refuse other versions."""


@dataclass(frozen=True)
class Job:
    """Facts of the job. `n_cores` is the number of its cores on all nodes together.

    `user` is the user who ran the job, and `batch_name` the job's name in the batch system. A scheduler knows
    both before a job starts.
    """

    id: str
    command: str
    n_ranks: int
    n_nodes: int
    n_cores: int
    mpi_library: str
    wall_s: float
    start_unix_s: float = 0.0
    mode: str = ""
    user: str = ""
    batch_name: str = ""


@dataclass(frozen=True)
class MpiSummary:
    """Totals over all ranks; None: not measured. `time_frac` is the part of `rank_time_s` in MPI calls."""

    n_calls: int | None = None
    sent_bytes: int | None = None
    recv_bytes: int | None = None
    time_frac: float | None = None


@dataclass(frozen=True)
class MeterResult:
    """One meter's measurement of the job's slowdown. If `slowdown` is None, `reason` says why."""

    meter: str
    slowdown: Estimate | None = None
    reason: str = ""


@dataclass(frozen=True)
class Interference:
    """The cost of the co-runners to the job.

    `slowdown` is None if it could not be measured; `reason` then says why in one line. `alternatives` are the
    results of the other estimators that ran, and `meters` the results of all meters that were tried.

    `overhead_frac` is the part of the job's time that is lost to pauses for shutters of others, to counting
    and to bubbles. `coverage_frac` is the part of the job's time that was measured; the job is assumed to be
    slowed equally in the rest.

    `cpu_s` (processor time), `run_delay_s` (time ready to run but without a processor) and
    `involuntary_switches` (number of times that the processor was taken) are sums over the ranks, and do not
    depend on which process took the processor. `foreign_delay_frac` (None: not known) is a mean over the
    job's shutters: the part of the shutter in which the rank that waited most had no processor although all
    co-runners stood still.

    `bubble_score` is the level of the bubble that slows others as much as the job does; `bubble_slowdown` is
    the job's slowdown beside a bubble of level 8. Both come from shutters with bubbles. Like
    `foreign_delay_frac`, they have the ends of their 95 % intervals beside them.
    """

    slowdown: Estimate | None = None
    reason: str = ""
    meter: str = "none"
    meter_reason: str = ""
    n_taken: int | None = None
    n_used: int | None = None
    overhead_frac: float | None = None
    coverage_frac: float | None = None
    shared_s: float | None = None
    cpu_s: float | None = None
    run_delay_s: float | None = None
    involuntary_switches: int | None = None
    foreign_delay_frac: float | None = None
    foreign_delay_low_frac: float | None = None
    foreign_delay_high_frac: float | None = None
    bubble_score: float | None = None
    bubble_score_low: float | None = None
    bubble_score_high: float | None = None
    bubble_slowdown: float | None = None
    bubble_slowdown_low: float | None = None
    bubble_slowdown_high: float | None = None
    alternatives: tuple[Estimate, ...] = ()
    meters: tuple[MeterResult, ...] = ()


@dataclass(frozen=True)
class Price:
    """Price in service units (SU). The interval of the fair price follows from that of the slowdown."""

    rate_su: float
    runtime_su: float
    fair_su: float
    discount_frac: float
    pricing: str
    fair_low_su: float
    fair_high_su: float


@dataclass(frozen=True)
class NetworkLevel:
    """One job's load on one level of a fat-tree: L0 is traffic out of hosts, L1 out of first-level switches.

    On a level that the job's allocation does not reach, `available_bps` and `utilisation_frac` are 0. If the
    job's duration is unknown, `injection_bps` and `utilisation_frac` are None.
    """

    level: int
    sent_bytes: float
    injection_bps: float | None
    available_bps: float
    utilisation_frac: float | None


@dataclass(frozen=True)
class Network:
    """The job's load on the network, if the topology was known.

    `traffic` says which messages the numbers include. `levels` has `n_levels` rows. Rates are bytes divided
    by `duration_s` (see `Profile.time_alone_s`). In older files, `duration_s` is None, because their rates
    were divided by the wall time.
    """

    topology: str
    demand_class: str | None
    traffic: str
    n_levels: int
    levels: tuple[NetworkLevel, ...] = ()
    duration_s: float | None = None


class OnDemand(Mapping[str, Table]):
    """The tables of a profile, each loaded at its first use.

    Parameters
    ----------
    load : callable
        Returns the table with a given name of `COLUMNS`.
    loaded : mapping
        Tables that have already been loaded.
    """

    def __init__(self, load: Callable[[str], Table], loaded: Mapping[str, Table]) -> None:
        self._load = load
        self._loaded = {name: frozen(array) for name, array in loaded.items()}

    def __getitem__(self, name: str) -> Table:
        if name not in COLUMNS:
            raise KeyError(name)
        if name not in self._loaded:
            self._loaded[name] = frozen(self._load(name))
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COLUMNS)

    def __len__(self) -> int:
        return len(COLUMNS)


@dataclass(frozen=True)
class Profile:
    """The profile of one job. `tables` has every table of `COLUMNS`, read-only; missing ones become empty.

    Raises
    ------
    DataError
        If a table is unknown or its columns differ from `COLUMNS`.
    """

    job: Job
    tables: Mapping[str, Table]
    mpi: MpiSummary
    interference: Interference
    price: Price | None
    partial: bool = False
    notes: tuple[str, ...] = ()
    network: Network | None = None
    schema_version: int = field(default=SCHEMA_VERSION)

    def __post_init__(self) -> None:
        if isinstance(self.tables, OnDemand):
            return
        for name, array in self.tables.items():
            if name not in COLUMNS:
                raise DataError(f"profile: unknown table {name!r}")
            if array.dtype != dtype(name):
                raise DataError(
                    f"profile: table {name} has columns {array.dtype.names}, not those of schema 1"
                )
        full = {name: frozen(self.tables[name]) if name in self.tables else table(name) for name in COLUMNS}
        object.__setattr__(self, "tables", full)

    @property
    def time_alone_s(self) -> float:
        """T_base, s: the wall time divided by the slowdown, or the wall time if the slowdown is not known."""
        slowdown = self.interference.slowdown
        return self.job.wall_s / (max(slowdown.value, 1.0) if slowdown is not None else 1.0)

    @property
    def time_alone_by(self) -> str:
        """The origin of `time_alone_s` in a few words."""
        wall_s, alone_s = self.job.wall_s, self.time_alone_s
        if alone_s == wall_s:
            return "its wall time"
        return f"its wall time of {wall_s:.4g} s over its slowdown {wall_s / alone_s:.3g}"
