"""A campaign: each experiment is made once, its runs noted, and what is noted is not made again."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpicoloc.core.profile import Profile
from mpicoloc.errors import DataError, MpicolocError
from mpicoloc.model.corun import TimedRun
from mpicoloc.run.campaign_file import Campaign, Experiment
from mpicoloc.run.corun import Corun, Run
from mpicoloc.store import profiles

RUNS = "runs.jsonl"
"""One line for each experiment that was made."""
PROFILES = "profiles"


@dataclass(frozen=True)
class Done:
    """An experiment that was made, what its programs did then (`Program.digest`), and its runs."""

    experiment: Experiment
    digests: Mapping[str, str]
    runs: tuple[TimedRun, ...]


def read(folder: str) -> list[Done]:
    """The experiments noted in a campaign's folder, in the order they were made; none if there is no such.

    Raises
    ------
    DataError
        If a line is no experiment; the last one may be cut off, it is made again.
    """
    path = os.path.join(folder, RUNS)
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise DataError(f"{path} is no text: remove it to make all experiments again") from None
    return [_done(path, i, line) for i, line in enumerate(lines[:-1], 1)]


def _done(path: str, i_line: int, line: str) -> Done:
    try:
        told = json.loads(line)
        experiment = Experiment(int(told["round"]), tuple(map(str, told["names"])))
        runs = tuple(TimedRun(**run) for run in told["runs"])
        if any(not (run.wall_s > 0 and run.begin_unix_s > 0) for run in runs):
            raise ValueError("a time that is none")
        return Done(experiment, {str(k): str(v) for k, v in told["digests"].items()}, runs)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}, line {i_line}, is no experiment ({error}): remove that line") from None


def missing(campaign: Campaign, wanted: Iterable[Experiment], done: Iterable[Done]) -> list[Experiment]:
    """What is wanted and not done yet.

    Raises
    ------
    DataError
        If a program is not the one of which runs are noted.
    """
    made = set()
    for each in done:
        for name, digest in each.digests.items():
            program = campaign.programs.get(name)
            if program is not None and program.digest != digest:
                raise DataError(
                    f"program {name!r} was changed since it was run in this folder: "
                    "give it another name, or another folder with --out"
                )
        made.add((each.experiment.i_round, tuple(sorted(each.experiment.names))))
    return [each for each in wanted if (each.i_round, tuple(sorted(each.names))) not in made]


def make(
    campaign: Campaign,
    experiments: Sequence[Experiment],
    folder: str,
    env: Mapping[str, str],
    tell: Callable[[Experiment, Sequence[TimedRun] | MpicolocError], None],
) -> int:
    """Make experiments, note each, and go on when one fails.

    Parameters
    ----------
    campaign : Campaign
        The programs.
    experiments : sequence of Experiment
        Those to make, in this order.
    folder : str
        Where runs are noted and profiles lie.
    env : mapping of str to str
        Options of the jobs.
    tell : callable
        Called with each experiment, and its runs or why there are none.

    Returns
    -------
    int
        How many failed.
    """
    os.makedirs(os.path.join(folder, PROFILES), exist_ok=True)
    n_failed = 0
    for each in experiments:
        try:
            runs = _one(campaign, each, folder, env)
        except MpicolocError as error:
            n_failed += 1
            tell(each, error)
            continue
        _note(folder, Done(each, {name: campaign.programs[name].digest for name in each.names}, runs))
        tell(each, runs)
    return n_failed


def _one(
    campaign: Campaign, experiment: Experiment, folder: str, env: Mapping[str, str]
) -> tuple[TimedRun, ...]:
    name = f"{experiment.kind}-{experiment.i_round}-{'+'.join(experiment.names)}"
    start = os.path.abspath(os.path.join(folder, PROFILES, name))
    places: Sequence[Sequence[int]] = campaign.places
    if experiment.kind == "solo":
        places = campaign.places[experiment.i_round % 2 :]
    found = Corun([campaign.programs[name] for name in experiment.names], places, start, env).run()
    timed = [_timed(run, folder) for run in found]
    return tuple(run for run in timed if run is not None)


def _timed(run: Run, folder: str) -> TimedRun | None:
    """Times of a run by its profile; None of one that was ended before it had any."""
    try:
        profile: Profile = profiles.read(run.profile)
    except MpicolocError as error:
        if run.code is None:
            return None
        raise DataError(f"{run.program} left no profile ({error}): see `mpicoloc check`") from None
    job, where = profile.job, os.path.relpath(run.profile, folder)
    is_whole = run.code == 0 and not profile.partial
    if run.code == 0 and profile.partial:
        raise DataError(f"{run.program}: its profile {run.profile} is partial, so its time is not known")
    return TimedRun(run.program, run.place, job.start_unix_s, job.wall_s, is_whole, where)


def _note(folder: str, done: Done) -> None:
    told: dict[str, Any] = {"round": done.experiment.i_round, "names": done.experiment.names}
    told |= {"digests": done.digests, "runs": [dataclasses.asdict(run) for run in done.runs]}
    path = os.path.join(folder, RUNS)
    _drop_cut_line(path)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _drop_cut_line(path: str) -> None:
    """A line that a killed campaign did not write to its end would spoil the one that follows."""
    if not os.path.exists(path):
        return
    with open(path, "rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
