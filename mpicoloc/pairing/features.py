"""Features of a job from its profiles: the measured load that it puts on the machine.

Processor counters need a PMU; MPI, bursts, memory, network and software events exist everywhere (Zacarias et
al. 2021, Tables 1 and 3). Rates are per second of the job alone and per core, because totals would reflect
the run time. If a run shared its nodes, values come from its shutters where possible, because it is alone in
them, and amounts are divided by the time that the run would have taken alone. Features that were not measured
are absent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc.core.counters import EVENTS, LEAST_THREADS_FRAC, SOFTWARE
from mpicoloc.core.profile import PHASES, VERDICTS, Floats, Ints, Profile, Table, text
from mpicoloc.core.slowdown import JobFeatures, Moments, Run, TrainingSet, machine_of, moments, program_name
from mpicoloc.errors import DataError
from mpicoloc.measure.co_runners import slowdown_by_job

LEAST_RUNNING_FRAC = 0.05
"""Smallest fraction of a run during which an event must be counted. Scaling up from less would be a guess."""
PER_INSTRUCTIONS = 1000
_BASES = ("instructions", "cycles")
RATED = tuple(event for event in EVENTS if event.is_usual and event.name not in _BASES)
"""Usual events that get their own rates, per second and per 1,000 instructions."""


def event_word(name: str) -> str:
    """Form of an event's name in the names of quantities."""
    return name.lower().replace("-", "_")


def pmu_rates(counters: Table, n_ranks: int, core_s: float) -> dict[str, Floats | float]:
    """Rates of all events that the processor counted from MPI_Init to MPI_Finalize.

    Use only for runs that were alone: beside other jobs, a job has more cycles and cache misses, and more
    instructions if it polls. An event is used only if it was counted long enough on every rank, for all
    threads of the rank.

    Result: by quantity, a number, or an array with one number per rank.
    """
    names = {text(name) for name in np.unique(counters["event"])} - SOFTWARE
    values = {name: _event_values(counters, name, n_ranks) for name in sorted(names)}
    known = {name: found for name, found in values.items() if found is not None}
    found = _of_whole_job(known, n_ranks * core_s)
    instructions = known.get("instructions", np.zeros(1))
    for name in known.keys() - _BASES:
        found[f"{event_word(name)}_per_s"] = known[name] / core_s
        if instructions.all():
            found[f"{event_word(name)}_per_ki"] = PER_INSTRUCTIONS * known[name] / instructions
    references = known.get("cache-references", np.zeros(1))
    if "cache-misses" in known and references.all():
        found["cache_miss_frac"] = known["cache-misses"] / references
    return found


def _event_values(counters: Table, event: str, n_ranks: int) -> Floats | None:
    """The event's value on each rank; None if a rank's value is missing or unreliable."""
    rows = counters[counters["event"] == event.encode()]
    rows = rows[np.argsort(rows["rank"], kind="stable")]
    is_whole = rows["enabled_s"] >= LEAST_THREADS_FRAC * rows["cpu_s"]
    is_enough = rows["running_s"] >= LEAST_RUNNING_FRAC * rows["enabled_s"]
    well = is_whole & is_enough & (rows["running_s"] > 0) & np.isfinite(rows["value"])
    if not well.all() or len(np.unique(rows["rank"])) != n_ranks:
        return None
    return rows["value"].astype(float)


def _of_whole_job(known: Mapping[str, Floats], core_s: float) -> dict[str, Floats | float]:
    """Quantities of the whole job that shutters provide too."""
    totals = {name: float(known[name].sum()) for name in _BASES if name in known and known[name].all()}
    rates = {"instructions": "instructions_per_s", "cycles": "clock_hz"}
    found: dict[str, Floats | float] = {rates[name]: total / core_s for name, total in totals.items()}
    if len(totals) == len(_BASES):
        found["ipc"] = totals["instructions"] / totals["cycles"]
    return found


N_LEVELS = 4
"""Number of fat-tree levels that have features."""


@dataclass(frozen=True)
class Quantity:
    """Name, unit and meaning of a quantity, and what its statistics range over."""

    name: str
    unit: str
    meaning: str
    over: str


def _rates() -> Iterator[Quantity]:
    """Quantities of the events that the processor counts."""
    over = "ranks and runs"
    for event in RATED:
        name, meaning = event_word(event.name), event.meaning
        yield Quantity(f"{name}_per_s", "1/s", f"{meaning}, per core", over)
        yield Quantity(f"{name}_per_ki", "1", f"{meaning}, per {PER_INSTRUCTIONS:,} instructions", over)
    yield Quantity("cache_miss_frac", "1", "cache misses over cache references", over)


def _quantities(over: str, lines: str) -> Iterator[Quantity]:
    for line in lines.strip().splitlines():
        name, unit, meaning = line.split(None, 2)
        yield Quantity(name, unit, meaning, over)


_CLASSES = {
    "point_to_point": r"MPI_I?(b|s|r|m)?(send|recv)|MPI_(B|S|R|M)(send|recv)|MPI_P(send|recv)|MPI_Pready",
    "completion": r"MPI_(Wait|Test|Start|Request_|I?m?probe|Mprobe)",
    "rma": r"MPI_(Win_|R?put$|R?get$|R?(get_)?accumulate|Fetch_and_op|Compare_and_swap)",
    "file": r"MPI_File_",
    "collective": r"MPI_I?(neighbor_)?(barrier|bcast|(all)?gather|scatter|alltoall|(all)?reduce|(ex)?scan)",
}
_PATTERNS = {name: re.compile(pattern, re.I) for name, pattern in _CLASSES.items()}

QUANTITIES: tuple[Quantity, ...] = (
    *_quantities(
        "ranks and runs",
        """
        mpi_frac               1       part of the rank's time inside MPI
        burst_s                s       mean time between two MPI calls
        cycles_per_s           1/s     MPI calls that end a burst, per core
        calls_per_s            1/s     MPI calls, per core
        sent_bps               bytes/s bytes given to sends and collectives, per core
        recv_bps               bytes/s bytes taken from receives and collectives, per core
        messages_per_s         1/s     messages sent, per core
        file_bps               bytes/s bytes read and written by MPI-IO, per core
        minor_faults_per_s     1/s     page faults without a disk, per core
        major_faults_per_s     1/s     page faults that read from a disk, per core
        cpu_frac               1       processor time over time and cores
        voluntary_switches_per_s 1/s   times its threads gave the processor away, per core
        involuntary_switches_per_s 1/s times the processor was taken from its threads, per core
        migrations_per_s       1/s     times its threads moved to another processor, per core
        rss_bytes              bytes   peak memory, per core
        """,
    ),
    *_rates(),
    *_quantities(
        "runs",
        f"""
        ipc                    1       user instructions per processor cycle
        outside_ipc            1       the same outside MPI
        instructions_per_s     1/s     user instructions, per core
        clock_hz               1/s     processor cycles in user code, per core
        burst_p10_s            s       time between two MPI calls that a tenth of the bursts is below
        burst_p50_s            s       time that half of the bursts are below
        burst_p90_s            s       time that nine tenths are below
        point_to_point_frac    1       part of the time in sends and receives
        completion_frac        1       part of the time in waits, tests and probes
        collective_frac        1       part of the time in collectives
        rma_frac               1       part of the time in one-sided communication
        file_frac              1       part of the time in MPI-IO
        imbalance              1       time outside MPI: largest of all ranks over mean
        message_log2_bytes     log2(B) mean logarithm of the size of messages
        partners               1       ranks that a rank sends messages to
        off_node_frac          1       part of the messages' bytes that leave the node
        ranks_per_core         1       ranks over cores
        cores_per_node         1       cores over nodes
        n_nodes                1       nodes
        bubble_score           level   bubble that the job is like, from its shutters with the probe
        bubble_slowdown        1       its slowdown beside a bubble of level 8, from its shutters with bubbles
        {chr(10).join(f"injection_L{i}_bps bytes/s bytes that the job puts on level {i} of the network" for i in range(N_LEVELS))}
        {chr(10).join(f"utilisation_L{i}_frac 1 part of level {i} of the network that it uses" for i in range(N_LEVELS))}
        """,  # noqa: E501
    ),
)


def quantities_of_run(
    profile: Profile, solo_s: float, phases: Sequence[int], was_alone: bool
) -> dict[str, Floats | float]:
    """All quantities of one run that its profile has.

    Result: by name, a number, or an array with one number per rank. A rank whose number is unknown has NaN.
    """
    tables, job = profile.tables, profile.job
    cores_per_rank = max(job.n_cores / max(job.n_ranks, 1), 1e-9)
    cycles = tables["cycles"][np.isin(tables["cycles"]["phase"], phases)]
    found: dict[str, Floats | float] = {}
    found |= _of_ranks(tables["ranks"], solo_s * cores_per_rank, was_alone)
    found |= {"rss_bytes": tables["ranks"]["peak_rss_bytes"] / cores_per_rank}
    found |= _of_cycles(cycles, cores_per_rank) | _of_classes(cycles, tables["call_sites"])
    if was_alone:
        found |= pmu_rates(tables["counters"], job.n_ranks, solo_s * cores_per_rank)
    found |= _of_windows(tables["shutters"], job.n_cores / max(job.n_nodes, 1))
    found |= _of_messages(tables["peers"], tables["ranks"])
    found |= {
        "ranks_per_core": 1 / cores_per_rank,
        "cores_per_node": job.n_cores / max(job.n_nodes, 1),
        "n_nodes": job.n_nodes,
    }
    of_bubbles = {name: getattr(profile.interference, name) for name in ("bubble_score", "bubble_slowdown")}
    found |= {name: value for name, value in of_bubbles.items() if value is not None}
    return found | _of_network(profile, solo_s)


def _of_ranks(ranks: Table, core_s: float, was_alone: bool) -> dict[str, Floats | float]:
    """Amounts of each rank divided by `core_s`, the product of the rank's time alone and its cores."""
    amounts = {
        "calls_per_s": ("n_calls",),
        "sent_bps": ("sent_bytes",),
        "recv_bps": ("recv_bytes",),
        "messages_per_s": ("n_sent",),
        "file_bps": ("read_bytes", "written_bytes"),
        "minor_faults_per_s": ("minor_faults",),
        "major_faults_per_s": ("major_faults",),
    }
    if was_alone:
        amounts |= {
            "cpu_frac": ("cpu_s",),
            "voluntary_switches_per_s": ("voluntary_switches",),
            "involuntary_switches_per_s": ("involuntary_switches",),
            "migrations_per_s": ("migrations",),
        }
    return {
        name: np.sum([ranks[column].astype(float) for column in columns], axis=0) / core_s
        for name, columns in amounts.items()
    }


def _of_cycles(cycles: Table, cores_per_rank: float) -> dict[str, Floats | float]:
    if not cycles["n"].sum():
        return {}
    _, rank = np.unique(cycles["rank"], return_inverse=True)
    n = np.bincount(rank, cycles["n"].astype(float))
    comp_s, mpi_s = (np.bincount(rank, cycles[name] * 1e-9) for name in ("comp_ns", "mpi_ns"))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: dict[str, Floats | float] = {
            "mpi_frac": mpi_s / (comp_s + mpi_s),
            "burst_s": comp_s / n,
            "cycles_per_s": n / (comp_s + mpi_s) / cores_per_rank,
        }
        found |= {"imbalance": comp_s.max() / comp_s.mean()} if comp_s.any() else {}
    seen = cycles[cycles["n"] > 0]
    points = _quantiles(seen["comp_ns"] * 1e-9 / seen["n"], seen["n"].astype(float), (0.1, 0.5, 0.9))
    return found | dict(zip(("burst_p10_s", "burst_p50_s", "burst_p90_s"), points, strict=True))


def _quantiles(values: Floats, weights: Floats, at: Sequence[float]) -> list[float]:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    places = np.searchsorted(reached, np.asarray(at) * reached[-1])
    return [float(value) for value in values[order][np.minimum(places, len(values) - 1)]]


def _of_classes(cycles: Table, call_sites: Table) -> dict[str, Floats | float]:
    """Fraction of the time in each class of calls; the class of a cycle is that of the call that ends it."""
    total_ns = float(cycles["comp_ns"].sum() + cycles["mpi_ns"].sum())
    if not total_ns or not len(call_sites):
        return {}
    calls, row = np.unique(call_sites["call"], return_inverse=True)
    of_call = np.array([_class(text(call)) for call in calls])
    sites = _keys(call_sites, "i_site")
    order = np.argsort(sites, kind="stable")
    ends = _keys(cycles, "to_site")
    place = order[np.minimum(np.searchsorted(sites[order], ends), len(sites) - 1)]
    kind = np.where(sites[place] == ends, of_call[row[place]], "")
    mpi_ns = cycles["mpi_ns"].astype(float)
    return {f"{name}_frac": float(mpi_ns[kind == name].sum()) / total_ns for name in _PATTERNS}


def _keys(table: Table, site: str) -> Ints:
    """A single key for rank, lane and site."""
    rank, lane = table["rank"].astype(np.int64), table["lane"].astype(np.int64)
    return (rank << 32) | (lane << 16) | table[site].astype(np.int64)


def _class(call: str) -> str:
    return next((name for name, pattern in _PATTERNS.items() if pattern.match(call)), "")


def _of_windows(shutters: Table, cores_per_node: float) -> dict[str, Floats | float]:
    """Counts in valid shutters, in which the job is alone."""
    valid = shutters[(shutters["verdict"] == VERDICTS.index("valid")) & (shutters["during_cycles"] > 0)]
    window_s = float((valid["t1_ns"].astype(float) - valid["t0_ns"].astype(float)).sum()) * 1e-9
    if not window_s > 0:
        return {}
    total = {name: float(valid[f"during_{name}"].sum()) for name in ("instructions", "cycles")}
    core_s = window_s * max(cores_per_node, 1e-9)
    found: dict[str, Floats | float] = {
        "ipc": total["instructions"] / total["cycles"],
        "instructions_per_s": total["instructions"] / core_s,
        "clock_hz": total["cycles"] / core_s,
    }
    outside = float(valid["during_outside_cycles"].sum())
    if outside > 0:
        found["outside_ipc"] = float(valid["during_outside_instructions"].sum()) / outside
    return found


def _of_messages(peers: Table, ranks: Table) -> dict[str, Floats | float]:
    n = peers["n"].astype(float)
    if not n.sum():
        return {}
    # Messages of size class c have 2^(c-1) <= bytes < 2^c: take the middle.
    log2_bytes = np.maximum(peers["size_class"] - 0.5, 0)
    known = peers[(peers["dst"] >= 0) & (peers["n"] > 0)]
    pairs = np.unique(np.stack([known["src"], known["dst"]]), axis=1)
    found: dict[str, Floats | float] = {"message_log2_bytes": float((n * log2_bytes).sum() / n.sum())}
    if len(ranks):
        found["partners"] = pairs.shape[1] / len(ranks)
    n_bytes = known["bytes"].astype(float)
    last = int(max(ranks["rank"].max(initial=-1), known["src"].max(initial=-1), known["dst"].max(initial=-1)))
    node = np.full(last + 1, -1)
    node[ranks["rank"]] = ranks["i_node"]
    if n_bytes.sum() > 0 and (node >= 0).all():
        leaves = node[known["src"]] != node[known["dst"]]
        found["off_node_frac"] = float(n_bytes[leaves].sum() / n_bytes.sum())
    return found


def _of_network(profile: Profile, solo_s: float) -> dict[str, Floats | float]:
    """Network load per level. A slowed job sends more slowly, so rates are scaled up to its speed alone."""
    duration_s = (profile.network and profile.network.duration_s) or profile.job.wall_s
    faster = duration_s / solo_s
    found: dict[str, Floats | float] = {}
    for level in profile.network.levels[:N_LEVELS] if profile.network else ():
        if level.injection_bps is not None:
            found[f"injection_L{level.level}_bps"] = level.injection_bps * faster
        if level.utilisation_frac is not None:
            found[f"utilisation_L{level.level}_frac"] = level.utilisation_frac * faster
    return found


STATISTICS = ("mean", "min", "max", "sd")
ALONE_FRAC = 0.99
"""A run counts as alone if it had no co-runners for at least this fraction of its time."""


@dataclass(frozen=True)
class Feature:
    """One feature: stable name, unit, meaning."""

    name: str
    unit: str
    meaning: str


_OF = {"mean": "mean", "min": "least", "max": "largest", "sd": "standard deviation"}
FEATURES: Mapping[str, Feature] = {
    f"{base.name}_{statistic}": Feature(
        f"{base.name}_{statistic}", base.unit, f"{base.meaning}; {_OF[statistic]} over {base.over}"
    )
    for base in QUANTITIES
    for statistic in STATISTICS
}
"""All features by name. A job has the features that its profiles provide, and features of any other events
that were counted."""
TABLE_3 = tuple(
    f"{name}_{statistic}"
    for name in (
        *("instructions_per_s", "clock_hz", "branches_per_s", "branch_misses_per_s"),
        *("minor_faults_per_s", "major_faults_per_s", "migrations_per_s"),
        *("voluntary_switches_per_s", "involuntary_switches_per_s"),
        *("cache_references_per_s", "cache_misses_per_s", "cpu_frac"),
    )
    for statistic in STATISTICS
)
"""The counters that every processor has (Zacarias et al. 2021, Table 3), as rates."""


def only(training: TrainingSet, names: Collection[str]) -> TrainingSet:
    """The training set reduced to these features."""
    return replace(
        training,
        jobs=tuple(
            replace(job, values={name: value for name, value in job.values.items() if name in names})
            for job in training.jobs
        ),
    )


def run_of(profile: Profile) -> Run:
    """The run that a profile describes."""
    job, interference = profile.job, profile.interference
    shared_s = interference.shared_s
    was_alone = shared_s is not None and shared_s <= (1 - ALONE_FRAC) * job.wall_s
    solo_s = profile.time_alone_s
    found = quantities_of_run(profile, solo_s, _phases(profile), was_alone) if solo_s > 0 else {}
    known = {name: moments(values) for name, values in found.items()}
    return Run(
        id=job.id,
        command=job.command,
        n_ranks=job.n_ranks,
        n_nodes=job.n_nodes,
        n_cores=job.n_cores,
        start_unix_s=job.start_unix_s,
        wall_s=job.wall_s,
        solo_s=solo_s,
        shared_s=shared_s,
        was_alone=was_alone,
        partial=profile.partial,
        slowdown=interference.slowdown,
        co_runners=_co_runners(profile),
        slowdown_by=slowdown_by_job(profile.tables["corunners"]),
        machine=machine_of(profile),
        seen={name: values for name, values in known.items() if values is not None},
        cpus={text(row["hostname"]): text(row["cpus"]) for row in profile.tables["nodes"] if row["cpus"]},
    )


def _co_runners(profile: Profile) -> tuple[tuple[str, float], ...]:
    """Overlap with each co-runner, s. If both share several nodes, the longest overlap on a node counts."""
    found: dict[str, float] = {}
    for row in profile.tables["corunners"]:
        name = text(row["job_id"])
        found[name] = max(found.get(name, 0.0), float(row["overlap_s"]))
    return tuple(found.items())


def job_features(runs: Sequence[Profile | Run], job_id: str | None = None) -> JobFeatures:
    """Features of one job from its runs.

    Parameters
    ----------
    runs : sequence of Profile or Run
        Runs of one program at one size, the latest last. If some runs were alone, only these count. If none
        was alone but some have a measured slowdown, only those count. Otherwise all runs count.
    job_id : str, optional
        Id of the job for the user; by default the last run's.

    Returns
    -------
    JobFeatures
        The run time alone is the mean of time divided by slowdown over the runs that count.

    Raises
    ------
    DataError
        If none of the runs ran to its end.
    """
    found = [run_of(run) if isinstance(run, Profile) else run for run in runs]
    whole = [run for run in found if not run.partial and run.solo_s > 0]
    if not whole:
        raise DataError(
            f"none of the {len(runs)} profiles is of a complete run; let the job run to its end once"
        )
    best = max(map(_run_weight, whole))
    counted = [run for run in whole if _run_weight(run) == best]
    last = counted[-1]
    return JobFeatures(
        id=last.id if job_id is None else job_id,
        program=program_name(last.command),
        runtime_s=sum(run.solo_s for run in counted) / len(counted),
        n_cores=max(last.n_cores, 1),
        n_ranks=max(last.n_ranks, 1),
        values=_values(counted),
    )


def _run_weight(run: Run) -> int:
    return 2 if run.was_alone else int(run.slowdown is not None)


def _values(runs: Iterable[Run]) -> dict[str, float]:
    seen: dict[str, Moments] = {}
    for run in runs:
        for name, found in run.seen.items():
            seen[name] = seen[name] + found if name in seen else found
    values: dict[str, float] = {}
    for name, found in seen.items():
        values |= {f"{name}_mean": found.mean, f"{name}_min": found.least, f"{name}_max": found.largest}
        if found.sd is not None:
            values[f"{name}_sd"] = found.sd
    return values


def _phases(profile: Profile) -> tuple[int, ...]:
    """Phases of cycles in which the job was alone; all phases if it was never alone."""
    solo = tuple(PHASES.index(name) for name in ("solo", "alone"))
    return solo if np.isin(profile.tables["cycles"]["phase"], solo).any() else tuple(range(len(PHASES)))
