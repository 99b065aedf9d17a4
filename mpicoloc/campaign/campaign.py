"""A campaign: each experiment is made once, its runs noted, and what is noted is not made again."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpicoloc.campaign import campaign_digest
from mpicoloc.campaign.campaign_file import Campaign, Experiment
from mpicoloc.campaign.pair_runner import Corun, Run, stop_left
from mpicoloc.core.features import kind_of
from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import text
from mpicoloc.errors import DataError, MpicolocError
from mpicoloc.profile import profiles
from mpicoloc.slowdown.corun import TimedRun
from mpicoloc.slowdown.features import program_name
from mpicoloc.sweep import row_log

RUNS = "runs.jsonl"
"""One line for each experiment that was made."""
PROFILES = "profiles"
COMPANY_FRAC = 0.01
"""Part of a run that a job of somebody else may be there at most."""


@dataclass(frozen=True)
class Done:
    """An experiment that was made, what its programs were then (`campaign_digest.digest`), and its runs.

    `took_s` is its time with all that begins and ends a run, s; None: not noted. `how` is `how_made`; earlier
    versions noted nothing of it.
    """

    experiment: Experiment
    digests: Mapping[str, str]
    runs: tuple[TimedRun, ...]
    took_s: float | None = None
    how: Mapping[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def alone_in(folder: str) -> Iterator[list[int] | None]:
    """Keep other campaigns out of a folder, which is made if there is none.

    Yields
    ------
    list of int or None
        Processes of a campaign that was killed here: they were still there, and have been ended. None: the
        file system knows no locks, so what runs may as well be of a campaign that is at work.

    Raises
    ------
    EnvironmentFault
        If another campaign is at work in it.
    """
    with row_log.only_one(folder, "campaign") as is_alone:
        yield stop_left(os.path.join(os.path.abspath(folder), PROFILES, "")) if is_alone else None


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
        if experiment.kind == "solo":
            # Earlier versions noted the first place for all of these.
            runs = tuple(dataclasses.replace(run, place=_solo_place(experiment)) for run in runs)
        digests = {str(k): str(v) for k, v in told["digests"].items()}
        took_s = told.get("took_s")
        how = {name: told[name] for name in ("places", "meter") if name in told}
        if "places" in how:
            first, second = how["places"]
            how["places"] = [[int(cpu) for cpu in place] for place in (first, second)]
        return Done(experiment, digests, runs, None if took_s is None else float(took_s), how)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}, line {i_line}, is no experiment ({error}): remove that line") from None


def how_made(campaign: Campaign, env: Mapping[str, str]) -> dict[str, Any]:
    """What times depend on beside the programs: processors of the places, and the meter of `env`."""
    return {"places": [list(place) for place in campaign.places], "meter": env.get("MPICOLOC_METER")}


def missing(
    campaign: Campaign, wanted: Iterable[Experiment], done: Iterable[Done], env: Mapping[str, str]
) -> list[Experiment]:
    """What is wanted and not done yet.

    Raises
    ------
    DataError
        If a program is not the one of which runs are noted, or they were made on other places or with
        another meter than that of `env`.
    """
    made, done, how = set(), list(done), how_made(campaign, env)
    noted = {name for each in done for name in each.digests}
    now = _digests(campaign, noted & campaign.programs.keys())
    for each in done:
        for name, before in each.how.items():
            if before != how[name]:
                raise DataError(
                    f"runs in this folder were made with {name} {before}, and not {how[name]}: "
                    "give another folder with --out"
                )
        for name, digest in each.digests.items():
            if what := name in now and campaign_digest.changes(digest, now[name], campaign.programs[name]):
                raise DataError(
                    f"program {name!r} was changed since it was run in this folder ({' and '.join(what)}): "
                    "give it another name, or another folder with --out"
                )
        made.add((each.experiment.i_round, tuple(sorted(each.experiment.names))))
    return [each for each in wanted if (each.i_round, tuple(sorted(each.names))) not in made]


def supposed(done: Iterable[Done]) -> list[str]:
    """Programs with runs of which an earlier version noted the command only, not which file it was."""
    return sorted(
        {
            name
            for each in done
            for name, digest in each.digests.items()
            if campaign_digest.is_of_command_only(digest)
        }
    )


def _digests(campaign: Campaign, names: Iterable[str]) -> dict[str, str]:
    """Of those whose files can be read: the others fail when their experiments are made, and no others."""
    found = {}
    for name in names:
        with contextlib.suppress(DataError):
            found[name] = campaign_digest.digest(campaign.programs[name])
    return found


def expected_s(experiments: Iterable[Experiment], done: Sequence[Done]) -> float | None:
    """How long experiments will take by those that are done, s; None where nothing tells.

    What was made in another round takes as long again. Other pairs take as long as the longer program alone,
    and so many times longer as pairs do on the average.
    """
    lasted: dict[tuple[str, ...], list[float]] = {}
    for each in done:
        lasted.setdefault(tuple(sorted(each.experiment.names)), []).append(_took_s(each))
    known = {names: sum(times) / len(times) for names, times in lasted.items() if times}
    if not known:
        return None
    pairs = {names: found for names, found in known.items() if len(names) > 1}
    factors = [found / alone for names, found in pairs.items() if (alone := _longer_s(names, known))]
    factor = sum(factors) / len(factors) if factors else 1.0
    mean_s = sum(known.values()) / len(known)
    total_s = 0.0
    for experiment in experiments:
        names = tuple(sorted(experiment.names))
        alone_s = _longer_s(names, known)
        total_s += known.get(names) or (alone_s * factor if alone_s else mean_s)
    return total_s


def kinds(folder: str, done: Iterable[Done]) -> dict[str, str]:
    """Program and size (`JobFeatures.kind`) of each program of a campaign, by profiles of runs alone."""
    result: dict[str, str] = {}
    for each in done:
        for run in each.runs if each.experiment.kind == "solo" else ():
            if run.is_whole and run.program not in result:
                with contextlib.suppress(MpicolocError):
                    job = profiles.read(os.path.join(folder, run.profile)).job
                    result[run.program] = kind_of(program_name(job.command), job.n_ranks)
    return result


def _took_s(done: Done) -> float:
    if done.took_s is not None:
        return done.took_s
    ends = [run.begin_unix_s + run.wall_s for run in done.runs]
    return max(ends, default=0.0) - min((run.begin_unix_s for run in done.runs), default=0.0)


def _longer_s(names: Sequence[str], known: Mapping[tuple[str, ...], float]) -> float | None:
    """Time alone of that of the programs which takes longer, as far as it is known."""
    return max((known[name,] for name in names if (name,) in known), default=None)


def make(
    campaign: Campaign,
    experiments: Sequence[Experiment],
    folder: str,
    env: Mapping[str, str],
    tell: Callable[[Experiment, Done | MpicolocError], None],
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
        Called with each experiment, and what was made or why there is nothing.

    Returns
    -------
    int
        How many failed.
    """
    os.makedirs(os.path.join(folder, PROFILES), exist_ok=True)
    digests = _digests(campaign, {name for each in experiments for name in each.names})
    n_failed = 0
    for each in experiments:
        begin_s = time.monotonic()
        try:
            _check_same(campaign, each.names, digests)
            runs = _one(campaign, each, folder, env)
            _check_same(campaign, each.names, digests)
        except MpicolocError as error:
            n_failed += 1
            tell(each, error)
            continue
        of_each = {name: digests[name] for name in each.names}
        took_s = round(time.monotonic() - begin_s, 3)
        done = Done(each, of_each, runs, took_s, how_made(campaign, env))
        _note(folder, done)
        tell(each, done)
    return n_failed


def _check_same(campaign: Campaign, names: Iterable[str], digests: dict[str, str]) -> None:
    """Whether programs are what they were when they were first looked at, which is noted in `digests`."""
    for name in names:
        program = campaign.programs[name]
        now = campaign_digest.digest(program)
        if what := campaign_digest.changes(digests.setdefault(name, now), now, program):
            raise DataError(f"program {name!r} was changed while the campaign ran ({' and '.join(what)})")


def _solo_place(experiment: Experiment) -> int:
    """A place may be better than the other one, so each is used in turn."""
    return experiment.i_round % 2


def _one(
    campaign: Campaign, experiment: Experiment, folder: str, env: Mapping[str, str]
) -> tuple[TimedRun, ...]:
    name = f"{experiment.kind}-{experiment.i_round}-{'+'.join(experiment.names)}"
    start = os.path.abspath(os.path.join(folder, PROFILES, name))
    places = dict(enumerate(campaign.places))
    if experiment.kind == "solo":
        places = {_solo_place(experiment): places[_solo_place(experiment)]}
    found = Corun([campaign.programs[name] for name in experiment.names], places, start, env).run()
    timed = [_timed(run, folder, [each.job_id for each in found]) for run in found]
    return tuple(run for run in timed if run is not None)


def _timed(run: Run, folder: str, own: Sequence[str]) -> TimedRun | None:
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
    stranger = _stranger(profile, own)
    if stranger is not None:
        raise DataError(
            f"{run.program}: job {stranger} ran on this node, too: let no other job run during a campaign"
        )
    return TimedRun(run.program, run.place, job.start_unix_s, job.wall_s, is_whole, where)


def _stranger(profile: Profile, own: Sequence[str]) -> str | None:
    """A job that is none of the experiment's and was there for more than a moment."""
    for row in profile.tables["corunners"]:
        name = text(row["job_id"])
        # The board has the beginning of a long name, and what a job starts has an end of its own.
        is_own = any(each.startswith(name) or name.startswith(each) for each in own)
        if not is_own and row["overlap_s"] > COMPANY_FRAC * profile.job.wall_s:
            return name
    return None


def _note(folder: str, done: Done) -> None:
    told: dict[str, Any] = {"round": done.experiment.i_round, "names": done.experiment.names}
    told |= {"digests": done.digests, "runs": [dataclasses.asdict(run) for run in done.runs]}
    told |= {"took_s": done.took_s, **done.how}
    row_log.append(os.path.join(folder, RUNS), told)
