"""Jobs that run at the same time on this machine, the shorter one again until the longer has ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.job import init_barrier, launcher, target
from mpicoloc.pairing.campaign_file import Program

LOOK_EVERY_S = 0.02
END_WITHIN_S = 60.0
"""The keeper and the writer of a profile outlive the job; they must not run beside what is timed next."""
KINDLY_S = 15.0
_LAST_LINES = 3
_ID_ENV, _OUT_ENV = "MPICOLOC_JOB_ID", "MPICOLOC_OUT"
_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


@dataclass
class Run:
    """One run of a program: its process, where its profile will be, and its own name among all jobs."""

    program: str
    place: int
    profile: str
    job_id: str
    folder: str
    process: subprocess.Popen[bytes] = field(repr=False)
    limit_s: float = field(repr=False)
    """On the monotonic clock: when it is ended."""
    code: int | None = None

    @property
    def output(self) -> str:
        """File of its standard output and error."""
        return os.path.join(self.folder, ".output")


def command(program: Program) -> list[str]:
    """Words that start a program."""
    if program.n_ranks is None:
        return list(program.argv)
    start = [sys.executable, "-m", "mpicoloc", "run", "-n", str(program.n_ranks)]
    return [*start, *(f"--mpirun-arg={word}" for word in _mpirun_args(program)), "--", *program.argv]


def _mpirun_args(program: Program) -> Sequence[str]:
    """Open MPI binds ranks to processors that are not those of its own process, unless told not to."""
    if program.mpirun_args:
        return program.mpirun_args
    found = target.find(list(program.argv), dict(os.environ), None)
    family = launcher.find(found.abi, found.libmpi, found.file).family
    return ("--oversubscribe", "--bind-to", "none") if family == "openmpi" else ()


class Corun:
    """Programs at the same time, each on its place.

    Parameters
    ----------
    programs : sequence of Program
        One or two.
    places : mapping of int to sequence of int
        Number and processors of the place of each, in the order of the programs.
    profiles : str
        Start of the profiles' names, with the folder.
    env : mapping of str to str
        Options of the jobs, beyond the environment of this process.

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
        """Run until each program has ended once; every run, also those that were ended for it.

        Raises `DataError` if a program fails, or takes longer than its limit.
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
                f"{run.program}{beside} still runs after {limit_s:g} s, its limit_s, and was ended"
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
            os.unlink(profile)  # of a try that was interrupted
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
        # Of several files each has its own trouble.
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        raise DataError(f"{folder} cannot be copied into a working directory: {why}") from None


def _begin_on(cpus: Sequence[int]) -> None:
    """In the new process: its processors, and its end when this one is killed."""
    os.sched_setaffinity(0, cpus)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop(run: Run) -> None:
    """End a run, kindly first, and wait for all that it started.

    Raises `EnvironmentFault` if some of it cannot be ended.
    """
    was_running = run.process.poll() is None
    if was_running:
        run.process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.process.wait(KINDLY_S)
    if was_running:
        _terminate(pid for pid in _processes(_ID_ENV, run.job_id) if _is_in_session(pid, run.process.pid))
    # What outlives a run that has ended is the writer of its profile.
    patience_s = 0.0 if run.process.poll() is None else END_WITHIN_S
    _end(lambda: _processes(_ID_ENV, run.job_id), patience_s, run.job_id)
    run.process.wait()


def stop_left(profiles: str) -> list[int]:
    """End runs whose profiles begin with `profiles`, of a campaign that was killed; returns their processes.

    Raises `EnvironmentFault` if some cannot be ended.
    """

    def left() -> list[int]:
        return [pid for pid in _processes(_OUT_ENV, profiles, is_start=True) if pid != os.getpid()]

    found = left()
    _terminate(found)
    _end(left, KINDLY_S, "a campaign that was killed")
    return found


def _is_in_session(pid: int, session: int) -> bool:
    """What a shell leaves behind; keepers, which have a profile written, are in sessions of their own."""
    try:
        return os.getsid(pid) == session
    except ProcessLookupError:
        return False


def _terminate(pids: Iterable[int], number: int = signal.SIGTERM) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _end(find: Callable[[], list[int]], patience_s: float, of: str) -> None:
    """Wait until there are no such processes any more, and kill them when patience has ended."""
    begin_s = time.monotonic()
    while left := find():
        if time.monotonic() > begin_s + patience_s + END_WITHIN_S:
            raise EnvironmentFault(f"processes of {of} cannot be ended: {', '.join(map(str, left))}")
        if time.monotonic() > begin_s + patience_s:
            _terminate(left, signal.SIGKILL)
        time.sleep(LOOK_EVERY_S)


def _processes(name: str, value: str, *, is_start: bool = False) -> list[int]:
    """What has that variable in its environment, wherever in the tree of processes it is by now."""
    entry = f"{name}={value}".encode()
    return [
        int(pid)
        for pid in filter(str.isdigit, os.listdir("/proc"))
        if any(
            found.startswith(entry) if is_start else found == entry
            for found in init_barrier.entries(pid, "environ")
        )
    ]
