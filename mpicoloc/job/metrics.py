"""The jobs on this node as metrics of Prometheus."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
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
    "slowdown": ("slowdown so far: run time beside the co-runners over run time alone", "slowdown.value"),
    "slowdown_low": ("lower bound of the slowdown's 95 % interval", "slowdown.low"),
    "slowdown_high": ("upper bound of the slowdown's 95 % interval", "slowdown.high"),
    "co_runners": ("other jobs under mpicoloc that shared this node with it", "n_co_runners"),
    "overhead_frac": ("part of the run time that mpicoloc costs", "overhead_frac"),
    "mpi_frac": ("part of the ranks' time in MPI", "mpi_frac"),
    "run_delay_frac": ("part of the time that ranks could run and had no processor", "run_delay_frac"),
    "foreign_delay_frac": ("likewise while all co-runners under mpicoloc stood still", "foreign_delay_frac"),
    "ranks": ("ranks on this node", "n_ranks"),
    "age_seconds": ("time since the job began", "age_s"),
}
"""Names without their prefix ``mpicoloc_job_``; meanings; keys in a row of ``mpicoloc top --json``."""
_NOBODY = 65534
_CHILD_S = 5.0
_MOST_BYTES = 1 << 22


def serve(port: int, address: str) -> HTTPServer:
    """A server of the page, in a thread of its own; raises `OSError` if it cannot listen there."""
    registry = CollectorRegistry()
    registry.register(JobCollector())
    return start_http_server(port, address, registry)[0]


class JobCollector(Collector):
    """The jobs on this node as metrics of Prometheus; it looks again when that costs them little."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: list[dict[str, Any]] = []
        self._next_s = 0.0

    def collect(self) -> Iterator[Metric]:
        """Metrics of all jobs, for the registry."""
        rows = self._look()
        info = InfoMetricFamily("mpicoloc_job", "the job's user and command", labels=["job"])
        for row in rows:
            info.add_metric([row["id"]], {"user": user(row["uid"]), "command": row["command"] or ""})
        yield info
        for name, (meaning, key) in METRICS.items():
            metric = GaugeMetricFamily(f"mpicoloc_job_{name}", meaning, labels=["job"])
            for row in rows:
                value = _number(row, key)
                if value is not None:
                    metric.add_metric([row["id"]], value)
            yield metric

    def _look(self) -> list[dict[str, Any]]:
        with self._lock:
            began_s = time.monotonic()
            if began_s >= self._next_s:
                self._rows = list(_distinct(_rows()))
                ended_s = time.monotonic()
                self._next_s = ended_s + (ended_s - began_s) * (1 / live.MOST_FRAC - 1)
            return self._rows


def _number(row: dict[str, Any], key: str) -> float | None:
    """The number with this key, its words separated by points; None where it is not known."""
    value: Any = row
    for word in key.split("."):
        value = value.get(word) if isinstance(value, dict) else None
    return float(value) if isinstance(value, (int, float)) else None


def _distinct(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows, where Prometheus can tell jobs of one name apart: as 12, 12-2."""
    seen: dict[str, int] = {}
    for row in rows:
        seen[row["id"]] = n = seen.get(row["id"], 0) + 1
        yield row if n == 1 else row | {"id": f"{row['id']}-{n}"}


def _rows() -> Iterator[dict[str, Any]]:
    """The rows of ``mpicoloc top --json``; of other users' jobs only root knows more than the board."""
    try:
        rows = live.as_json(live.jobs(), {})
    except MpicolocError as error:
        messages.trouble(str(error))
        return
    others = {row["uid"] for row in rows} - {os.geteuid()} if os.geteuid() == 0 else set()
    known = {_which(row): row for uid in others for row in _rows_of(uid)}
    for row in rows:
        yield known.get(_which(row), row)


def _which(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["uid"], row["id"], str(row["cores"])


def _rows_of(uid: int) -> list[dict[str, Any]]:
    """The rows of a user's jobs, read by a process of this user: root opens no file of a user."""
    null = subprocess.DEVNULL
    with subprocess.Popen(
        [*python_module("mpicoloc"), "top", "--json"],
        user=uid,
        group=_NOBODY,
        extra_groups=[],
        cwd="/",
        stdin=null,
        stdout=subprocess.PIPE,
        stderr=null,
    ) as child:
        killer = threading.Timer(_CHILD_S, child.kill)
        killer.start()
        try:
            rows = json.loads(child.stdout.read(_MOST_BYTES) if child.stdout else b"")
            return [row for row in rows if _which(row)[0] == uid]
        except MALFORMED:
            return []  # it cannot read this installation, took too long, or is another program now
        finally:
            child.kill()
            killer.cancel()
