"""Measurement campaigns: the file that names the programs, the order of the experiments, and their runs.

Finished experiments are recorded in the campaign's folder and are not repeated.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from mpicoloc import messages
from mpicoloc.core.profile import Profile, text
from mpicoloc.core.slowdown import CORES, TURNS, is_interpreter, kind_of, program_name
from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, UsageError
from mpicoloc.job import init_barrier, launcher, sweep, target
from mpicoloc.pairing.corun import Slowdown, TimedRun, slowdowns
from mpicoloc.profile import profiles as profile_profiles

LIMIT_S = 3600.0
"""Default time limit of a run, s."""
MAX_PROGRAMS = 1000
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
"""File that lists the hardware threads of a processor's core."""


@dataclass(frozen=True)
class Program:
    """One program of a campaign.

    `argv` is the application if `n_ranks` is given, else a command that starts the whole job with mpicoloc.
    The files of `folder` are copied into the working directory of each run.
    """

    name: str
    argv: tuple[str, ...]
    n_ranks: int | None = None
    folder: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    mpirun_args: tuple[str, ...] = ()
    limit_s: float = LIMIT_S


@dataclass(frozen=True)
class Campaign:
    """Programs by name, number of rounds, and the processors of the two places."""

    programs: Mapping[str, Program]
    rounds: int
    places: tuple[tuple[int, ...], tuple[int, ...]]


_SHORT_S, _GOOD_S = 5.0, 30.0
"""Times of runs alone, s. A program that takes less than the first time is too short; the second time is long
enough."""


@dataclass(frozen=True, order=True)
class Experiment:
    """A run of one program alone, or of two at the same time, of which the first is on the first place."""

    i_round: int
    names: tuple[str, ...] = field(default=())

    @property
    def kind(self) -> str:
        """``solo`` or ``pair``."""
        return "solo" if len(self.names) == 1 else "pair"


def read_file(path: str) -> Campaign:
    """The campaign that a TOML file describes.

    Raises `UsageError` if the file cannot be read. Raises `DataError` if the file is not TOML, or has an
    invalid key or value.
    """
    try:
        with open(path, "rb") as file:
            told = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not TOML: {error}") from None
    known = {"rounds", "places", "programs"}
    if unknown := sorted(set(told) - known):
        raise DataError(f"{path}: unknown key {unknown[0]!r}; the keys are {', '.join(sorted(known))}")
    tables = told.get("programs")
    if not isinstance(tables, dict) or not 0 < len(tables) <= MAX_PROGRAMS:
        raise DataError(f"{path}: needs 1 to {MAX_PROGRAMS} tables [programs.NAME]")
    base = os.path.dirname(os.path.abspath(path))
    programs = {name: _program(path, base, name, table) for name, table in tables.items()}
    rounds = _checked(path, "rounds", told.get("rounds", 4), int)
    if rounds < 2:
        raise DataError(f"{path}: rounds must be at least 2, so that the variation of run times is known")
    return Campaign(programs, rounds, _places(path, told.get("places")))


def _checked(path: str, what: str, value: object, kind: type, of: type | None = None) -> Any:
    is_right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    if is_right and of is not None:
        items = value.values() if isinstance(value, dict) else value
        is_right = all(isinstance(item, of) for item in items)  # type: ignore[attr-defined]
    if not is_right:
        wanted = {int: "a whole number", str: "a string", list: "a list", dict: "a table", float: "a number"}
        inner = f" of {of.__name__}" if of else ""
        raise DataError(f"{path}: {what} must be {wanted[kind]}{inner}, got {value!r}")
    return value


def _program(path: str, base: str, name: str, table: object) -> Program:
    told = dict(_checked(path, f"programs.{name}", table, dict))
    what = f"programs.{name}"
    if not name or "/" in name or name.startswith("."):
        raise DataError(
            f"{path}: {what}: the name becomes part of file names: it must not contain / or begin with a dot"
        )
    command = told.pop("command", None)
    argv = shlex.split(command) if isinstance(command, str) else command
    if not argv or not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        raise DataError(f"{path}: {what}.command must be a string or a list of strings, got {command!r}")
    if "/" in argv[0]:
        argv[0] = os.path.normpath(os.path.join(base, argv[0]))
    n_ranks = told.pop("n_ranks", None)
    if n_ranks is not None and _checked(path, f"{what}.n_ranks", n_ranks, int) < 1:
        raise DataError(f"{path}: {what}.n_ranks must be at least 1, got {n_ranks}")
    folder = told.pop("folder", None)
    if folder is not None:
        folder = os.path.join(base, _checked(path, f"{what}.folder", folder, str))
        if not os.path.isdir(folder):
            raise DataError(
                f"{path}: {what}.folder: there is no folder {folder}: create it, or correct the path"
            )
    env = _checked(path, f"{what}.env", told.pop("env", {}), dict, str)
    args = _checked(path, f"{what}.mpirun_args", told.pop("mpirun_args", []), list, str)
    limit_s = float(_checked(path, f"{what}.limit_s", told.pop("limit_s", int(LIMIT_S)), int))
    if told:
        raise DataError(f"{path}: {what} has an unknown key {min(told)!r}")
    return Program(name, tuple(argv), n_ranks, folder, tuple(sorted(env.items())), tuple(args), limit_s)


def _places(path: str, told: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    usable = sorted(os.sched_getaffinity(0))
    if told is None:
        return halves(usable)
    lists = _checked(path, "places", told, list, list)
    if len(lists) != 2 or not all(lists):
        raise DataError(f"{path}: places must be two lists of processors, got {told!r}")
    for cpu in itertools.chain(*lists):
        if _checked(path, "places", cpu, int) not in usable:
            raise DataError(
                f"{path}: places: processor {cpu} is not among the processors of this process, {usable}"
            )
    return tuple(lists[0]), tuple(lists[1])


def halves(cpus: Sequence[int], siblings: str = SIBLINGS) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split processors into two places without a common core, or without a common hardware thread if there is
    only one core. A single processor becomes both places.
    """
    cores: dict[object, list[int]] = {}
    for cpu in cpus:
        key: object = cpu
        with contextlib.suppress(OSError), open(siblings.format(cpu), encoding="ascii") as file:
            key = file.read()
        cores.setdefault(key, []).append(cpu)
    parts = list(cores.values()) if len(cores) > 1 else [[cpu] for cpu in cpus]
    half = (len(parts) + 1) // 2
    first, second = (tuple(sorted(itertools.chain(*some))) for some in (parts[:half], parts[half:]))
    return first, second or first


def experiments(
    campaign: Campaign, names: Sequence[str], n_pairs: int | None, rng: np.random.Generator
) -> list[Experiment]:
    """All experiments of a campaign, round after round, in random order within each round.

    The order is random, so that drift (a machine warms up, or others use it) is not mistaken for the effect
    of a program. One experiment gives both slowdowns of a pair (Zacarias et al. 2021, section 3.2, runs one
    experiment for each slowdown).

    Raises `UsageError` if a name is unknown.
    """
    for name in names:
        if name not in campaign.programs:
            raise UsageError(
                f"no program {name!r} in the campaign; its programs are {', '.join(campaign.programs)}"
            )
    pairs = list(itertools.combinations_with_replacement(names, 2))
    if n_pairs is not None and n_pairs < len(pairs):
        pairs = [pairs[i] for i in sorted(rng.choice(len(pairs), n_pairs, replace=False))]
    result = []
    for i_round in range(campaign.rounds):
        wanted: list[tuple[str, ...]] = [(name,) for name in names]
        # Swap the places every other round, because one place may be faster.
        wanted += [pair if i_round % 2 == 0 else pair[::-1] for pair in pairs]
        result += [Experiment(i_round, wanted[i]) for i in rng.permutation(len(wanted))]
    return result


LOOK_EVERY_S = 0.02
END_WITHIN_S = 60.0
"""Longest wait for a job's keeper to end, s. The keeper outlives the job, and would disturb the next run."""
KINDLY_S = 15.0
_LAST_LINES = 3
_ID_ENV, _OUT_ENV = "MPICOLOC_JOB_ID", "MPICOLOC_OUT"
_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


@dataclass
class Run:
    """One run of a program: its process, the path of its profile, and its unique job id."""

    program: str
    place: int
    profile: str
    job_id: str
    folder: str
    process: subprocess.Popen[bytes] = field(repr=False)
    limit_s: float = field(repr=False)
    """Time on the monotonic clock at which the run is stopped, s."""
    code: int | None = None

    @property
    def output(self) -> str:
        """File with the run's standard output and error."""
        return os.path.join(self.folder, ".output")


def command(program: Program) -> list[str]:
    """Command line that starts a program."""
    if program.n_ranks is None:
        return list(program.argv)
    start = [sys.executable, "-m", "mpicoloc", "run", "-n", str(program.n_ranks)]
    return [*start, *(f"--mpirun-arg={word}" for word in _mpirun_args(program)), "--", *program.argv]


def _mpirun_args(program: Program) -> Sequence[str]:
    """Arguments of mpirun. By default they turn off Open MPI's binding, which may ignore the place."""
    if program.mpirun_args:
        return program.mpirun_args
    found = target.find(list(program.argv), dict(os.environ), None)
    family = launcher.find(found.abi, found.libmpi, found.file).family
    return ("--oversubscribe", "--bind-to", "none") if family == "openmpi" else ()


class Corun:
    """Runs programs at the same time, each on its own place.

    Parameters
    ----------
    programs : sequence of Program
        One or two.
    places : mapping of int to sequence of int
        Number and processors of each program's place, in the order of the programs.
    profiles : str
        Common prefix of the profiles' paths.
    env : mapping of str to str
        Environment variables of the jobs, in addition to those of this process.

    Raises
    ------
    EnvironmentFault
        If no mpirun is found for a program.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        places: Mapping[int, Sequence[int]],
        profiles: str,
        env: Mapping[str, str],
    ) -> None:
        self.programs, self.profiles, self.env = programs, profiles, env
        self.places = list(places.items())
        self.commands = [command(program) for program in programs]
        self.runs: list[Run] = []

    def run(self) -> list[Run]:
        """Run until each program has ended once. Returns all runs, including runs that were stopped then.

        Raises `DataError` if a program fails or exceeds its time limit.
        """
        with tempfile.TemporaryDirectory(prefix="mpicoloc-campaign-", ignore_cleanup_errors=True) as scratch:
            try:
                now = [self._launch(i, scratch) for i in range(len(self.programs))]
                ended: set[int] = set()
                while len(ended) < len(now):
                    time.sleep(LOOK_EVERY_S)
                    for i, run in enumerate(now):
                        if run.code is None and self._has_ended(run):
                            ended.add(i)
                            if len(ended) < len(now):
                                now[i] = self._launch(i, scratch)
                        self._check_time(i, run)
            finally:
                for run in self.runs:
                    stop(run)
        return self.runs

    def _check_time(self, i: int, run: Run) -> None:
        if run.code is None and time.monotonic() > run.limit_s:
            others = [program.name for j, program in enumerate(self.programs) if j != i]
            beside = f" beside {others[0]}" if others else ""
            limit_s = self.programs[i].limit_s
            raise DataError(
                f"{run.program}{beside} was ended because it ran for longer than its limit_s, {limit_s:g} s"
            )

    def _launch(self, i: int, scratch: str) -> Run:
        program, number = self.programs[i], len(self.runs)
        folder = os.path.join(scratch, str(number))
        if program.folder is None:
            os.mkdir(folder)
        else:
            _copy(program.folder, folder)
        job_id = f"{program.name}-{os.getpid()}-{time.monotonic_ns() // 1000}"
        profile = f"{self.profiles}-{number}-{program.name}.h5"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(profile)  # left by an interrupted attempt
        env = {**os.environ, **self.env, **dict(program.env), _ID_ENV: job_id, _OUT_ENV: profile}
        place, cpus = self.places[i]
        with open(os.path.join(folder, ".output"), "wb") as log:
            try:
                process = subprocess.Popen(
                    self.commands[i], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                    preexec_fn=lambda: _begin_on(cpus),
                )  # fmt: skip
            except OSError as error:
                raise EnvironmentFault(f"{self.commands[i][0]} cannot be started: {error.strerror}") from None
        limit_s = time.monotonic() + program.limit_s
        self.runs.append(Run(program.name, place, profile, job_id, folder, process, limit_s))
        return self.runs[-1]

    def _has_ended(self, run: Run) -> bool:
        run.code = run.process.poll()
        if run.code is None:
            return False
        if run.code != 0:
            with open(run.output, encoding="utf-8", errors="replace") as file:
                last = " / ".join(line.strip() for line in file.readlines()[-_LAST_LINES:])
            raise DataError(f"{run.program} ended with exit code {run.code}: {last}")
        return True


def _copy(folder: str, to: str) -> None:
    try:
        shutil.copytree(folder, to)
    except OSError as error:
        # shutil.Error lists an error for each file: report the first.
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        raise DataError(f"{folder} cannot be copied into a working directory: {why}") from None


def _begin_on(cpus: Sequence[int]) -> None:
    """Set the processors of this child process, and have it terminated when its parent is killed."""
    os.sched_setaffinity(0, cpus)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop(run: Run) -> None:
    """End a run, by SIGTERM first, and wait for all processes that it started.

    Raises `EnvironmentFault` if a process cannot be ended.
    """
    was_running = run.process.poll() is None
    if was_running:
        run.process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.process.wait(KINDLY_S)
    if was_running:
        _terminate(pid for pid in _processes(_ID_ENV, run.job_id) if _is_in_session(pid, run.process.pid))
    # If the run has ended by itself, only the process that writes its profile may still run: give it time.
    patience_s = 0.0 if run.process.poll() is None else END_WITHIN_S
    _end(lambda: _processes(_ID_ENV, run.job_id), patience_s, run.job_id)
    run.process.wait()


def stop_left(profiles: str) -> list[int]:
    """End runs that a killed campaign left.

    The runs are found by the prefix `profiles` of their profiles' paths. Returns their processes. Raises
    `EnvironmentFault` if a process cannot be ended.
    """

    def left() -> list[int]:
        return [pid for pid in _processes(_OUT_ENV, profiles, is_start=True) if pid != os.getpid()]

    found = left()
    _terminate(found)
    _end(left, KINDLY_S, "a campaign that was killed")
    return found


def _is_in_session(pid: int, session: int) -> bool:
    """Whether a process is in the session, as those that a shell left behind are, but a keeper is not."""
    try:
        return os.getsid(pid) == session
    except ProcessLookupError:
        return False


def _terminate(pids: Iterable[int], number: int = signal.SIGTERM) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _end(find: Callable[[], list[int]], patience_s: float, of: str) -> None:
    """Wait until the processes that `find` returns have ended. Kill them after `patience_s`."""
    begin_s = time.monotonic()
    while left := find():
        if time.monotonic() > begin_s + patience_s + END_WITHIN_S:
            raise EnvironmentFault(f"processes of {of} cannot be ended: {', '.join(map(str, left))}")
        if time.monotonic() > begin_s + patience_s:
            _terminate(left, signal.SIGKILL)
        time.sleep(LOOK_EVERY_S)


def _processes(name: str, value: str, *, is_start: bool = False) -> list[int]:
    """Processes with this variable in their environment, even if they left the process tree."""
    entry = f"{name}={value}".encode()
    return [
        int(pid)
        for pid in filter(str.isdigit, os.listdir("/proc"))
        if any(
            found.startswith(entry) if is_start else found == entry
            for found in init_barrier.entries(pid, "environ")
        )
    ]


MAX_BYTES = 256 << 20
"""If files together are larger, they are identified by size and modification time, not by content."""
_PARTS = ("its command", "the file that it runs", "the files of its folder")


def digest(program: Program) -> str:
    """Digests of the command, of the files that it runs and of the files in its folder, joined by dots.

    Shared libraries are not included. Other files that the command names are not included either, because a
    run may write to them.

    Raises `DataError` if a file cannot be read.
    """
    told = [program.argv, program.n_ranks, program.folder, program.env, program.mpirun_args]
    folder = program.folder
    try:
        files = [] if folder is None else [(os.path.relpath(path, folder), path) for path in _below(folder)]
        parts = (_short(told), _content((path, path) for path in _run_by(program)), _content(sorted(files)))
    except OSError as error:
        raise DataError(
            f"program {program.name!r}: {error.filename} cannot be read: {error.strerror}"
        ) from None
    return ".".join(parts)


def changes(noted: str, now: str, program: Program) -> list[str]:
    """Descriptions of the parts that differ between two digests."""
    which = ("", f": {', '.join(_run_by(program))}", f" {program.folder}")
    parts = zip(_PARTS, which, noted.split("."), now.split("."), strict=False)
    return [words + of for words, of, before, after in parts if before != after]


def _short(told: object) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _run_by(program: Program) -> Iterator[str]:
    """The program's file, and other files that its command runs, such as a launcher's program or a script."""
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
    """Digest of files, given by name and path."""
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
        error.filename = path  # errors while reading do not name the file
        raise


RUNS = "runs.jsonl"
"""File with one line for each finished experiment."""
PROFILES = "profiles"
COMPANY_FRAC = 0.01
"""Largest part of a run during which another user's job may be on the node."""


@dataclass(frozen=True)
class Done:
    """A finished experiment, the digests of its programs at the time, and its runs.

    `took_s` is the experiment's duration, including start-up and shutdown of the runs, s. `how` comes from
    `how_made`.
    """

    experiment: Experiment
    digests: Mapping[str, str]
    runs: tuple[TimedRun, ...]
    took_s: float
    how: Mapping[str, Any]


@contextlib.contextmanager
def alone_in(folder: str) -> Iterator[list[int] | None]:
    """Lock a campaign's folder, creating it if needed, and end runs that a killed campaign left.

    Yields the processes that were ended, or None if the file system has no locks. Raises `EnvironmentFault`
    if another campaign uses the folder.
    """
    with sweep.only_one(folder, "campaign") as is_alone:
        yield stop_left(os.path.join(os.path.abspath(folder), PROFILES, "")) if is_alone else None


def read(folder: str) -> list[Done]:
    """The experiments recorded in a campaign's folder, in order; none if there is no record.

    Raises `DataError` if a line is not an experiment. A last line that was cut off is ignored, so that its
    experiment is repeated.
    """
    path = os.path.join(folder, RUNS)
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise DataError(f"{path} is not text: remove it to repeat all experiments") from None
    return [_done(path, i, line) for i, line in enumerate(lines[:-1], 1)]


def _done(path: str, i_line: int, line: str) -> Done:
    try:
        told = json.loads(line)
        experiment = Experiment(int(told["round"]), tuple(map(str, told["names"])))
        runs = tuple(TimedRun(**run) for run in told["runs"])
        if any(not (run.wall_s > 0 and run.begin_unix_s > 0) for run in runs):
            raise ValueError("a time is not above 0")
        digests = {str(k): str(v) for k, v in told["digests"].items()}
        first, second = told["places"]
        places = [[int(cpu) for cpu in place] for place in (first, second)]
        return Done(
            experiment, digests, runs, float(told["took_s"]), {"places": places, "meter": told["meter"]}
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}, line {i_line}, is not an experiment ({error}): remove that line") from None


def how_made(campaign: Campaign, env: Mapping[str, str]) -> dict[str, Any]:
    """Conditions that affect times, other than the programs: the processors of the places, and the meter."""
    return {"places": [list(place) for place in campaign.places], "meter": env.get("MPICOLOC_METER")}


def layout(done: Sequence[Done]) -> str:
    """Layout of the places: same or separate processors; empty if these overlap in part, or nothing ran."""
    if not done:
        return ""
    first, second = map(set, done[0].how["places"])
    return TURNS if first == second else "" if first & second else CORES


def missing(
    campaign: Campaign, wanted: Iterable[Experiment], done: Iterable[Done], env: Mapping[str, str]
) -> list[Experiment]:
    """The experiments in `wanted` that are not finished.

    Raises `DataError` if a program has changed since its recorded runs, or if these runs used other places
    than `campaign`, or another meter than `env` sets.
    """
    made, done, how = set(), list(done), how_made(campaign, env)
    noted = {name for each in done for name in each.digests}
    now = _digests(campaign, noted & campaign.programs.keys())
    for each in done:
        for name, before in each.how.items():
            if before != how[name]:
                raise DataError(
                    f"earlier runs in this folder were made with {name} {before}, not {how[name]}: "
                    "give another folder with --out"
                )
        for name, digest in each.digests.items():
            if what := name in now and changes(digest, now[name], campaign.programs[name]):
                raise DataError(
                    f"program {name!r} has changed since its runs in this folder ({' and '.join(what)}): "
                    "give it another name, or another folder with --out"
                )
        made.add((each.experiment.i_round, tuple(sorted(each.experiment.names))))
    return [each for each in wanted if (each.i_round, tuple(sorted(each.names))) not in made]


def _digests(campaign: Campaign, names: Iterable[str]) -> dict[str, str]:
    """Digests by program. A program whose files cannot be read is left out: only its experiments fail."""
    found = {}
    for name in names:
        with contextlib.suppress(DataError):
            found[name] = digest(campaign.programs[name])
    return found


def expected_s(experiments: Iterable[Experiment], done: Sequence[Done]) -> float | None:
    """Expected duration of experiments, s, from the finished ones; None if there are none.

    An experiment is expected to take as long as in other rounds. A pair without other rounds is expected to
    take as long as its longer program alone, times the mean ratio of all finished pairs.
    """
    lasted: dict[tuple[str, ...], list[float]] = {}
    for each in done:
        lasted.setdefault(tuple(sorted(each.experiment.names)), []).append(each.took_s)
    known = {names: sum(times) / len(times) for names, times in lasted.items()}
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
    """Program and size (`JobFeatures.kind`) of each program of a campaign, from profiles of runs alone."""
    result: dict[str, str] = {}
    for each in done:
        for run in each.runs if each.experiment.kind == "solo" else ():
            if run.is_whole and run.program not in result:
                with contextlib.suppress(MpicolocError):
                    job = profile_profiles.read(os.path.join(folder, run.profile)).job
                    result[run.program] = kind_of(program_name(job.command), job.n_ranks)
    return result


def _longer_s(names: Sequence[str], known: Mapping[tuple[str, ...], float]) -> float | None:
    """Time alone of the longest of these programs, s; None if no time is known."""
    return max((known[name,] for name in names if (name,) in known), default=None)


def make(
    campaign: Campaign,
    experiments: Sequence[Experiment],
    folder: str,
    env: Mapping[str, str],
    tell: Callable[[Experiment, Done | MpicolocError], None],
) -> int:
    """Run experiments and record each. Continues when one fails.

    Result: number of failures.
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
        done = Done(each, of_each, runs, round(time.monotonic() - begin_s, 3), how_made(campaign, env))
        _note(folder, done)
        tell(each, done)
    return n_failed


def _check_same(campaign: Campaign, names: Iterable[str], digests: dict[str, str]) -> None:
    """Raise `DataError` if a program differs from its first digest, which `digests` keeps."""
    for name in names:
        program = campaign.programs[name]
        now = digest(program)
        if what := changes(digests.setdefault(name, now), now, program):
            raise DataError(f"program {name!r} was changed while the campaign ran ({' and '.join(what)})")


def _solo_place(experiment: Experiment) -> int:
    """Place of a solo run, which alternates between rounds because one place may be faster."""
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
    """Times of a run from its profile; None if the run was stopped before it had a profile."""
    try:
        profile: Profile = profile_profiles.read(run.profile)
    except MpicolocError as error:
        if run.code is None:
            return None
        raise DataError(f"{run.program} left no profile ({error}): see `mpicoloc check`") from None
    job, where = profile.job, os.path.relpath(run.profile, folder)
    is_whole = run.code == 0 and not profile.partial
    if run.code == 0 and profile.partial:
        raise DataError(f"{run.program}: the profile {run.profile} is partial, so the run time is unknown")
    stranger = _stranger(profile, own)
    if stranger is not None:
        raise DataError(
            f"{run.program}: job {stranger} also ran on this node: run no other jobs during a campaign"
        )
    return TimedRun(run.program, run.place, job.start_unix_s, job.wall_s, is_whole, where)


def _stranger(profile: Profile, own: Sequence[str]) -> str | None:
    """Name of a job outside the experiment that overlapped the run for more than `COMPANY_FRAC`."""
    for row in profile.tables["corunners"]:
        name = text(row["job_id"])
        # The board truncates long names, and a job that another job starts has that job's name with a suffix.
        is_own = any(each.startswith(name) or name.startswith(each) for each in own)
        if not is_own and row["overlap_s"] > COMPANY_FRAC * profile.job.wall_s:
            return name
    return None


def _note(folder: str, done: Done) -> None:
    told: dict[str, Any] = {"round": done.experiment.i_round, "names": done.experiment.names}
    told |= {"digests": done.digests, "runs": [dataclasses.asdict(run) for run in done.runs]}
    told |= {"took_s": done.took_s, **done.how}
    sweep.append(os.path.join(folder, RUNS), told)


def complete(
    plan: Campaign, wanted: Sequence[Experiment], folder: str, env: Mapping[str, str]
) -> tuple[list[Done], int]:
    """Run the missing experiments of `wanted`. Returns all finished ones, and the number of failures."""
    with _ended_by_signals(), alone_in(folder) as ended:
        if ended is None:
            messages.trouble(
                f"the file system of {folder} has no file locks, so processes of a killed campaign "
                "are not ended: make sure that nothing else runs in this folder"
            )
        elif ended:
            messages.trouble(
                f"a campaign in this folder was killed; its remaining processes ({len(ended)}) were ended"
            )
        done = read(folder)
        todo = missing(plan, wanted, done, env)
        progress = _Progress(todo, done)
        progress.begin(plan, len(wanted))
        n_failed = make(plan, todo, folder, env, progress.add)
    return read(folder), n_failed


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that this process ends the runs that it started, too."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    # A signal that is ignored already, as under nohup, stays ignored.
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Progress:
    """Reports the progress of a campaign."""

    def __init__(self, todo: Sequence[Experiment], done: Sequence[Done]) -> None:
        self.left, self.done = list(todo), list(done)

    def begin(self, plan: Campaign, n_wanted: int) -> None:
        """Announce the experiments to make."""
        places = " and ".join(",".join(map(str, place)) for place in plan.places)
        messages.note(
            f"{len(self.left)} of {n_wanted} experiments remain, on processors {places}{self._time()}"
        )

    def add(self, experiment: Experiment, found: Done | MpicolocError) -> None:
        """Report one experiment that finished or failed."""
        what = f"round {experiment.i_round}, {' + '.join(experiment.names)}"
        self.left.remove(experiment)
        if isinstance(found, MpicolocError):
            messages.trouble(f"{what}: {found}")
            return
        self.done.append(found)
        times = ", ".join(f"{run.program} {run.wall_s:.2f} s" for run in found.runs if run.is_whole)
        messages.note(f"{what}: {times}; {len(self.left)} experiments left{self._time()}")

    def _time(self) -> str:
        left_s = expected_s(self.left, self.done) if self.left else None
        return "" if left_s is None else f", about {_about(left_s)}"


def _about(time_s: float) -> str:
    if time_s < 100:
        return f"{time_s:.0f} s"
    return f"{time_s / 60:.0f} min" if time_s < 6000 else f"{time_s / 3600:.1f} h"


def slowdowns_of(done: Iterable[Done], names: Sequence[str]) -> list[Slowdown]:
    """Slowdowns of the programs with these names beside each other."""
    found = slowdowns([each.runs for each in done])
    return [each for each in found if {each.target, each.co_runner} <= set(names)]


def short_programs(done: Iterable[Done]) -> list[str]:
    """Messages about programs so short that start-up and shutdown are a large part of a run alone."""
    alone: dict[str, float] = {}
    for run in (run for each in done if each.experiment.kind == "solo" for run in each.runs if run.is_whole):
        alone[run.program] = max(run.wall_s, alone.get(run.program, 0.0))
    return [
        f"{name} takes {wall_s:.2f} s alone, which is too short: give it {_GOOD_S / max(wall_s, 1e-3):.0f} "
        "times as much work"
        for name, wall_s in sorted(alone.items())
        if wall_s < _SHORT_S
    ]


def unknown_pairs(done: Iterable[Done], found: Sequence[Slowdown], names: Sequence[str]) -> list[str]:
    """Messages about pairs that were run but have no known slowdown."""
    known = {(each.target, each.co_runner) for each in found}
    made = {(run.program, other.program) for each in done for run in each.runs for other in each.runs
            if run.place != other.place}  # fmt: skip
    wanted = {pair for pair in made - known if set(pair) <= set(names)}
    return [f"{target} beside {co_runner}: not known" for target, co_runner in sorted(wanted)]
