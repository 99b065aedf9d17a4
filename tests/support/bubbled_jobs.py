"""Real jobs with bubbles in their shutters, and the threads that press."""

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jobs
import numpy as np
import processes
import pytest

from mpicoloc.bubble import calibrate
from mpicoloc.bubble.calibration import BubbleSetting, Calibration
from mpicoloc.core.bubbles import LEVELS, SensitivityCurve

MIN_COUNTED = 6
"""Shutters with counts, of which nearly all have bubbles."""
BUBBLES = {"MPICOLOC_METER": "count", "MPICOLOC_BUBBLE": "0.9"}
"""Environment of a job that has a bubble or the probe in nearly all of its shutters."""


def calibration_of(largest_bytes=16 << 20):
    """As if this machine had been calibrated."""
    levels = np.array(LEVELS, float)
    slowdown = 1 + levels / 10
    ends = np.where(levels > 0, 0.01, 0.0)
    curve = SensitivityCurve("the probe", levels, slowdown, slowdown - ends, slowdown + ends, 80)
    settings = tuple(BubbleSetting(largest_bytes * level // 8, level * 1e6) for level in LEVELS)
    probe = BubbleSetting(8 << 20, 0.0)
    return Calibration(*calibrate.this_machine(), 1, settings, probe, 1.5e8, curve)


def find_mpi(folder):
    """An MPI with a program that computes and hardly calls it."""
    return jobs.need_mpi("mpich openmpi", folder, "rarely.c")


def n_counted(profile):
    """Shutters of the job with counts."""
    return int((profile.tables["shutters"]["during_window_ns"] > 0).sum())


def free_frac(cpu, n=40, window_s=0.025):
    """Part of `n` windows in which a thread that asks last, as bubbles do, has nine tenths of its time."""

    def n_free():
        os.sched_setaffinity(0, {cpu})  # of this thread
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        found = 0
        for _ in range(n):
            before_s, end_s = time.thread_time(), time.monotonic() + window_s
            while time.monotonic() < end_s:
                pass
            found += time.thread_time() - before_s > 0.9 * window_s
        return found

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(n_free).result() / n


def threads():
    """Folders in /proc of the threads that press in shutters."""
    found = set()
    for name in Path("/proc").glob("[0-9]*/task/[0-9]*/comm"):
        with contextlib.suppress(OSError):  # it has just ended
            if name.read_text().strip() == "mpicoloc-bubble":
                found.add(name.parent)
    return found


def process_of(thread):
    """Process id of the keeper whose thread it is."""
    return int(thread.parent.parent.name)


def _is_pressing(thread):
    with contextlib.suppress(OSError):
        return processes.stat(thread)[0] == "R"
    return False


def pressing_thread(before, limit_s=50):
    """A thread that presses and was not there before."""
    time.sleep(3)  # they fetch their memory
    end_s = time.monotonic() + limit_s
    while not (pressing := [one for one in threads() - before if _is_pressing(one)]):
        if time.monotonic() > end_s:
            pytest.skip("no bubble was seen in a shutter: its places may never have been counted here")
        time.sleep(0.002)
    return pressing[0]
