"""Shared memory, processors, and what the kernel gives a job."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import tempfile
import time

from mpicoloc import config
from mpicoloc.checkup.finding import Finding

MIN_SHM_BYTES = 64 << 20


def shared_memory() -> Finding:
    """The folder in memory: writable, and room for a job."""
    folder = str(config.BY_KEY["shm_dir"].default)
    try:
        folder = str(config.get("shm_dir"))
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(
            "shared memory",
            "fail",
            f"{folder} cannot be written: {error.strerror}",
            "name another folder in memory with MPICOLOC_SHM_DIR, the same for all jobs of the node",
        )
    if free < MIN_SHM_BYTES:
        return Finding(
            "shared memory",
            "fail",
            f"{folder} has {free >> 20} MiB free, a job needs up to {MIN_SHM_BYTES >> 20} MiB",
            "docker run --shm-size=1g, or delete old files there",
        )
    return Finding("shared memory", "ok", f"{folder} has {free >> 20} MiB free")


def processors() -> Finding:
    """Processors of this process, and threads for each."""
    usable, all_of_them = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    threads = _threads_per_core()
    text = f"{usable} of {all_of_them} processors usable, {threads} to a core"
    if threads > 1:
        return Finding("processors", "ok", text + "; a shutter stops co-runners on both threads of a core")
    return Finding("processors", "ok", text)


def _threads_per_core() -> int:
    try:
        with open("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list") as file:
            text = file.read().strip()
    except OSError:
        return 1
    ranges = [part.split("-") for part in text.split(",")]
    return sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)


def real_time_signals() -> Finding:
    """The gate needs one."""
    n_free = sum(signal.getsignal(n) == signal.SIG_DFL for n in range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
    if n_free == 0:
        return Finding("gate", "note", "no free real-time signal: this job would not stand still for others")
    return Finding(
        "gate", "ok", f"{n_free} real-time signals free; {_sleep_lateness_us():.0f} us late out of a sleep"
    )


def _sleep_lateness_us() -> float:
    late = []
    for _ in range(20):
        start = time.monotonic_ns()
        time.sleep(0.001)
        late.append((time.monotonic_ns() - start) / 1e3 - 1000.0)
    return sorted(late)[len(late) // 2]


def pidfd() -> Finding:
    """The keeper waits for ranks by file descriptor."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return Finding(
            "pidfd",
            "note",
            f"this kernel ({platform.release()}) has none: a killed job may leave no profile",
            "Linux 5.3 or newer",
        )
    return Finding("pidfd", "ok", "a killed job still leaves a partial profile")
