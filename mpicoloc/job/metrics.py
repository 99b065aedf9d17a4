"""The jobs on this node as Prometheus metrics."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import HTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from mpicoloc import messages
from mpicoloc.errors import MALFORMED, MpicolocError
from mpicoloc.job import live
from mpicoloc.job.wrap import python_module
from mpicoloc.profile.machine import user

METRICS = {
    "slowdown": ("Slowdown so far: run time beside the co-runners over run time alone.", "slowdown.value"),
    "slowdown_low": ("Lower bound of the slowdown's 95 % interval.", "slowdown.low"),
    "slowdown_high": ("Upper bound of the slowdown's 95 % interval.", "slowdown.high"),
    "co_runners": ("Other jobs under mpicoloc that shared this node with it.", "n_co_runners"),
    "overhead_ratio": ("Share of the run time that mpicoloc costs.", "overhead_frac"),
    "mpi_time_ratio": ("Share of the time inside MPI.", "mpi_frac"),
    "run_delay_ratio": ("Share of the time that ranks could run and had no processor.", "run_delay_frac"),
    "foreign_delay_ratio": (
        "Share of the time that ranks had no processor while all co-runners stood still.",
        "foreign_delay_frac",
    ),
    "node_ranks": ("Ranks on this node.", "n_ranks"),
    "age_seconds": ("Time since the job began.", "age_s"),
}
"""Meaning of each metric, and its key in a row of ``mpicoloc top --json``. Names lack the prefix
``mpicoloc_job_``."""
_NOBODY = 65534
_N_CHILDREN, _CHILDREN_S = 16, 5.0
"""Largest number of child processes at a time, and time limit for the children of all users, s."""
_MOST_BYTES = 1 << 22
_MOST_LETTERS, _MOST_CO_RUNNERS = 256, 64


def serve(port: int, address: str) -> HTTPServer:
    """A server of the metrics page, in its own thread; raises `OSError` if it cannot listen there."""
    registry = CollectorRegistry()
    registry.register(JobCollector())
    return start_http_server(port, address, registry)[0]


class JobCollector(Collector):
    """Collector of the jobs on this node; after each reading it waits for 19 times the reading's duration."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: list[dict[str, Any]] = []
        self._names: dict[tuple[int, str], str] = {}
        self._next_s = 0.0

    def collect(self) -> Iterator[Metric]:
        """Metrics of all jobs, for the registry."""
        rows = self._look()
        info = InfoMetricFamily("mpicoloc_job", "The job's user and command.", labels=["job"])
        for row in rows:
            command = _label(row["command"]) or ""
            info.add_metric([row["name"]], {"user": user(row["uid"]), "command": command})
        yield info
        for name, (meaning, key) in METRICS.items():
            metric = GaugeMetricFamily(f"mpicoloc_job_{name}", meaning, labels=["job"])
            for row in rows:
                value = _number(row, key)
                if value is not None:
                    metric.add_metric([row["name"]], value)
            yield metric
        yield _by_co_runner(rows)

    def _look(self) -> list[dict[str, Any]]:
        with self._lock:
            began_s = time.monotonic()
            if began_s >= self._next_s:
                self._rows = self._named(_rows())
                ended_s = time.monotonic()
                self._next_s = ended_s + (ended_s - began_s) * (1 / live.MOST_FRAC - 1)
            return self._rows

    def _named(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows with unique names: two jobs with the id 12 are named 12 and 12-2. A job keeps its name."""
        jobs = [(row["pid"], row["id"]) for row in rows]
        self._names = {job: self._names[job] for job in jobs if job in self._names}
        for job in jobs:
            name, n = job[1], 1
            while job not in self._names and name in self._names.values():
                n += 1
                name = f"{job[1]}-{n}"
            self._names.setdefault(job, name)
        return [row | {"name": self._names[job]} for row, job in zip(rows, jobs, strict=True)]


def _by_co_runner(rows: list[dict[str, Any]]) -> Metric:
    """The slowdown by each co-runner whose effect could be separated."""
    meaning = "Slowdown so far by one co-runner."
    metric = GaugeMetricFamily("mpicoloc_job_corunner_slowdown", meaning, labels=["job", "corunner"])
    for row in rows:
        found = row.get("co_runners")
        known = found[:_MOST_CO_RUNNERS] if isinstance(found, list) else []
        values = {
            _label(one.get("id")): _number(one, "slowdown.value") for one in known if isinstance(one, dict)
        }
        for name, value in values.items():
            if name is not None and value is not None:
                metric.add_metric([row["name"], name], value)
    return metric


def _label(text: Any) -> str | None:
    """A label from the untrusted output of a user's process; None if it is not text."""
    return text[:_MOST_LETTERS].encode(errors="replace").decode() if isinstance(text, str) else None


def _number(row: dict[str, Any], key: str) -> float | None:
    """The number with a dotted key, such as "slowdown.value"; None if it is not known."""
    value: Any = row
    for word in key.split("."):
        value = value.get(word) if isinstance(value, dict) else None
    try:
        return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
    except OverflowError:  # from a hostile user's process
        return None


def _rows() -> list[dict[str, Any]]:
    """The rows of ``mpicoloc top --json``; only root gets more on other users' jobs than the board has."""
    try:
        rows = live.as_json(live.jobs(), {})
    except MpicolocError as error:
        messages.trouble(str(error))
        return []
    others = {uid for row in rows if (uid := _uid_of(row)) is not None} if os.geteuid() == 0 else set()
    until_s = time.monotonic() + _CHILDREN_S
    # In parallel, so that one user's hanging process does not delay the others.
    with ThreadPoolExecutor(_N_CHILDREN) as pool:
        found = zip(others, pool.map(lambda uid: _rows_of(uid, until_s), others), strict=True)
        known = {(uid, pid): row for uid, own in found for pid, row in own.items()}
    board = ("id", "uid", "pid", "n_ranks", "age_s")
    return [known.get((row["uid"], row["pid"]), row) | {name: row[name] for name in board} for row in rows]


def _uid_of(row: dict[str, Any]) -> int | None:
    """Another user who owns a job, verified by the job's process: anybody can write to the board."""
    try:
        owner = os.stat(f"/proc/{row['pid']}").st_uid
    except OSError:
        return None
    return owner if owner == row["uid"] != os.geteuid() else None


def _rows_of(uid: int, until_s: float) -> dict[int, dict[str, Any]]:
    """Rows of a user's jobs by `pid`, read by a process of that user, so that root opens no user's files."""
    own = {name: os.environ[name] for name in ("PATH", "MPICOLOC_SHM_DIR") if name in os.environ}
    null = subprocess.DEVNULL
    try:
        with subprocess.Popen(
            [*python_module("mpicoloc"), "top", "--json"],
            user=uid,
            group=_NOBODY,
            extra_groups=[],
            cwd="/",
            env=own,
            stdin=null,
            stdout=subprocess.PIPE,
            stderr=null,
            start_new_session=True,
        ) as child:
            try:
                rows = json.loads(_all_of(child.stdout.fileno() if child.stdout else -1, until_s))
            finally:
                os.killpg(child.pid, signal.SIGKILL)
        return {row["pid"]: {"command": None} | row for row in rows}
    except (OSError, *MALFORMED) as error:
        messages.detail(f"cannot read the jobs of {user(uid)}: {error}")
        return {}


def _all_of(pipe: int, until_s: float) -> bytes:
    """Read a pipe to its end; empty if that takes too long or exceeds `_MOST_BYTES`."""
    found = b""
    while len(found) < _MOST_BYTES and select.select([pipe], [], [], max(until_s - time.monotonic(), 0))[0]:
        part = os.read(pipe, 1 << 16)
        if not part:
            return found
        found += part
    return b""
