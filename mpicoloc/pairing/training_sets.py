"""Training sets from what lies on the disk: profiles of production, campaigns, and files of their own.

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
    ROW_COLUMNS,
    ROW_DTYPE,
    JobFeatures,
    Machine,
    Row,
    Run,
    TrainingSet,
    key_of,
    machine_from_values,
    merged,
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
    """Write a training set; errors as of `arrays_file.write`."""
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
    """Read a training set; errors as of `arrays_file.read`."""
    told, arrays = arrays_file.read(path, FORMAT, VERSION)
    try:
        values = arrays_file.cast(arrays["values"], "f8")
        if values.shape != (len(told["jobs"]), len(told["names"])):
            raise ValueError("features of other jobs")
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
            if column.name != "key" or "rows.key" in arrays:  # which files of earlier versions have not
                rows[column.name] = arrays_file.cast(arrays[f"rows.{column.name}"], column.type)
        # Files of earlier versions have no layout.
        return TrainingSet(jobs, rows, machine_from_values(told["machine"]), told.get("layout", ""))
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, DataError) as error:
        raise arrays_file.damaged(os.fspath(path), FORMAT, error) from error


def read_runs(paths: Sequence[str]) -> tuple[dict[str, Run], list[str]]:
    """The runs of many profiles, read on all cores."""
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
    """In a process of its own."""
    return run_as_json(run_of(hdf5.read(path, raw))) | {"owner": os.fstat(raw.fileno()).st_uid}


def from_production(
    runs: Sequence[Run], machine: str = "", layout: str = ""
) -> tuple[TrainingSet, Counter[str]]:
    """Slowdowns of runs beside other jobs.

    Raises `DataError` if they are of several machines or layouts and it is not told which is meant.
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
            f"{count['apart']} slowdowns of jobs on processors of their own and {count['same']} of jobs on "
            "the same ones: choose with --layout apart or --layout same, and fit a model for each"
        )
    return next(iter(count), "")


def from_campaign(folder: str) -> TrainingSet:
    """The training set of a campaign.

    Programs are those that the profiles name, as in production, so that both may be learnt from together;
    the campaign's names are the ids of the jobs.

    Raises `DataError` if there is none in the folder, or its profiles are gone.
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
    # The first experiment stays the first one when more rounds are made.
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
    return training_set(rows, _machine(_of_one_machine([*runs.values()], "")), _layout(done))


def _layout(done: Sequence[campaign.Done]) -> str:
    """Whether the places have processors in common."""
    first, second = map(set, done[0].how["places"])
    return "same" if first == second else "" if first & second else "apart"


def _of_one_machine(runs: Sequence[Run], wanted: str) -> list[Run]:
    """The runs of the machine whose name has `wanted` in it; those of an unknown one count."""
    kinds: list[Machine] = []
    for run in runs:
        if run.machine is not None and not any(run.machine.is_like(kind) for kind in kinds):
            kinds.append(run.machine)
    meant = [kind for kind in kinds if wanted.lower() in str(kind).lower()]
    if len(meant) > 1:
        names = "; ".join(map(str, meant))
        raise DataError(f"profiles of {len(meant)} machines: {names}; choose one with --machine WORDS")
    if wanted and not meant:
        raise DataError(
            f"no profile of a machine {wanted!r}; there are: {'; '.join(map(str, kinds)) or 'none'}"
        )
    return [run for run in runs if run.machine is None or any(run.machine.is_like(kind) for kind in meant)]


def _machine(runs: Iterable[Run]) -> Machine | None:
    return next((run.machine for run in runs if run.machine is not None), None)


def learn_from(
    training: Sequence[str], campaigns: Sequence[str], folders: Sequence[str], *, machine: str, layout: str
) -> TrainingSet:
    """All slowdowns of training files, campaigns and folders of profiles, each once."""
    sets = [read_file(path) for path in training]
    sets += [from_campaign(folder) for folder in campaigns]
    if folders:
        sets.append(_production(profile_paths(folders, campaigns), machine, layout))
    both = merged(sets)
    n_twice = sum(len(found.rows) for found in sets) - len(both.rows)
    if n_twice:
        messages.note(f"{n_twice} slowdowns were given more than once, and count once")
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
    """Profiles below the folders, without those of the campaigns, which have the same runs."""
    of_campaigns = tuple(os.path.join(os.path.realpath(folder), "") for folder in campaigns)
    found = dict.fromkeys(path for folder in folders for path in files_below(folder))
    return [path for path in found if not path.startswith(of_campaigns)]
