"""Jobs that run at the same time on this machine, the shorter one again until the longer has ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mpicoloc import target
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.run import launcher, siblings
from mpicoloc.run.campaign_file import Program

LOOK_EVERY_S = 0.02
END_WITHIN_S = 60.0
"""The keeper and the writer of a profile outlive the job; they must not run beside what is timed next."""
KINDLY_S = 15.0
_LAST_LINES = 3
_ID_ENV = "MPICOLOC_JOB_ID"


@dataclass
class Run:
    """One run of a program: its process, where its profile will be, and its own name among all jobs."""

    program: str
    place: int
    profile: str
    job_id: str
    folder: str
    process: subprocess.Popen[bytes] = field(repr=False)
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
    places : sequence of sequence of int
        Processors of each.
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
        places: Sequence[Sequence[int]],
        profiles: str,
        env: Mapping[str, str],
    ) -> None:
        self.programs, self.places, self.profiles, self.env = programs, places, profiles, env
        self.commands = [command(program) for program in programs]
        self.runs: list[Run] = []

    def run(self) -> list[Run]:
        """Run until each program has ended once; every run, also those that were ended for it.

        Raises
        ------
        DataError
            If a program fails, or takes longer than its limit.
        """
        limit_s = time.monotonic() + sum(program.limit_s for program in self.programs)
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
                    if time.monotonic() > limit_s:
                        raise DataError(f"{self._title()}: still running after the limit (limit_s)")
            finally:
                for run in self.runs:
                    stop(run)
        return self.runs

    def _title(self) -> str:
        return " + ".join(program.name for program in self.programs)

    def _launch(self, i: int, scratch: str) -> Run:
        program, number = self.programs[i], len(self.runs)
        folder = os.path.join(scratch, str(number))
        if program.folder is None:
            os.mkdir(folder)
        else:
            shutil.copytree(program.folder, folder)
        job_id = f"{program.name}-{os.getpid()}-{time.monotonic_ns() // 1000}"
        profile = f"{self.profiles}-{number}-{program.name}.h5"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(profile)  # of a try that was interrupted
        env = {**os.environ, **self.env, **dict(program.env), _ID_ENV: job_id, "MPICOLOC_OUT": profile}
        with open(os.path.join(folder, ".output"), "wb") as log:
            try:
                process = subprocess.Popen(
                    self.commands[i], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                    preexec_fn=lambda: os.sched_setaffinity(0, self.places[i]),
                )  # fmt: skip
            except OSError as error:
                raise EnvironmentFault(f"{self.commands[i][0]} cannot be started: {error.strerror}") from None
        self.runs.append(Run(program.name, i, profile, job_id, folder, process))
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


def stop(run: Run) -> None:
    """End a run, kindly first, and wait for all that it started.

    Raises
    ------
    EnvironmentFault
        If some of it cannot be ended.
    """
    if run.process.poll() is None:
        run.process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.process.wait(KINDLY_S)
    begin_s = time.monotonic()
    while left := _processes_of(run):
        if time.monotonic() > begin_s + 2 * END_WITHIN_S:
            raise EnvironmentFault(f"processes of {run.job_id} cannot be ended: {', '.join(map(str, left))}")
        if run.process.poll() is None or time.monotonic() > begin_s + END_WITHIN_S:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_EVERY_S)
    run.process.wait()


def _processes_of(run: Run) -> list[int]:
    """What has the run's name in its environment, wherever in the tree of processes it is by now."""
    entry = f"{_ID_ENV}={run.job_id}".encode()
    return [int(pid) for pid in filter(str.isdigit, os.listdir("/proc"))
            if entry in siblings.entries(pid, "environ")]  # fmt: skip
