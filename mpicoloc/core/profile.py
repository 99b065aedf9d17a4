"""The profile of one job: facts, interference, price and load on the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import COLUMNS, Table, dtype, frozen, table
from mpicoloc.errors import DataError

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Job:
    """Facts of the job. `n_cores` counts the cores that it was given on all nodes together.

    `user` is who ran it, and `batch_name` its name in the batch system. A scheduler knows both before a job
    starts.
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
    """Totals over all ranks; `time_frac` is the part of their time in MPI calls; None: not measured."""

    n_calls: int | None = None
    sent_bytes: int | None = None
    recv_bytes: int | None = None
    time_frac: float | None = None


@dataclass(frozen=True)
class MeterResult:
    """What one meter says of the job's slowdown; `slowdown` is None where `reason` says why."""

    meter: str
    slowdown: Estimate | None = None
    reason: str = ""


@dataclass(frozen=True)
class Interference:
    """What the co-runners cost the job.

    `slowdown` is None if it could not be measured; `reason` then says why in one line. `alternatives` are the
    results of the other estimators that ran, `meters` those of each meter that was tried. `overhead_frac` is
    the part of the job's time in pauses for shutters of others, or taken by counting or bubbles.
    `coverage_frac` is the part of its time that was measured; the rest is assumed to be slowed alike. `cpu_s`
    (processor time), `run_delay_s` (time ready to run without a processor) and `involuntary_switches` (times
    that the processor was taken) are sums over the ranks, whatever process took the processor.
    `bubble_score`: the bubble that the job is like; `bubble_slowdown`: its slowdown beside one of level 8;
    both from shutters with bubbles, with the ends of their 95 % intervals.
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
    """Price in service units (SU); the interval of the fair price follows that of the slowdown."""

    rate_su: float
    runtime_su: float
    fair_su: float
    discount_frac: float
    pricing: str
    fair_low_su: float
    fair_high_su: float


@dataclass(frozen=True)
class NetworkLevel:
    """One level of a fat-tree as one job sees it: L0 is what leaves a host, L1 a first-level switch.

    `available_bps` and `utilisation_frac` are 0 on a level that the job's allocation does not reach, and
    `injection_bps` and `utilisation_frac` None where the job's duration is unknown.
    """

    level: int
    sent_bytes: float
    injection_bps: float | None
    available_bps: float
    utilisation_frac: float | None


@dataclass(frozen=True)
class Network:
    """What the job did to the network on which it ran, if the network's topology was known.

    `traffic` says which messages the numbers include. `levels` has `n_levels` rows.
    """

    topology: str
    demand_class: str | None
    traffic: str
    n_levels: int
    levels: tuple[NetworkLevel, ...] = ()


class OnDemand(Mapping[str, Table]):
    """The tables of a profile, each loaded at its first use.

    Parameters
    ----------
    load : callable
        Returns the table of a name of `COLUMNS`.
    loaded : mapping
        Tables that are loaded already.
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
    """One job. `tables` has every table of `core.tables.COLUMNS`, read-only; a missing one becomes empty.

    Raises
    ------
    DataError
        If a table is unknown or has other columns than `core.tables` says.
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
