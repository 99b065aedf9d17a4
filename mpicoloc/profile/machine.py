"""What the kernel tells, in /proc, of the node and of each rank's process while it waits in MPI_Finalize."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

import numpy as np

_PROC = Path("/proc")
USED = (
    "cpu_s",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
    "migrations",
    "run_delay_s",
)
"""Columns of the table of ranks that grow while a process runs."""


def node() -> dict[str, str | float]:
    """Columns `cpu_model`, `n_cpus` and `memory_bytes` of the table of nodes."""
    memory = re.search(r"^MemTotal:\s*(\d+) kB", _text(_PROC / "meminfo"), re.M)
    return {
        "cpu_model": cpu_model(_text(_PROC / "cpuinfo")),
        "n_cpus": float(os.sysconf("SC_NPROCESSORS_ONLN")),
        "memory_bytes": float(memory[1]) * 1024 if memory else np.nan,
    }


def user(uid: int) -> str:
    """Name of a user; the number where this node knows no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def cpu_model(cpuinfo: str) -> str:
    """The processor's name in the text of /proc/cpuinfo; its numbers where it has none (Arm); or empty."""
    found = dict(re.findall(r"^([\w ]+?)\s*:\s*(.*?)\s*$", cpuinfo, re.M))
    if name := found.get("model name") or found.get("cpu"):
        return " ".join(name.split())
    numbers = [found[key] for key in ("CPU implementer", "CPU part", "CPU variant") if key in found]
    return f"CPU {' '.join(numbers)}" if numbers else ""


def usage(pid: int) -> dict[str, float]:
    """What a process used since it began, all its threads: columns of the table of ranks; NaN: not told.

    Switches, migrations and run delay are those of threads that still live. Kernels that do not count the run
    delay print zeros.
    """
    process, fields = _PROC / str(pid), stat_fields(pid)
    columns = dict.fromkeys(USED, np.nan)
    if len(fields) > 12:
        ticks = int(fields[11]) + int(fields[12])
        columns |= {"minor_faults": float(fields[7]), "major_faults": float(fields[9])}
        columns["cpu_s"] = ticks / os.sysconf("SC_CLK_TCK")
    threads = sorted((process / "task").glob("*"))
    sums = {
        "voluntary_switches": ("status", r"^voluntary_ctxt_switches:\s*(\d+)"),
        "involuntary_switches": ("status", r"^nonvoluntary_ctxt_switches:\s*(\d+)"),
        "migrations": ("sched", r"^se\.nr_migrations\s*:\s*(\d+)"),
        "run_delay_s": ("schedstat", r"^[1-9]\d* (\d+)"),
    }
    for column, (file, pattern) in sums.items():
        found = [re.search(pattern, _text(thread / file), re.M) for thread in threads]
        if any(found):
            columns[column] = sum(float(match[1]) for match in found if match)
    columns["run_delay_s"] *= 1e-9  # told in ns
    return columns


def stat_fields(pid: int | str) -> list[str]:
    """What /proc/PID/stat says behind the name; nothing of a process that is gone."""
    return _text(_PROC / str(pid) / "stat").rpartition(")")[2].split()


def peak_rss_bytes(pid: int) -> float:
    """Most memory that a process had at once; NaN: not told."""
    peak = re.search(r"^VmHWM:\s*(\d+) kB", _text(_PROC / str(pid) / "status"), re.M)
    return float(peak[1]) * 1024 if peak else np.nan


def told(used: np.void) -> dict[str, float]:
    """The same columns from what a rank told of itself (`mc_usage`)."""
    if not used["is_known"]:
        return dict.fromkeys(USED, np.nan)
    columns = {name: float(used[name]) for name in USED if not name.endswith("_s")}
    columns |= {f"{name}_s": int(used[f"{name}_ns"]) * 1e-9 for name in ("cpu", "run_delay")}
    for name, n_threads in (("migrations", "n_migrating"), ("run_delay_s", "n_scheduled")):
        if not used[n_threads]:
            columns[name] = np.nan
    return columns


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
