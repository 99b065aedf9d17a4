"""Training sets from what lies on the disk: profiles of production, and campaigns."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

from mpicoloc.core import run as core_run
from mpicoloc.core.machine import Machine
from mpicoloc.core.run import Run
from mpicoloc.core.training import Row, TrainingSet, key_of, training_set
from mpicoloc.errors import DataError, MpicolocError
from mpicoloc.pairing import campaign
from mpicoloc.pairing.corun import slowdowns
from mpicoloc.pairing.features import job_features, run_of
from mpicoloc.pairing.production import rows_of
from mpicoloc.profile import hdf5
from mpicoloc.profile.parallel import parallel_map


def read_runs(paths: Sequence[str]) -> tuple[dict[str, Run], list[str]]:
    """The runs of many profiles, read on all cores."""
    runs, troubles = {}, []
    for path, answer in parallel_map(paths, _read):
        try:
            if isinstance(answer, MpicolocError):
                raise answer
            runs[path] = core_run.from_json(answer)
        except (MpicolocError, TypeError, KeyError, ValueError) as error:
            troubles.append(str(error))
    return {path: runs[path] for path in paths if path in runs}, troubles


def _read(path: str, raw: BinaryIO) -> dict[str, Any]:
    """In a process of its own."""
    told = core_run.as_json(run_of(hdf5.read(path, raw)))
    return told | {"owner": os.fstat(raw.fileno()).st_uid}


def from_production(
    runs: Sequence[Run], machine: str = "", layout: str = ""
) -> tuple[TrainingSet, Counter[str]]:
    """Slowdowns of runs that met one other job.

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
    """What a campaign measured.

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


def _layout(done: Iterable[campaign.Done]) -> str:
    """Whether the places have processors in common; earlier versions did not note them."""
    for places in (made.how["places"] for made in done if "places" in made.how):
        first, second = map(set, places)
        return "same" if first == second else "" if first & second else "apart"
    return ""


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
