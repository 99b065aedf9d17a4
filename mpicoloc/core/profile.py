"""What is known of one job at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import COLUMNS, OnDemand, Table, dtype, frozen, table
from mpicoloc.errors import DataError

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Job:
    """Facts of the job. `n_cores` counts the cores it was given, all nodes together.

    `user` is who ran it, and `batch_name` what he called it when he gave it to the batch system: what a
    scheduler knows of a job that waits.
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
    """Totals over all ranks; None: not measured."""

    n_calls: int | None = None
    sent_bytes: int | None = None
    recv_bytes: int | None = None
    time_frac: float | None = None


@dataclass(frozen=True)
class Interference:
    """What the co-runners cost the job.

    `slowdown` is None when it could not be measured; `reason` then says why in one line. `alternatives` are
    the results of the other estimators that ran. `overhead_frac` is the share of the job's time spent
    standing still for shutters of others, or slowed by counting; `coverage_frac` the share of its time that
    was measured, not supposed to be slowed like the rest. `cpu_s`, `run_delay_s` and `involuntary_switches`
    are those of the ranks together, whoever took the processor from them: processor time, time ready to run
    without a processor, and how often it was taken.
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
    alternatives: tuple[Estimate, ...] = ()


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
    """What the job did to the network where it ran, if the network's topology was known.

    `traffic` says which of its messages the numbers are of; `n_levels` levels follow in `levels`.
    """

    topology: str
    demand_class: str | None
    traffic: str
    n_levels: int
    levels: tuple[NetworkLevel, ...] = ()


@dataclass(frozen=True)
class Profile:
    """One job. `tables` has every table of `core.tables.COLUMNS`, read-only; missing ones become empty.

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
