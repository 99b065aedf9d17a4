"""The slowdown of a job beside others: jobs as models see them, training data, and the protocol of models."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpicoloc.core.plain_values import dataclass_from
from mpicoloc.core.profile import Column, Estimate, Floats, Profile, frozen, text
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, UsageError, printable

_INTERPRETERS = ("python", "perl", "ruby", "julia", "Rscript", "bash", "sh", "java")


def program_name(command: str) -> str:
    """Name of the program in a command line, or of the script if the program is an interpreter."""
    words = command.split() or ["unknown"]
    name = words[0].rpartition("/")[2]
    if is_interpreter(name):
        scripts = [word for word in words[1:] if not word.startswith("-")]
        name = scripts[0].rpartition("/")[2] if scripts else name
    return name or "unknown"


def is_interpreter(word: str) -> bool:
    """Whether a word of a command line names an interpreter, which runs the script named after it."""
    return word.rpartition("/")[2].rstrip("0123456789.") in _INTERPRETERS


def kind_of(program: str, n_ranks: int) -> str:
    """Program and size as text, which is the same for all users and machines."""
    return f"{program} x{n_ranks}"


@dataclass(frozen=True)
class JobFeatures:
    """One job, as measured in runs without co-runners.

    Parameters
    ----------
    id : str
        Number of the job in the queue, or its name.
    program : str
        Name of the job's program. Jobs of one program count as one application when a model is evaluated.
    runtime_s : float
        Run time without co-runners, above 0, s.
    n_cores, n_ranks : int
        Size of the job, each at least 1.
    values : mapping of str to float
        Features by name (`mpicoloc.pairing.features.FEATURES`), finite. A feature that was not measured is
        absent, never 0. Without a profile the mapping is empty.

    Raises
    ------
    DataError
        If a number is not finite or out of range.
    """

    id: str
    program: str
    runtime_s: float
    n_cores: int
    n_ranks: int
    values: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.runtime_s) and self.runtime_s > 0):
            raise DataError(f"job {self.id}: runtime_s must be above 0, got {self.runtime_s}")
        for name in ("n_cores", "n_ranks"):
            if getattr(self, name) < 1:
                raise DataError(f"job {self.id}: {name} must be at least 1, got {getattr(self, name)}")
        wrong = next((name for name, value in self.values.items() if not math.isfinite(value)), None)
        if wrong is not None:
            raise DataError(
                f"job {self.id}: feature {wrong} must be finite, got {self.values[wrong]}; "
                "leave out features that were not measured"
            )
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    @property
    def kind(self) -> str:
        """Program and size. Jobs of one kind are assumed to behave alike."""
        return kind_of(self.program, self.n_ranks)


_MEMORY_MARGIN = 0.05
"""Largest relative difference in memory between equal nodes: the part that the kernel reserves varies."""


@dataclass(frozen=True)
class Machine:
    """Processor, number of processors and memory of each node of a job."""

    cpu_model: str
    n_cpus: int
    memory_bytes: float

    def __str__(self) -> str:
        return (
            f"{printable(self.cpu_model)}, {counted(self.n_cpus, 'CPU')}, {self.memory_bytes / 2**30:.0f} GiB"
        )

    def is_like(self, other: Machine) -> bool:
        """Whether both have the same processors, and equal memory within `_MEMORY_MARGIN`."""
        same = (self.cpu_model, self.n_cpus) == (other.cpu_model, other.n_cpus)
        return same and math.isclose(self.memory_bytes, other.memory_bytes, rel_tol=_MEMORY_MARGIN)


def machine_of(profile: Profile) -> Machine | None:
    """The machine of a profile's first node, with the processor models of all nodes.

    The result is None if the profile lacks these facts, as profiles of earlier versions do.
    """
    nodes = profile.tables["nodes"]
    if not len(nodes) or not nodes["cpu_model"][0]:
        return None
    first = nodes[0]
    if not (math.isfinite(first["n_cpus"]) and math.isfinite(first["memory_bytes"])):
        return None
    models = sorted({text(name) for name in nodes["cpu_model"]})
    return Machine(" + ".join(models), int(first["n_cpus"]), float(first["memory_bytes"]))


def machine_from_values(values: Any) -> Machine | None:
    """A machine from the plain values that `dataclasses.asdict` makes of it; None: not known.

    Raises `TypeError`, `ValueError`, `KeyError` if they do not describe a machine.
    """
    return None if values is None else dataclass_from(Machine, values)


@dataclass(frozen=True)
class Moments:
    """Number, mean, minimum and maximum of some values, and sum of their squared deviations (`squares`)."""

    n: int
    mean: float
    least: float
    largest: float
    squares: float

    def __add__(self, other: Moments) -> Moments:
        n = self.n + other.n
        step = other.mean - self.mean
        return Moments(
            n,
            self.mean + step * other.n / n,
            min(self.least, other.least),
            max(self.largest, other.largest),
            self.squares + other.squares + step**2 * self.n * other.n / n,
        )

    @property
    def sd(self) -> float | None:
        """Standard deviation; None for a single value."""
        return math.sqrt(self.squares / (self.n - 1)) if self.n > 1 else None


def moments(values: ArrayLike) -> Moments | None:
    """Moments of those values that are finite; None if no value is."""
    known = np.atleast_1d(np.asarray(values, float))
    known = known[np.isfinite(known)]
    if not len(known):
        return None
    mean, least, largest = float(known.mean()), float(known.min()), float(known.max())
    return Moments(len(known), mean, least, largest, float(((known - mean) ** 2).sum()))


@dataclass(frozen=True)
class Run:
    """One run of a job.

    `co_runners` has the id of each other job on the run's nodes, and the time for which both were there, s.
    `slowdown_by` has the slowdown of the whole run by each co-runner whose effect could be separated. `seen`
    has the quantities (`pairing.features`) that were measured. `was_alone`: for nearly all of the time, the
    run certainly had no co-runner. `owner` is the user id of the owner of the profile's file. `cpus` has, for
    each known node, the processors on which the job could run there (`core.number_lists`).
    """

    id: str
    command: str
    n_ranks: int
    n_nodes: int
    n_cores: int
    start_unix_s: float
    wall_s: float
    solo_s: float
    shared_s: float | None
    was_alone: bool
    partial: bool
    slowdown: Estimate | None = None
    co_runners: tuple[tuple[str, float], ...] = ()
    slowdown_by: Mapping[str, Estimate] = field(default_factory=dict)
    machine: Machine | None = None
    seen: Mapping[str, Moments] = field(default_factory=dict)
    owner: int | None = None
    cpus: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> tuple[str, int, int]:
        """Command and size. Runs with the same command and size are assumed to behave alike."""
        return self.command, self.n_ranks, self.n_nodes


def run_as_json(run: Run) -> dict[str, Any]:
    """The run as plain values."""
    return asdict(run)


def run_from_json(values: Mapping[str, Any]) -> Run:
    """The run from the plain values that `run_as_json` returns.

    Raises `TypeError`, `KeyError`, `DataError` if they do not describe a run.
    """
    return dataclass_from(
        Run,
        values,
        slowdown=Estimate(**values["slowdown"]) if values["slowdown"] else None,
        machine=machine_from_values(values["machine"]),
        co_runners=tuple((str(name), float(s)) for name, s in values["co_runners"]),
        slowdown_by={str(name): Estimate(**one) for name, one in values["slowdown_by"].items()},
        seen={name: Moments(**moments) for name, moments in values["seen"].items()},
        cpus={str(name): str(cpus) for name, cpus in values["cpus"].items()},
    )


ROW_COLUMNS = (
    Column("target", "i4", "1", "row of the job that suffers in /jobs"),
    Column("co_runner", "i4", "1", "row of the job beside it"),
    Column("slowdown", "f8", "1", "T_co / T_solo as measured, also below 1"),
    Column("low", "f8", "1", "lower end of its 95 % interval"),
    Column("high", "f8", "1", "upper end"),
    Column("n", "i4", "1", "observations behind it"),
    Column("weight", "f8", "1", "what the row counts for, at most 1"),
    Column("source", "S16", "1", "campaign or production"),
    Column("key", "S16", "1", "which measurement it is: rows of one key are the same one"),
)
ROW_DTYPE = np.dtype([(column.name, column.type) for column in ROW_COLUMNS])
TURNS, CORES, SPREAD = "turns", "cores", "spread"
"""Layouts of jobs that share nodes: on the same processors in time slices, on processors of their own, and on
half of each of twice the nodes."""
LAYOUTS = ("", TURNS, CORES)
"""Layouts in which slowdowns are measured; empty: unknown. Those of `SPREAD` follow from those of `CORES`."""
_EARLIER = {"same": TURNS, "apart": CORES}


def read_layout(word: str) -> str:
    """A layout in a file; versions before 0.2.0 wrote other words."""
    return _EARLIER.get(word, word)


def check_layout(wanted: str, measured: str, source: str, otherwise: str = "") -> None:
    """Check that slowdowns of one layout apply to another; an unknown layout applies to all.

    `otherwise` is the remedy beside other slowdowns (default: --layout with that of the slowdowns).

    Raises `UsageError` if the layout is unknown, or slowdowns were measured in another one.
    """
    if wanted not in (*LAYOUTS, SPREAD):
        raise UsageError(f"--layout must be {TURNS}, {CORES} or {SPREAD}, got {wanted!r}")
    if measured == SPREAD:
        raise UsageError(f"{source} has slowdowns relative to packed runs: give those of the layout {CORES}")
    needed = CORES if wanted == SPREAD else wanted
    if needed and measured and needed != measured:
        raise UsageError(
            f"{source} is of the layout {measured}, so its slowdowns do not apply to {wanted}: give "
            f"slowdowns of the layout {needed}, or {otherwise or f'--layout {measured}'}"
        )


def of_spread(beside: Estimate, itself: Estimate) -> Estimate:
    """The slowdown of a spread job, relative to its run on half of the nodes."""
    ends = (np.array([found.value, found.low, found.high]) for found in (beside, itself))
    value, low, high = map(float, ends_of_spread(*ends))
    return Estimate(value, low, high, beside.n, "1", beside.method)


def ends_of_spread(beside: Floats, itself: Floats) -> Floats:
    """Slowdowns of spread jobs, relative to their runs on half of the nodes; rows: value, low, high.

    A packed job has its own processes beside it (`itself`), a spread one those of another job (`beside`). The
    interval assumes that the errors of both slowdowns are independent.
    """
    value = beside[0] / itself[0]
    below = np.hypot(np.log(beside[0] / beside[1]), np.log(itself[2] / itself[0]))
    above = np.hypot(np.log(beside[2] / beside[0]), np.log(itself[0] / itself[1]))
    return np.stack([value, value * np.exp(-below), value * np.exp(above)])


HALF_WEIGHT_ERROR = 0.05
"""A row whose slowdown has this standard error has half the weight of an exact one."""


@dataclass(frozen=True)
class Row:
    """One measured slowdown of job `target` beside job `co_runner`.

    `key` is the measurement's `key_of`; `layout` is one of `LAYOUTS`.
    """

    target: JobFeatures
    co_runner: JobFeatures
    slowdown: Estimate
    source: str
    key: str = ""
    layout: str = ""


@dataclass(frozen=True)
class TrainingSet:
    """Measured slowdowns of one machine.

    Parameters
    ----------
    jobs : tuple of JobFeatures
        Each job once.
    rows : ndarray, shape (n_rows,), type `ROW_DTYPE`
        Read-only; `target` and `co_runner` are indices of `jobs`.
    machine : Machine or None
        Machine on which all rows were measured; None: not known.
    layout : str
        One of `LAYOUTS`. It is kept here because no feature describes it, although jobs that do not slow each
        other on separate processors take twice as long on shared ones.

    Raises
    ------
    DataError
        If the index of a job is out of range, a number is not finite or out of range, or the layout is
        unknown.
    """

    jobs: tuple[JobFeatures, ...]
    rows: NDArray[np.void]
    machine: Machine | None = None
    layout: str = ""

    def __post_init__(self) -> None:
        rows = self.rows
        if self.layout not in LAYOUTS:
            raise DataError(f"training set: layout must be one of {LAYOUTS}, got {self.layout!r}")
        if rows.dtype != ROW_DTYPE or rows.ndim != 1:
            raise DataError(f"training set: rows must have {ROW_DTYPE.names}, got {rows.dtype.names}")
        ends = np.concatenate([rows["target"], rows["co_runner"]])
        if len(ends) and not (ends.min() >= 0 and ends.max() < len(self.jobs)):
            raise DataError(f"training set: job indices must be at least 0 and below {len(self.jobs)}")
        ordered = (rows["low"] > 0) & (rows["low"] <= rows["slowdown"]) & (rows["slowdown"] <= rows["high"])
        finite = np.isfinite(rows["high"]) & (rows["weight"] > 0) & (rows["weight"] <= 1)
        if not (ordered & finite).all():
            raise DataError("training set: need 0 < low <= slowdown <= high, finite, and 0 < weight <= 1")
        frozen(rows)

    @property
    def programs(self) -> list[str]:
        """Names of the programs of all jobs."""
        return sorted({job.program for job in self.jobs})


def key_of(*facts: str | float) -> str:
    """Short text that identifies a measurement, made from facts that do not change when files are copied."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def weight_of(slowdown: Estimate) -> float:
    """Weight of a row, at most 1. The wider the interval of the slowdown, the smaller the weight."""
    standard_error = (slowdown.high - slowdown.low) / (2 * 1.96)
    return HALF_WEIGHT_ERROR**2 / (HALF_WEIGHT_ERROR**2 + standard_error**2)


def training_set(rows: Sequence[Row], machine: Machine | None = None, layout: str = "") -> TrainingSet:
    """The training set of these rows, in which each job occurs once."""
    jobs: dict[tuple[object, ...], int] = {}
    kept_jobs: list[JobFeatures] = []
    numbers = np.zeros(len(rows), ROW_DTYPE)
    for i, row in enumerate(rows):
        for name, job in (("target", row.target), ("co_runner", row.co_runner)):
            facts = _identity(job)
            if facts not in jobs:
                jobs[facts] = len(kept_jobs)
                kept_jobs.append(job)
            numbers[name][i] = jobs[facts]
        slowdown = row.slowdown
        numbers["slowdown"][i], numbers["n"][i] = slowdown.value, min(slowdown.n, np.iinfo(np.int32).max)
        numbers["low"][i], numbers["high"][i] = max(slowdown.low, 1e-3), slowdown.high
        numbers["weight"][i], numbers["source"][i] = weight_of(slowdown), row.source.encode()
        numbers["key"][i] = row.key.encode()
    return TrainingSet(tuple(kept_jobs), numbers, machine, layout)


def _identity(job: JobFeatures) -> tuple[str | float, ...]:
    flat = [fact for pair in sorted(job.values.items()) for fact in pair]
    return (job.id, job.program, job.runtime_s, job.n_cores, job.n_ranks, *flat)


def merged(sets: Iterable[TrainingSet]) -> TrainingSet:
    """All rows of several sets, each measurement once, and the jobs that they name.

    A campaign that was continued has several rows of one measurement. Of these rows, the one with most
    observations counts; among equal ones, the last, because more may be known of its jobs.

    Raises `DataError` if the sets are of different machines or layouts. An unknown machine or layout matches
    all others.
    """
    sets = list(sets)
    machines = [member.machine for member in sets if member.machine is not None]
    other = next((machine for machine in machines if not machine.is_like(machines[0])), None)
    if other is not None:
        raise DataError(f"the slowdowns are of two machines, {machines[0]} and {other}: fit a model for each")
    layouts = sorted({member.layout for member in sets} - {""})
    if len(layouts) > 1:
        raise DataError(
            "some slowdowns are of jobs on separate processors, others of jobs on shared ones: fit a model "
            "for each kind"
        )
    jobs: list[JobFeatures] = []
    parts = [np.zeros(0, ROW_DTYPE)]
    for member in sets:
        rows = member.rows.copy()
        rows["key"] = _keys(member)
        rows["target"] += len(jobs)
        rows["co_runner"] += len(jobs)
        parts.append(rows)
        jobs.extend(member.jobs)
    rows = np.concatenate(parts)
    best: dict[bytes, int] = {}
    for i, (key, n) in enumerate(zip(rows["key"].tolist(), rows["n"].tolist(), strict=True)):
        if key not in best or n >= rows["n"][best[key]]:
            best[key] = i
    used, kept = _drop_unused_jobs(jobs, rows[sorted(best.values())])
    return TrainingSet(used, kept, machines[0] if machines else None, "".join(layouts))


def _keys(training: TrainingSet) -> list[bytes]:
    """Keys of the rows. Files of earlier versions have no keys: their rows with equal numbers get one key."""
    keys: list[bytes] = training.rows["key"].tolist()
    if all(keys):
        return keys
    names = [
        column.name for column in ROW_COLUMNS if column.name not in ("target", "co_runner", "key", "source")
    ]
    facts = [_identity(job) for job in training.jobs]
    return [
        key
        or key_of(
            *facts[row["target"]], *facts[row["co_runner"]], *(float(row[name]) for name in names)
        ).encode()
        for key, row in zip(keys, training.rows, strict=True)
    ]


def _drop_unused_jobs(
    jobs: Sequence[JobFeatures], rows: NDArray[np.void]
) -> tuple[tuple[JobFeatures, ...], NDArray[np.void]]:
    """The jobs that these rows name, and the rows with the jobs' new indices."""
    ends = np.stack([rows["target"], rows["co_runner"]])
    used, places = np.unique(ends, return_inverse=True)
    rows["target"], rows["co_runner"] = places.reshape(ends.shape)
    return tuple(jobs[i] for i in used), rows


LEAST_SLOWDOWN = 0.5
"""A number below this is no slowdown, but must be another quantity, such as a degradation."""


class SlowdownModel(Protocol):
    """Predicts the slowdown T_co / T_solo (not the degradation in percent, 100 (slowdown - 1))."""

    def predict(self, target: JobFeatures, co_runners: Sequence[JobFeatures]) -> Estimate:
        """Slowdown of `target` while all `co_runners` share its nodes, with 95 % interval.

        The value and both ends of the interval are at least 1; without co-runners they are exactly 1.
        """


@runtime_checkable
class BatchModel(Protocol):
    """A model that predicts many pairs at once, which is faster than one by one."""

    def predict_pairs(self, jobs: Sequence[JobFeatures]) -> PairSlowdowns:
        """Slowdowns of all ordered pairs of `jobs`, equal to those that `predict` returns one by one."""


@dataclass(frozen=True)
class PairSlowdowns:
    """Slowdowns of all ordered pairs of n jobs.

    Parameters
    ----------
    value, low, high : ndarray, shape (n, n)
        Element [i, j] of `value` is the slowdown of job i beside job j, dimensionless, >= 1; `low` and `high`
        are the ends of its 95 % interval. The diagonal has the slowdown beside an identical job. Read-only.

    Raises
    ------
    DataError
        If the shapes differ or an interval does not contain its value.
    """

    value: Floats
    low: Floats
    high: Floats

    def __post_init__(self) -> None:
        n = len(self.value)
        for name in ("value", "low", "high"):
            array = getattr(self, name)
            if array.shape != (n, n):
                raise DataError(f"slowdowns of pairs: {name} must have shape {(n, n)}, got {array.shape}")
            array.flags.writeable = False
        # The condition is negated, so that NaN fails too: with NaN all comparisons are false.
        if not ((self.low >= 1) & (self.low <= self.value) & (self.value <= self.high)).all():
            raise DataError("slowdowns of pairs: need 1 <= low <= value <= high everywhere")


def pair_slowdowns(model: SlowdownModel, jobs: Sequence[JobFeatures]) -> PairSlowdowns:
    """Predict all ordered pairs of `jobs`, in one batch where the model can.

    Parameters
    ----------
    model : SlowdownModel
    jobs : sequence of JobFeatures

    Returns
    -------
    PairSlowdowns
        Matrices of shape (len(jobs), len(jobs)).
    """
    if isinstance(model, BatchModel):
        return model.predict_pairs(jobs)
    found = np.ones((3, len(jobs), len(jobs)))
    for i, target in enumerate(jobs):
        for j, co_runner in enumerate(jobs):
            estimate = model.predict(target, [co_runner])
            found[:, i, j] = estimate.value, estimate.low, estimate.high
    return PairSlowdowns(*found)


def alone(method: str) -> Estimate:
    """The slowdown of a job without co-runners."""
    return Estimate(1.0, 1.0, 1.0, 0, "1", method)


def together(parts: Sequence[Estimate], method: str) -> Estimate:
    """Slowdown beside several co-runners, from the slowdowns beside each of them.

    Parameters
    ----------
    parts : sequence of Estimate
        Slowdown beside each co-runner alone.
    method : str
        Method of the result.

    Returns
    -------
    Estimate
        1 + sum of (slowdown - 1), because the losses to all co-runners are added up. The ends of the interval
        are computed in the same way.

    Notes
    -----
    The result is exact if a single co-runner suffices to saturate a shared resource. It is too small if only
    all co-runners together saturate the resource.
    """
    if not parts:
        return alone(method)
    value, low, high = (
        1 + sum(max(getattr(p, end), 1.0) - 1 for p in parts) for end in ("value", "low", "high")
    )
    return Estimate(value, low, high, min(part.n for part in parts), "1", method)


class MeasuredTable:
    """Slowdowns of pairs that have been run.

    Parameters
    ----------
    pairs : mapping of (str, str) to Estimate
        Slowdowns by the kinds (`JobFeatures.kind`) of target and co-runner. Values below 1 count as 1: a job
        does not run faster beside another (section 3.2 of Zacarias et al. 2021).
    otherwise : SlowdownModel, optional
        Model that predicts pairs that were not measured.
    """

    def __init__(
        self, pairs: Mapping[tuple[str, str], Estimate], otherwise: SlowdownModel | None = None
    ) -> None:
        self._pairs = dict(pairs)
        self._otherwise = otherwise

    def predict(self, target: JobFeatures, co_runners: Sequence[JobFeatures]) -> Estimate:
        """Slowdown of `target`, as measured; see `SlowdownModel`.

        Raises
        ------
        DataError
            If a pair was not measured and there is no other model.
        """
        parts = [self._beside(target, co_runner) for co_runner in co_runners]
        return parts[0] if len(parts) == 1 else together(parts, "measured")

    def _beside(self, target: JobFeatures, co_runner: JobFeatures) -> Estimate:
        found = self._pairs.get((target.kind, co_runner.kind))
        if found is not None:
            value, low, high = (max(end, 1.0) for end in (found.value, found.low, found.high))
            return Estimate(value, low, high, found.n, "1", "measured")
        if self._otherwise is None:
            raise DataError(
                f"{target.kind} beside {co_runner.kind} was not measured; measure the pair, or give a model"
            )
        return self._otherwise.predict(target, [co_runner])


def measured_programs(
    pairs: Mapping[tuple[str, str], tuple[float, float, float]], programs: Iterable[str]
) -> tuple[MeasuredTable, dict[str, JobFeatures]]:
    """A table by program name, for jobs of any size; and for each program, a job with which to query it."""
    jobs = {name: JobFeatures(name, name, 1.0, 1, 1) for name in dict.fromkeys(programs)}
    known = {
        (jobs[one].kind, jobs[other].kind): Estimate(
            value, value if math.isnan(low) else low, value if math.isnan(high) else high, 1, "1", "measured"
        )
        for (one, other), (value, low, high) in pairs.items()
        if one in jobs and other in jobs
    }
    return MeasuredTable(known), jobs
