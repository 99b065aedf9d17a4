"""A program and its co-runner, both under mpicoloc, the co-runner's ranks stopped and continued from outside.

Truth and estimate come from the same seconds: what the host does meanwhile is in both.
"""

import dataclasses
import os
import signal
import time

import numpy as np
import programs
from inside_estimates import Seen
from progress_ratio import GUARD_S
from toggling import Truth

import mpicoloc

BESIDE, STOPPED = 1.4, 0.7
"""Length of the states, of what the program asks for; beside it there is more to be measured."""
ENDED_LIMIT_S = 30.0


def ranks_of(job):
    """Process ids of a job's ranks: not of its launcher and keeper, which must go on."""
    return [pid for pid in programs.processes_of(job)
            if {b"LD_PRELOAD", b"OMPI_COMM_WORLD_RANK"} <= _names(pid)]  # fmt: skip


def _names(pid):
    return {entry.split(b"=", 1)[0] for entry in programs.init_barrier.entries(pid, "environ")}


class Inside(Truth):
    """One run of both; `meter` of the target, or "default"."""

    def __init__(self, target, co_runner, folder, library, env, meter):
        super().__init__(target, co_runner, folder, library, env)
        self.meter, self.n_co_runners = meter, 0

    def env_of(self, name, binary):
        profile = self.folder / f"{name}.h5"
        profile.unlink(missing_ok=True)
        env = programs.preload(binary, profile) | {"MPICOLOC_JOB_ID": f"{name}-{self.meter}-{os.getpid()}"}
        if self.meter != "default":
            env["MPICOLOC_METER"] = self.meter
        return env

    def co_runner_env(self, program):
        self.n_co_runners += 1
        return self.env_of(f"co-runner-{self.n_co_runners}", program.argv[0])

    def target_env(self, program):
        return self.env_of("target", program.argv[0])

    def pids_of(self, job):
        return ranks_of(job)

    def toggle(self, seconds, rng, beside):
        """Rows of begin, end and whether beside the co-runner, without guard times; these are `switched`."""
        del beside
        self.switched, end_s, windows = [], time.monotonic() + seconds, []
        for i in range(1000):
            if time.monotonic() >= end_s or self.job.poll() is not None:
                break
            is_beside = i % 2 == 0
            if is_beside:
                self.revive()
            self.signal_co_runner(signal.SIGCONT if is_beside else signal.SIGSTOP)
            begin_s, part = time.monotonic(), BESIDE if is_beside else STOPPED
            time.sleep(part * (self.target[0].toggle_s + rng.uniform(0, 0.5)))
            self.switched.append((begin_s, time.monotonic(), float(is_beside)))
            if self.co_job.poll() is None:
                windows.append((begin_s + GUARD_S, self.switched[-1][1], float(is_beside)))
        return windows

    def measure(self, seconds, rng):
        """Run both; returns what was seen (`Seen`) and the names of the kinds of steps."""
        found = self.run(seconds, rng)
        profiles = [self.opened(f"co-runner-{i + 1}") for i in range(self.n_co_runners)]
        seen = Seen(self.opened("target"), profiles, np.array(self.switched))
        return seen, dataclasses.replace(found, run=seen.active(found.run))

    def opened(self, name):
        """The profile of a job that was ended."""
        path, end_s = self.folder / f"{name}.h5", time.monotonic() + ENDED_LIMIT_S
        while not path.exists() and time.monotonic() < end_s:
            time.sleep(0.1)
        return mpicoloc.open(path).profile
