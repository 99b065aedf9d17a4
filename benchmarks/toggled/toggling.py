"""A bare program beside a co-runner that is stopped and continued from outside, and when its steps ended."""

import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

import numpy as np
import programs
from progress_ratio import GUARD_S, Run, thinned

WARM_S = 3.0
"""Both have run for so long beside each other before it begins."""
START_LIMIT_S = 120.0
JITTER_S = 0.5
EVENT_FILE = np.dtype([("n_calls", "u8"), ("every", "u8"), ("n_times", "u8"), ("time_ns", "i8", 1 << 18)])
"""As in `calls/events.c`."""


class Lines:
    """Output of a job on a terminal of its own, so that lines come when they are printed."""

    def __init__(self, watched, log):
        self.marks, self.unit = re.compile(watched.marks), re.compile(watched.unit or watched.marks)
        self.times_s, self.names, self.n_units = [], [], 0
        self.log_path, (self.reader, self.writer) = log, os.openpty()
        self.thread = threading.Thread(target=self._read, daemon=True)

    def follow(self):
        os.close(self.writer)
        self.thread.start()

    def _read(self):
        try:  # of this thread only, and where it is allowed
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -15)
        except OSError:
            pass
        rest = b""
        with open(self.log_path, "wb") as log:
            while data := self._data():
                now_s = time.monotonic()
                log.write(data)
                *lines, rest = re.split(rb"[\r\n]", rest + data)
                for line in lines:
                    self._line(line.decode(errors="replace"), now_s)
        os.close(self.reader)

    def _data(self):
        try:
            return os.read(self.reader, 65536)
        except OSError:  # the last one has closed the terminal
            return b""

    def _line(self, line, now_s):
        if found := self.marks.search(line):
            self.times_s.append(now_s)
            self.names.append(found[1] if found.groups() else "")
        self.n_units += self.unit.search(line) is not None

    def events(self):
        """Times of the ends of steps, and the name of the kind of each."""
        n = min(len(self.times_s), len(self.names))
        return np.array(self.times_s[:n]), np.array(self.names[:n])


class Calls:
    """Times of the MPI calls of rank 0 that mark steps, of a preloaded library."""

    n_units = 0

    def __init__(self, watched, path):
        self.path = path
        self.path.unlink(missing_ok=True)
        self.env = {"EVENTS_FILE": str(path), "EVENTS_CALLS": watched.calls}

    def events(self):
        if not self.path.exists():
            return np.array([]), np.array([])
        found = np.fromfile(self.path, EVENT_FILE)
        if not len(found):
            return np.array([]), np.array([])
        self.n_units = int(found[0]["n_calls"])
        times_s = found[0]["time_ns"][: int(found[0]["n_times"])] / 1e9
        return times_s, np.full(len(times_s), "")


@dataclass
class Switched:
    """What `Truth.run` has seen; `units_per_s` beside the co-runner."""

    run: Run
    names: list
    units_per_s: float


def signal_all(job, number):
    """To every process of a job, wherever its launcher has put them."""
    for pid in job.pids:
        try:
            os.kill(int(pid), number)
        except ProcessLookupError:
            pass


class Truth:
    """One toggled run of two programs, each a (`Watched`, `Launcher`) pair."""

    def __init__(self, target, co_runner, folder, library, env):
        self.target, self.co_runner, self.folder = target, co_runner, folder
        self.library, self.env = library, env
        self.jobs, self.co_job, self.failed = [], None, False

    def co_runner_env(self, program):
        return {}

    def target_env(self, program):
        return {}

    def pids_of(self, job):
        """Processes to be stopped."""
        return programs.processes_of(job)

    def launch_co_runner(self):
        watched, launcher = self.co_runner
        program, cwd = watched.endless, self.folder / "co-runner"
        programs.place(program, cwd)
        env = self.env | self.co_runner_env(program)
        self.co_job = programs.start(launcher.command(program), cwd, launcher.cores, env)
        self.jobs.append(self.co_job)
        self.co_job.since_s, self.co_job.pids = time.monotonic(), []

    def launch_target(self):
        watched, launcher = self.target
        program, cwd = watched.endless, self.folder / "target"
        programs.place(program, cwd)
        env, out = self.env | self.target_env(program), None
        if watched.calls:
            self.marks = Calls(watched, self.folder / "events")
            libraries = [one for one in (env.get("LD_PRELOAD"), str(self.library)) if one]
            env |= self.marks.env | {"LD_PRELOAD": " ".join(libraries)}
        else:
            self.marks = Lines(watched, cwd / "terminal.txt")
            out = self.marks.writer
        self.job = programs.start(launcher.command(program), cwd, launcher.cores, env, out)
        self.jobs.append(self.job)
        if out is not None:
            self.marks.follow()

    def wait_until_warm(self):
        end_s = time.monotonic() + START_LIMIT_S
        while len(self.marks.events()[0]) < 3:
            if self.job.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(f"no steps seen of {self.target[0].endless.name}: see {self.folder}")
            self.revive()
            time.sleep(0.1)
        time.sleep(WARM_S)

    def revive(self):
        """Start the co-runner again if it has ended."""
        if self.co_job.poll() is not None:
            if self.co_job.returncode or time.monotonic() - self.co_job.since_s < 1:
                raise RuntimeError(f"the co-runner ended with {self.co_job.returncode}: see {self.folder}")
            self.launch_co_runner()
            time.sleep(WARM_S)
        if not self.co_job.pids or time.monotonic() < self.co_job.since_s + WARM_S:
            self.co_job.pids = self.pids_of(self.co_job)

    def signal_co_runner(self, number):
        signal_all(self.co_job, number)

    def toggle(self, seconds, rng, beside):
        """Rows of begin, end and whether beside the co-runner."""
        windows, end_s = [], time.monotonic() + seconds
        while time.monotonic() < end_s and self.job.poll() is None:
            if beside:
                self.revive()
            signal_all(self.co_job, signal.SIGCONT if beside else signal.SIGSTOP)
            begin_s = time.monotonic() + GUARD_S
            time.sleep(self.target[0].toggle_s + rng.uniform(0, JITTER_S))
            alive = self.co_job.poll() is None
            windows.append((begin_s, time.monotonic(), float(beside)) if alive else None)
            beside = not beside
        return [window for window in windows if window]

    def run(self, seconds, rng, beside=True):
        """Run both for so long; returns a `Switched`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.launch_co_runner()
            self.launch_target()
            self.wait_until_warm()
            self.co_job.pids = self.pids_of(self.co_job)
            windows = self.toggle(seconds, rng, beside)
            self.failed = self.job.poll() not in (None, 0)
            signal_all(self.co_job, signal.SIGCONT)
            time.sleep(0.5)
        finally:
            self.stop()
        return self.seen(windows)

    def stop(self):
        if self.co_job is not None:
            signal_all(self.co_job, signal.SIGCONT)
        for job in self.jobs:
            programs.stop(job)

    def seen(self, windows):
        times_s, names = self.marks.events()
        windows = np.array(windows)
        if self.failed or not len(windows) or len(times_s) < 2:
            raise RuntimeError(f"{self.target[0].endless.name} failed: see {self.folder}")
        kinds = sorted(set(names))
        events, numbers = thinned(times_s, np.array([kinds.index(name) for name in names], int))
        return Switched(Run(events, numbers, windows), kinds, self._units_per_s(times_s, windows))

    def _units_per_s(self, times_s, windows):
        """Beside the co-runner; a unit has as many steps as in the whole run."""
        beside = windows[windows[:, 2] > 0]
        counted = np.interp(beside[:, :2], times_s, np.arange(len(times_s)))
        per_s = np.sum(counted[:, 1] - counted[:, 0]) / np.sum(beside[:, 1] - beside[:, 0])
        return float(per_s * self.marks.n_units / len(times_s))


def events_library(folder):
    """Compile the library that writes down MPI calls."""
    path = folder / "libevents.so"
    folder.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(path), str(programs.CALLS / "events.c"), "-ldl"]
    subprocess.run(command, check=True)
    return path
