"""A program and its co-runner, both under mpicoloc, the co-runner's ranks stopped and continued from outside.

Truth and estimate come from the same seconds: what the host does meanwhile is in both.
"""

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
    """What `ToggledRun.run` has seen."""

    run: Run
    names: list


def signal_all(job, number):
    """To every process of a job, wherever its launcher has put them."""
    for pid in job.pids:
        try:
            os.kill(int(pid), number)
        except ProcessLookupError:
            pass


def ranks_of(job):
    """Process ids of a job's ranks: not of its launcher and keeper, which must go on."""
    of_rank = {b"OMPI_COMM_WORLD_RANK", b"PMI_RANK"}
    found = {pid: _names(pid) for pid in programs.processes_of(job)}
    return [pid for pid, names in found.items() if b"LD_PRELOAD" in names and of_rank & names]


def _names(pid):
    return {entry.split(b"=", 1)[0] for entry in programs.init_barrier.entries(pid, "environ")}


class ToggledRun:
    """One run of two programs, each a (`Watched`, `Launcher`) pair; `meter` of both, or "default"."""

    def __init__(self, target, co_runner, folder, library, env, meter, is_shared=False):
        self.target, self.co_runner, self.folder = target, co_runner, folder
        self.state_s = target[0].toggle_s * (SHARED if is_shared else 1)
        self.library, self.env, self.meter = library, env, meter
        self.jobs, self.co_job, self.failed = [], None, False
        self.n_co_runners, self.switched = 0, []

    def env_of(self, name, binary):
        profile = self.folder / f"{name}.h5"
        profile.unlink(missing_ok=True)
        env = programs.preload(binary, profile) | {"MPICOLOC_JOB_ID": f"{name}-{self.meter}-{os.getpid()}"}
        if self.meter != "default":
            env["MPICOLOC_METER"] = self.meter
        return env

    def launch_co_runner(self):
        watched, launcher = self.co_runner
        program, cwd = watched.endless, self.folder / "co-runner"
        programs.place(program, cwd)
        self.n_co_runners += 1
        env = self.env | self.env_of(f"co-runner-{self.n_co_runners}", program.argv[0])
        self.co_job = programs.start([*launcher.before, *launcher.command(program)], cwd, launcher.cores, env)
        self.jobs.append(self.co_job)
        self.co_job.since_s, self.co_job.pids = time.monotonic(), []

    def launch_target(self):
        watched, launcher = self.target
        program, cwd = watched.endless, self.folder / "target"
        programs.place(program, cwd)
        env, out = self.env | self.env_of("target", program.argv[0]), None
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
            self.co_job.pids = ranks_of(self.co_job)

    def toggle(self, seconds, rng):
        """Rows of begin, end and whether beside the co-runner, from switch to switch."""
        end_s, is_beside = time.monotonic() + seconds, True
        while time.monotonic() < end_s and self.job.poll() is None:
            if is_beside:
                self.revive()
            signal_all(self.co_job, signal.SIGCONT if is_beside else signal.SIGSTOP)
            begin_s, part = time.monotonic(), BESIDE if is_beside else STOPPED
            time.sleep(part * (self.state_s + rng.uniform(0, JITTER_S)))
            if self.co_job.poll() is None:
                self.switched.append((begin_s, time.monotonic(), float(is_beside)))
            is_beside = not is_beside

    def run(self, seconds, rng):
        """Run both for so long; returns a `Switched`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.launch_co_runner()
            self.launch_target()
            self.wait_until_warm()
            self.co_job.pids = ranks_of(self.co_job)
            self.toggle(seconds, rng)
            self.failed = self.job.poll() not in (None, 0)
            signal_all(self.co_job, signal.SIGCONT)
            time.sleep(0.5)
        finally:
            self.stop()
        return self.seen()

    def measure(self, seconds, rng):
        """Run both; returns what was seen (`Seen`) and the names of the kinds of steps."""
        found = self.run(seconds, rng)
        profiles = [self.opened(f"co-runner-{i + 1}") for i in range(self.n_co_runners)]
        seen = Seen(self.opened("target"), profiles, np.array(self.switched))
        np.save(self.folder / SWITCHED, seen.switched)
        return seen, replace(found, run=seen.active(found.run))

    def opened(self, name):
        """The profile of a job that was ended."""
        path, end_s = self.folder / f"{name}.h5", time.monotonic() + ENDED_LIMIT_S
        while not path.exists() and time.monotonic() < end_s:
            time.sleep(0.1)
        return mpicoloc.open(path).profile

    def stop(self):
        if self.co_job is not None:
            signal_all(self.co_job, signal.SIGCONT)
        for job in self.jobs:
            programs.stop(job)

    def seen(self):
        times_s, names = self.marks.events()
        if self.failed or not self.switched or len(times_s) < 2:
            raise RuntimeError(f"{self.target[0].endless.name} failed: see {self.folder}")
        windows = np.array(self.switched) + np.array([GUARD_S, 0, 0])
        kinds = sorted(set(names))
        events, numbers = thinned(times_s, np.array([kinds.index(name) for name in names], int))
        return Switched(Run(events, numbers, windows), kinds)


def stored(folder):
    """What the run in that folder has left; None: it has left nothing."""
    if not (folder / SWITCHED).exists():
        return None
    co_profiles = [mpicoloc.open(path).profile for path in sorted(folder.glob("co-runner-*.h5"))]
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
