"""Training sets from production profiles, from campaigns, and in files.

A file has jobs, their features (NaN: not measured), and the rows of slowdowns: `numpy.load(path)` gives
``names`` (n_features,), ``values`` (n_jobs, n_features), and the columns of `core.slowdown.ROW_COLUMNS` as
``rows.target``, ``rows.co_runner``, ``rows.slowdown``, ...
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np

from mpicoloc import messages
from mpicoloc.core.slowdown import (
    CORES,
    ROW_COLUMNS,
    ROW_DTYPE,
    TURNS,
    JobFeatures,
    Machine,
    Row,
    Run,
    TrainingSet,
    check_layout,
    key_of,
    machine_from_values,
    merged,
    read_layout,
    run_as_json,
    run_from_json,
    training_set,
)
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, MpicolocError
from mpicoloc.pairing import arrays_file, campaign
from mpicoloc.pairing.corun import slowdowns
from mpicoloc.pairing.features import job_features, run_of
from mpicoloc.pairing.production import rows_of
from mpicoloc.profile import hdf5
from mpicoloc.profile.history import files_below
from mpicoloc.profile.profiles import parallel_map

FORMAT = "mpicoloc training set"
VERSION = 1


def write_file(training: TrainingSet, path: str | os.PathLike[str]) -> None:
    """Write a training set. Raises the errors of `arrays_file.write`."""
    names = sorted({name for job in training.jobs for name in job.values})
    values = [[job.values.get(name, np.nan) for name in names] for job in training.jobs]
    told = {
        "machine": None if training.machine is None else asdict(training.machine),
        "layout": training.layout,
        "names": names,
        "jobs": [[job.id, job.program, job.runtime_s, job.n_cores, job.n_ranks] for job in training.jobs],
    }
    arrays = {
        "values": np.array(values, float).reshape(len(training.jobs), len(names)),
        "names": np.array([name.encode() for name in names], "S"),
        **{f"rows.{column.name}": training.rows[column.name] for column in ROW_COLUMNS},
    }
    arrays_file.write(path, FORMAT, VERSION, told, arrays)


def read_file(path: str | os.PathLike[str]) -> TrainingSet:
    """Read a training set. Raises the errors of `arrays_file.read`."""
    told, arrays = arrays_file.read(path, FORMAT, VERSION)
    try:
        values = arrays_file.cast(arrays["values"], "f8")
        if values.shape != (len(told["jobs"]), len(told["names"])):
            raise ValueError("the features do not match the lists of jobs and names")
        jobs = tuple(
            JobFeatures(
                str(name),
                str(program),
                float(runtime_s),
                int(n_cores),
                int(n_ranks),
                {
                    str(key): value
                    for key, value in zip(told["names"], row, strict=True)
                    if not np.isnan(value)
                },
            )
            for (name, program, runtime_s, n_cores, n_ranks), row in zip(
                told["jobs"], values.tolist(), strict=True
            )
        )
        rows = np.zeros(arrays["rows.target"].shape, ROW_DTYPE)
        for column in ROW_COLUMNS:
            if column.name != "key" or "rows.key" in arrays:  # files of earlier versions lack it
                rows[column.name] = arrays_file.cast(arrays[f"rows.{column.name}"], column.type)
        # Files that earlier versions wrote have no layout.
        layout = read_layout(str(told.get("layout", "")))
        return TrainingSet(jobs, rows, machine_from_values(told["machine"]), layout)
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, DataError) as error:
        raise arrays_file.damaged(os.fspath(path), FORMAT, error) from error


def read_runs(paths: Sequence[str]) -> tuple[dict[str, Run], list[str]]:
    """Read the runs of many profiles on all cores. Returns runs by path, and error messages."""
    runs, troubles = {}, []
    for path, answer in parallel_map(paths, _read):
        try:
            if isinstance(answer, MpicolocError):
                raise answer
            runs[path] = run_from_json(answer)
        except (MpicolocError, TypeError, KeyError, ValueError) as error:
            troubles.append(str(error))
    return {path: runs[path] for path in paths if path in runs}, troubles


def _read(path: str, raw: BinaryIO) -> dict[str, Any]:
    """Read one profile as JSON values. Runs in a child process."""
    return run_as_json(run_of(hdf5.read(path, raw))) | {"owner": os.fstat(raw.fileno()).st_uid}


def from_production(
    runs: Sequence[Run], machine: str = "", layout: str = ""
) -> tuple[TrainingSet, Counter[str]]:
    """Training set from runs beside other jobs, and the number of unused runs by reason.

    Raises `DataError` if the runs have several machines or layouts and the caller does not choose one.
    """
    known = _of_one_machine(runs, machine)
    found, others = rows_of(known)
    if len(known) < len(runs):
        others["of another machine"] = len(runs) - len(known)
    layout = layout or _only_layout(found)
    rows = [row for row in found if row.layout in ("", layout)]
    if len(rows) < len(found):
        others["of another layout"] = len(found) - len(rows)
    return training_set(rows, _machine(known), layout), others


def _only_layout(rows: Iterable[Row]) -> str:
    count = Counter(row.layout for row in rows if row.layout)
    if len(count) > 1:
        raise DataError(
            f"{count[CORES]} slowdowns of jobs on separate processors and {count[TURNS]} of jobs on the same "
            "processors: choose one kind with --layout cores or --layout turns; each needs its own model"
        )
    return next(iter(count), "")


def from_campaign(folder: str) -> TrainingSet:
    """The training set of a campaign.

    Programs have the names from the profiles, as in production, so that both sources can be combined. The
    campaign's names become the ids of the jobs.

    Raises `DataError` if the folder has no campaign, or if its profiles are missing.
    """
    done = campaign.read(folder)
    if not done:
        raise DataError(f"no campaign in {folder}; make one with `mpicoloc campaign FILE --out {folder}`")
    alone = [run for made in done if len(made.experiment.names) == 1 for run in made.runs if run.is_whole]
    programs = {os.path.join(folder, run.profile): run.program for run in alone if run.profile}
    runs, troubles = read_runs(sorted(programs))
    if troubles:
        raise DataError(f"{folder}: {troubles[0]}")
    by_program = defaultdict(list)
    for path, run in runs.items():
        by_program[programs[path]].append(run)
    jobs = {name: job_features(same, name) for name, same in by_program.items()}
    # The start of the first experiment identifies the campaign: later rounds do not change it.
    first_unix_s = min((run.begin_unix_s for made in done for run in made.runs), default=0.0)
    rows = [
        Row(
            jobs[found.target],
            jobs[found.co_runner],
            found.slowdown,
            "campaign",
            key_of("campaign", first_unix_s, found.target, found.co_runner),
        )
        for found in slowdowns([made.runs for made in done])
        if found.target in jobs and found.co_runner in jobs
    ]
    return training_set(rows, _machine(_of_one_machine([*runs.values()], "")), campaign.layout(done))


def _of_one_machine(runs: Sequence[Run], wanted: str) -> list[Run]:
    """The runs on the machine whose name contains `wanted`, and runs on an unknown machine."""
    kinds: list[Machine] = []
    for run in runs:
        if run.machine is not None and not any(run.machine.is_like(kind) for kind in kinds):
            kinds.append(run.machine)
    meant = [kind for kind in kinds if wanted.lower() in str(kind).lower()]
    if len(meant) > 1:
        names = "; ".join(map(str, meant))
        raise DataError(
            f"the profiles are of {len(meant)} machines ({names}): choose one with --machine WORDS"
        )
    if wanted and not meant:
        raise DataError(
            f"no profile of a machine {wanted!r}; the machines are: {'; '.join(map(str, kinds)) or 'none'}"
        )
    return [run for run in runs if run.machine is None or any(run.machine.is_like(kind) for kind in meant)]


def _machine(runs: Iterable[Run]) -> Machine | None:
    return next((run.machine for run in runs if run.machine is not None), None)


def learn_from(
    training: Sequence[str], campaigns: Sequence[str], folders: Sequence[str], *, machine: str, layout: str
) -> TrainingSet:
    """All slowdowns from training files, campaigns and folders of profiles, without duplicates."""
    sets = [read_file(path) for path in training]
    sets += [from_campaign(folder) for folder in campaigns]
    for found, source in zip(sets, (*training, *campaigns), strict=True):
        check_layout(layout, found.layout, source, "leave out --layout")
    if folders:
        sets.append(_production(profile_paths(folders, campaigns), machine, layout))
    both = merged(sets)
    n_twice = sum(len(found.rows) for found in sets) - len(both.rows)
    if n_twice:
        messages.note(f"{n_twice} slowdowns were given more than once, but count only once")
    return both


def _production(paths: Sequence[str], machine: str, layout: str) -> TrainingSet:
    runs, troubles = read_runs(paths)
    for words in troubles:
        messages.trouble(words)
    found, others = from_production([*runs.values()], machine, layout)
    reasons = "".join(f", {n} {reason}" for reason, n in sorted(others.items()))
    messages.note(
        f"{counted(len(runs), 'profile')}: {counted(len(found.rows), 'slowdown')} beside one other job"
        + reasons
    )
    return found


def profile_paths(folders: Sequence[str], campaigns: Sequence[str]) -> list[str]:
    """Profiles below the folders, except those of the campaigns, whose runs are read separately."""
    of_campaigns = tuple(os.path.join(os.path.realpath(folder), "") for folder in campaigns)
    found = dict.fromkeys(path for folder in folders for path in files_below(folder))
    return [path for path in found if not path.startswith(of_campaigns)]
