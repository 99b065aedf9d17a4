"""A campaign: each experiment is made once, its runs noted, and what is noted is not made again."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn

from mpicoloc import messages
from mpicoloc.core.features import is_interpreter, kind_of, program_name
from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import text
from mpicoloc.errors import DataError, MpicolocError
from mpicoloc.job import row_log
from mpicoloc.pairing.campaign_file import Campaign, Experiment, Program
from mpicoloc.pairing.corun import TimedRun
from mpicoloc.pairing.pair_runner import Corun, Run, stop_left
from mpicoloc.profile import profiles

MAX_BYTES = 256 << 20
"""Files that are larger together are known by their sizes and times of change, not by their content."""
_PARTS = ("its command", "the file that it runs", "the files of its folder")


def digest(program: Program) -> str:
    """Digests of the command, of the files that it runs and of those of its folder, joined by dots.

    Shared libraries are not looked at, nor other files that the command names: a run may write them.

    Raises `DataError` if a file cannot be read.
    """
    try:
        return _digest(program)
    except OSError as error:
        raise DataError(
            f"program {program.name!r}: {error.filename} cannot be read: {error.strerror}"
        ) from None


def _digest(program: Program) -> str:
    told = [program.argv, program.n_ranks, program.folder, program.env, program.mpirun_args]
    folder = program.folder
    files = (
        [] if folder is None else [(os.path.relpath(path, folder), path) for path in sorted(_below(folder))]
    )
    parts = (_short(told), _content((path, path) for path in _run_by(program)), _content(files))
    return ".".join(parts)


def changes(noted: str, now: str, program: Program) -> list[str]:
    """In words: what differs between two digests. An earlier version noted the command's only."""
    which = ("", f": {', '.join(_run_by(program))}", f" {program.folder}")
    parts = zip(_PARTS, which, noted.split("."), now.split("."), strict=False)
    return [words + of for words, of, before, after in parts if before != after]


def is_of_command_only(noted: str) -> bool:
    """Whether an earlier version wrote it, which did not look at files."""
    return "." not in noted


def _short(told: object) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _run_by(program: Program) -> Iterator[str]:
    """The program's file, and others that its command runs, as a launcher's program and a script."""
    path = {**os.environ, **dict(program.env)}.get("PATH")
    first = shutil.which(program.argv[0], path=path)
    if first is not None:
        yield os.path.realpath(first)
    is_script = is_interpreter(program.argv[0])
    for word in program.argv[1:]:
        if os.path.isabs(word) and os.path.isfile(word) and (is_script or os.access(word, os.X_OK)):
            yield os.path.realpath(word)
        # Options of an interpreter come before its script.
        is_script = is_interpreter(word) or (is_script and word.startswith("-"))


def _below(folder: str) -> Iterator[str]:
    for base, _, names in os.walk(folder, followlinks=True):
        yield from (path for name in names if os.path.isfile(path := os.path.join(base, name)))


def _content(files: Iterable[tuple[str, str]]) -> str:
    """Of files by names and paths."""
    found = [(name, path, os.stat(path)) for name, path in files]
    is_small = sum(status.st_size for _, _, status in found) <= MAX_BYTES
    told: list[tuple[str, int, str | int]] = []
    for name, path, status in found:
        told.append((name, status.st_size, _sha(path) if is_small else status.st_mtime_ns))
    return _short(told)


def _sha(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        error.filename = path  # which one in reading does not tell
        raise


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

    Raises `EnvironmentFault` if another campaign is at work in it.
    """
    with row_log.only_one(folder, "campaign") as is_alone:
        yield stop_left(os.path.join(os.path.abspath(folder), PROFILES, "")) if is_alone else None


def read(folder: str) -> list[Done]:
    """The experiments noted in a campaign's folder, in the order they were made; none if there is no such.

    Raises `DataError` if a line is no experiment; the last one may be cut off, it is made again.
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

    Raises `DataError` if a program is not the one of which runs are noted, or they were made on other places
    or with another meter than that of `env`.
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
            if what := name in now and changes(digest, now[name], campaign.programs[name]):
                raise DataError(
                    f"program {name!r} was changed since it was run in this folder ({' and '.join(what)}): "
                    "give it another name, or another folder with --out"
                )
        made.add((each.experiment.i_round, tuple(sorted(each.experiment.names))))
    return [each for each in wanted if (each.i_round, tuple(sorted(each.names))) not in made]


def supposed(done: Iterable[Done]) -> list[str]:
    """Programs with runs of which an earlier version noted the command only, not which file it was."""
    return sorted(
        {name for each in done for name, digest in each.digests.items() if is_of_command_only(digest)}
    )


def _digests(campaign: Campaign, names: Iterable[str]) -> dict[str, str]:
    """Of those whose files can be read: the others fail when their experiments are made, and no others."""
    found = {}
    for name in names:
        with contextlib.suppress(DataError):
            found[name] = digest(campaign.programs[name])
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

    Result: how many failed.
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
        now = digest(program)
        if what := changes(digests.setdefault(name, now), now, program):
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


def complete(
    plan: Campaign, wanted: Sequence[Experiment], folder: str, env: Mapping[str, str]
) -> tuple[list[Done], int]:
    """Make what is missing of `wanted`."""
    with _ended_by_signals(), alone_in(folder) as ended:
        if ended is None:
            messages.trouble(
                f"the file system of {folder} has no file locks: make sure that no other campaign runs "
                "there; what a killed one left running is not ended"
            )
        elif ended:
            messages.trouble(
                f"a campaign was killed here; what it had left running was ended ({len(ended)} processes)"
            )
        done = read(folder)
        todo = missing(plan, wanted, done, env)
        progress = _Progress(todo, done)
        progress.begin(plan, len(wanted), supposed(done))
        n_failed = make(plan, todo, folder, env, progress.add)
        return read(folder), n_failed


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Signals that end this process end what it has started, too."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    # Whoever starts a command with nohup wants it to go on.
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Progress:
    """Reports how far a campaign has come."""

    def __init__(self, todo: Sequence[Experiment], done: Sequence[Done]) -> None:
        self.left, self.done = list(todo), list(done)

    def begin(self, plan: Campaign, n_wanted: int, supposed: Sequence[str]) -> None:
        """What is to be done."""
        places = " and ".join(",".join(map(str, place)) for place in plan.places)
        messages.note(
            f"{len(self.left)} of {n_wanted} experiments to make, on processors {places}{self._time()}"
        )
        if supposed:
            messages.note(
                f"runs of {', '.join(supposed)} were noted by an earlier version, which did not look at the "
                "programs' files: they are supposed to be the same ones"
            )

    def add(self, experiment: Experiment, found: Done | MpicolocError) -> None:
        """One experiment was made, or failed."""
        what = f"round {experiment.i_round}, {' + '.join(experiment.names)}"
        self.left.remove(experiment)
        if isinstance(found, MpicolocError):
            messages.trouble(f"{what}: {found}")
            return
        self.done.append(found)
        times = ", ".join(f"{run.program} {run.wall_s:.2f} s" for run in found.runs if run.is_whole)
        messages.note(f"{what}: {times}; {len(self.left)} left{self._time()}")

    def _time(self) -> str:
        left_s = expected_s(self.left, self.done) if self.left else None
        return "" if left_s is None else f", about {_about(left_s)}"


def _about(time_s: float) -> str:
    if time_s < 100:
        return f"{time_s:.0f} s"
    return f"{time_s / 60:.0f} min" if time_s < 6000 else f"{time_s / 3600:.1f} h"
