"""Facts about nodes and ranks from /proc, read while ranks wait in MPI_Finalize; and the table of ranks."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpicoloc.core.profile import COLUMNS, Table, table
from mpicoloc.pmpi import contract

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
"""Cumulative columns of the table of ranks: they grow while a process runs."""


def node() -> dict[str, str | float]:
    """Columns `cpu_model`, `n_cpus` and `memory_bytes` of the table of nodes."""
    memory = re.search(r"^MemTotal:\s*(\d+) kB", _text(_PROC / "meminfo"), re.M)
    return {
        "cpu_model": cpu_model(_text(_PROC / "cpuinfo")),
        "n_cpus": float(os.sysconf("SC_NPROCESSORS_ONLN")),
        "memory_bytes": float(memory[1]) * 1024 if memory else np.nan,
    }


def user(uid: int) -> str:
    """Name of a user; the user's number if this node does not know the name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def cpu_model(cpuinfo: str) -> str:
    """The processor's name in the text of /proc/cpuinfo.

    If the text has no name (as on Arm), the processor's numbers are returned; without those, an empty text.
    """
    found = dict(re.findall(r"^([\w ]+?)\s*:\s*(.*?)\s*$", cpuinfo, re.M))
    if name := found.get("model name") or found.get("cpu"):
        return " ".join(name.split())
    numbers = [found[key] for key in ("CPU implementer", "CPU part", "CPU variant") if key in found]
    return f"CPU {' '.join(numbers)}" if numbers else ""


def usage(pid: int) -> dict[str, float]:
    """Usage of all threads of a process since its start: columns of the table of ranks; NaN: not known.

    Switches, migrations and run delay count only threads that are still alive. Kernels that do not count the
    run delay print zeros.
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
    columns["run_delay_s"] *= 1e-9  # the file's unit is ns
    return columns


def stat_fields(pid: int | str) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty if the process is gone."""
    return _text(_PROC / str(pid) / "stat").rpartition(")")[2].split()


def peak_rss_bytes(pid: int) -> float:
    """Peak resident memory of a process; NaN: not known."""
    peak = re.search(r"^VmHWM:\s*(\d+) kB", _text(_PROC / str(pid) / "status"), re.M)
    return float(peak[1]) * 1024 if peak else np.nan


def told(used: np.void) -> dict[str, float]:
    """The columns of `usage` from the record that a rank wrote about itself (`mc_usage`)."""
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


_STATES = {
    contract.MC_RANK_INIT: "lost",
    contract.MC_RANK_RUNNING: "running",
    contract.MC_RANK_FINALIZING: "finalized",
    contract.MC_RANK_ABORTED: "aborted",
    contract.MC_RANK_EXITED: "exited",
}


def _end_ns(segment: np.void, node: np.void | None) -> int:
    """End of a rank: its MPI_Finalize; without one, the last time at which it was known to be alive."""
    if segment["t_finalize"]:
        return int(segment["t_finalize"])
    signs = [int(segment["t_last"]), int(segment["t_init"]), contract.latest_call_ns(segment)]
    if node is not None:
        signs.append(int(node["t_last"]))  # a rank that computes makes no calls, but the agent saw it later
    return max(signs)


def is_running(segment: np.void) -> bool:
    """Whether the process of a segment's rank is alive, and not a later process with the same PID."""
    return stat_fields(segment["pid"])[19:20] == [str(segment["pid_start_ticks"])]


def _state(segment: np.void) -> str:
    state = _STATES.get(int(segment["state"]), "lost")
    return state if state != "running" or is_running(segment) else "lost"


def ranks(segments: Sequence[np.void], node: np.void | None) -> Table:
    """The table `ranks` of one node; `node` is None if no agent watched the job."""
    t_first = min(int(segment["t_init"]) for segment in segments)
    columns: dict[str, list[Any]] = {
        "rank": [int(s["world_rank"]) for s in segments],
        "pid": [int(s["pid"]) for s in segments],
        "n_cores": [int(s["n_cores"]) for s in segments],
        "state": [_state(s).encode() for s in segments],
        "init_s": [(int(s["t_init"]) - t_first) * 1e-9 for s in segments],
        "wall_s": [(_end_ns(s, node) - int(s["t_init"])) * 1e-9 for s in segments],
    }
    known = {column.name for column in COLUMNS["ranks"]}
    for counter in contract.counters():
        if counter.name in known:
            columns[counter.name] = [
                int(s["counters"][counter.name])
                + sum(int(lane["head"]["counters"][counter.name]) for lane in contract.lanes(s))
                for s in segments
            ]
    used = [_used(s) for s in segments]
    return table("ranks", columns | {name: [row[name] for row in used] for name in used[0]})


def _used(segment: np.void) -> dict[str, float]:
    """A rank's usage from MPI_Init until MPI_Finalize, or until now.

    The waits inside these two calls are left out: they depend on launcher and keeper.
    """
    pid = int(segment["pid"]) if is_running(segment) else 0
    before = told(segment["used_at_init"])
    has_ended = bool(segment["used_at_finalize"]["is_known"])
    now = told(segment["used_at_finalize"]) if has_ended else usage(pid)
    used = {name: now[name] - before[name] for name in USED}
    used["cpu_s"] = float(np.maximum(used["cpu_s"], 0.0))  # /proc counts whole ticks, so this can be below 0
    # /proc leaves out threads that have ended. If a sum has shrunk for that reason, the usage is unknown.
    used = {name: value if value >= 0 else np.nan for name, value in used.items()}
    return used | {"peak_rss_bytes": peak_rss_bytes(pid)}
