"""A program and its co-runners under mpicoloc, the co-runners' ranks stopped and continued from outside.

Truth and estimate come from the same seconds: what the host does meanwhile is in both.
"""

import itertools
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, replace

import numpy as np
import programs
from inside_estimates import Seen
from progress_ratio import GUARD_S, Run, thinned

import mpicoloc

WARM_S = 3.0
"""Both have run for so long beside each other before it begins."""
START_LIMIT_S = 120.0
JITTER_S = 0.5
BESIDE, STOPPED = 1.4, 0.7
"""Length of the states, of what the program asks for; beside it there is more to be measured."""
SHARED = 2
"""States are so many times as long where jobs share processors: mpicoloc looks at all of the time between two
shutters there."""
ENDED_LIMIT_S = 30.0
SWITCHED = "switched.npy"
"""Rows of `Seen.switched`, beside the profiles of the run."""


class Lines:
    """Output of a job on a terminal of its own, so that lines come when they are printed."""

    def __init__(self, watched, log):
        self.marks, self.times_s, self.names = re.compile(watched.marks), [], []
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
                    if found := self.marks.search(line.decode(errors="replace")):
                        self.times_s.append(now_s)
                        self.names.append(found[1] if found.groups() else "")
        os.close(self.reader)

    def _data(self):
        try:
            return os.read(self.reader, 65536)
        except OSError:  # the last one has closed the terminal
            return b""

    def events(self):
        """Times of the ends of steps, and the name of the kind of each."""
        n = min(len(self.times_s), len(self.names))
        return np.array(self.times_s[:n]), np.array(self.names[:n])


class Calls:
    """Times of the MPI calls of rank 0 that mark steps, of a preloaded library (`calls/events.c`)."""

    def __init__(self, watched, path):
        self.path = path
        self.path.write_bytes(b"")
        self.env = {"EVENTS_FILE": str(path), "EVENTS_CALLS": watched.calls}

    def events(self):
        times_s = np.fromfile(self.path, np.int64) / 1e9
        return times_s, np.full(len(times_s), "")


@dataclass
class Switched:
    """Result of `ToggledRun.run`."""

    run: Run
    names: list


def ranks_of(job):
    """Process ids of a job's ranks: not of its launcher and keeper, which must go on."""
    of_rank = {b"OMPI_COMM_WORLD_RANK", b"PMI_RANK"}
    found = {pid: _names(pid) for pid in programs.processes_of(job)}
    return [pid for pid, names in found.items() if b"LD_PRELOAD" in names and of_rank & names]


def _names(pid):
    return {entry.split(b"=", 1)[0] for entry in programs.init_barrier.entries(pid, "environ")}


def job_env(folder, name, binary, meter):
    """Environment of a job under mpicoloc, with its profile in the folder."""
    profile = folder / f"{name}.h5"
    profile.unlink(missing_ok=True)
    env = programs.preload(binary, profile) | {"MPICOLOC_JOB_ID": f"{name}-{meter}-{os.getpid()}"}
    return env if meter == "default" else {**env, "MPICOLOC_METER": meter}


class CoRunner:
    """A program (`Watched`, `Launcher`) that runs without end beside the target."""

    def __init__(self, program, folder, env, meter, label="co-runner"):
        (self.watched, self.launcher), self.folder, self.label = program, folder, label
        self.env, self.meter = env, meter
        self.jobs, self.pids = [], []

    def launch(self):
        program, cwd = self.watched.endless, self.folder / self.label
        programs.place(program, cwd)
        name = f"{self.label}-{len(self.jobs) + 1}"
        env = self.env | job_env(self.folder, name, program.argv[0], self.meter)
        command = [*self.launcher.before, *self.launcher.command(program)]
        self.jobs.append(programs.start(command, cwd, self.launcher.cores, env))
        self.since_s, self.pids = time.monotonic(), []

    def revive(self):
        """Start it again if it has ended."""
        job = self.jobs[-1]
        if job.poll() is not None:
            if job.returncode or time.monotonic() - self.since_s < 1:
                raise RuntimeError(f"the co-runner ended with {job.returncode}: see {self.folder}")
            self.launch()
            time.sleep(WARM_S)
        if not self.pids or time.monotonic() < self.since_s + WARM_S:
            self.pids = ranks_of(self.jobs[-1])

    def signal(self, number):
        """To every rank, wherever the launcher has put them."""
        for pid in self.pids:
            try:
                os.kill(int(pid), number)
            except ProcessLookupError:
                pass

    def stop(self):
        self.signal(signal.SIGCONT)
        for job in self.jobs:
            programs.stop(job)


LABELS = ("co-runner", "second", "third")
"""Of the co-runners of a run."""


class ToggledRun:
    """One run of a program and its co-runners, each a (`Watched`, `Launcher`) pair; meter of all jobs.

    A state is a number whose bits tell which co-runners run; `switched` has rows of begin, end and state.
    """

    def __init__(self, target, co_runners, folder, library, env, meter, is_shared=False):
        self.target, self.folder, self.library = target, folder, library
        self.env, self.meter, self.failed = env, meter, False
        self.state_s = target[0].toggle_s * (SHARED if is_shared else 1)
        labels = LABELS[: len(co_runners)]
        self.co_runners = [CoRunner(one, folder, env, meter, label)
                           for one, label in zip(co_runners, labels, strict=True)]  # fmt: skip
        self.job, self.switched = None, []

    def launch_target(self):
        watched, launcher = self.target
        program, cwd = watched.endless, self.folder / "target"
        programs.place(program, cwd)
        env, out = self.env | job_env(self.folder, "target", program.argv[0], self.meter), None
        if watched.calls:
            self.marks = Calls(watched, self.folder / "events")
            libraries = [one for one in (env.get("LD_PRELOAD"), str(self.library)) if one]
            env |= self.marks.env | {"LD_PRELOAD": " ".join(libraries)}
        else:
            self.marks = Lines(watched, cwd / "terminal.txt")
            out = self.marks.writer
        self.job = programs.start(launcher.command(program), cwd, launcher.cores, env, out)
        if out is not None:
            self.marks.follow()

    def wait_until_warm(self):
        end_s = time.monotonic() + START_LIMIT_S
        while len(self.marks.events()[0]) < 3:
            if self.job.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(f"no steps seen of {self.target[0].endless.name}: see {self.folder}")
            for one in self.co_runners:
                one.revive()
            time.sleep(0.1)
        time.sleep(WARM_S)

    def alternating(self, seconds, rng):
        """States and their lengths in s: all co-runners in turn with none."""
        end_s, every = time.monotonic() + seconds, 2 ** len(self.co_runners) - 1
        for is_beside in itertools.cycle((True, False)):
            if time.monotonic() >= end_s:
                return
            part = BESIDE if is_beside else STOPPED
            yield every * is_beside, part * (self.state_s + rng.uniform(0, JITTER_S))

    def toggle(self, states):
        for state, length_s in states:
            if self.job.poll() is not None:
                return
            running = [bool(state >> i & 1) for i in range(len(self.co_runners))]
            for one, is_running in zip(self.co_runners, running, strict=True):
                if is_running:
                    one.revive()
                one.signal(signal.SIGCONT if is_running else signal.SIGSTOP)
            begin_s = time.monotonic()
            time.sleep(length_s)
            if all(one.jobs[-1].poll() is None for one in self.co_runners):
                self.switched.append((begin_s, time.monotonic(), float(state)))

    def run(self, states):
        """Run all through these states; returns a `Switched`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            for one in self.co_runners:
                one.launch()
            self.launch_target()
            self.wait_until_warm()
            for one in self.co_runners:
                one.pids = ranks_of(one.jobs[-1])
            self.toggle(states)
            self.failed = self.job.poll() not in (None, 0)
            for one in self.co_runners:
                one.signal(signal.SIGCONT)
            time.sleep(0.5)
        finally:
            self.stop()
        return self.seen()

    def measure(self, states):
        """Run all; returns what was seen (`Seen`) and the names of the kinds of steps."""
        found = self.run(states)
        profiles = [self.opened(f"{one.label}-{i + 1}")
                    for one in self.co_runners for i in range(len(one.jobs))]  # fmt: skip
        switched = np.array(self.switched)
        switched[:, 2] = switched[:, 2] == 2 ** len(self.co_runners) - 1
        seen = Seen(self.opened("target"), profiles, switched)
        np.save(self.folder / SWITCHED, seen.switched)
        return seen, replace(found, run=seen.active(found.run))

    def opened(self, name):
        """The profile of a job that was ended."""
        path, end_s = self.folder / f"{name}.h5", time.monotonic() + ENDED_LIMIT_S
        while not path.exists() and time.monotonic() < end_s:
            time.sleep(0.1)
        return mpicoloc.open(path).profile

    def stop(self):
        for one in self.co_runners:
            one.stop()
        if self.job is not None:
            programs.stop(self.job)

    def seen(self):
        times_s, names = self.marks.events()
        if self.failed or not self.switched or len(times_s) < 2:
            raise RuntimeError(f"{self.target[0].endless.name} failed: see {self.folder}")
        windows = np.array(self.switched) + np.array([GUARD_S, 0, 0])
        kinds = sorted(set(names))
        events, numbers = thinned(times_s, np.array([kinds.index(name) for name in names], int))
        return Switched(Run(events, numbers, windows), kinds)


def stored(folder):
    """Profiles and states of the run in that folder; None: there are none."""
    if not (folder / SWITCHED).exists():
        return None
    paths = [path for label in LABELS for path in sorted(folder.glob(f"{label}-*.h5"))]
    co_profiles = [mpicoloc.open(path).profile for path in paths]
    return Seen(mpicoloc.open(folder / "target.h5").profile, co_profiles, np.load(folder / SWITCHED))


def events_library(folder):
    """Compile the library that writes down MPI calls; without compiler, one that was put there serves."""
    path = folder / "libevents.so"
    if path.exists() and shutil.which("gcc") is None:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(path), str(programs.CALLS / "events.c"), "-ldl"]
    subprocess.run(command, check=True)
    return path
