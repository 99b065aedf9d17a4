"""Metrics of jobs: names that last, and users who may answer anything."""

import json
import math
import os
import re
import stat
import sys
import time
from pathlib import Path

import pytest

metrics = pytest.importorskip("mpicoloc.job.metrics", reason="not installed: prometheus-client")
generate_latest = pytest.importorskip("prometheus_client").generate_latest
DASHBOARD = Path(__file__).resolve().parents[3] / "packaging" / "grafana" / "jobs.json"
BOARD = {"uid": 0, "n_ranks": 2, "age_s": 5.0, "command": None}


def row(number, name, **more):
    return BOARD | {"pid": number, "id": name} | more


def test_a_job_keeps_its_name_and_no_two_share_one():
    collector = metrics.JobCollector()

    def names(*rows):
        return [found["name"] for found in collector._named(list(rows))]

    assert names(row(1, "12"), row(2, "12"), row(3, "12-2")) == ["12", "12-2", "12-2-2"]
    assert names(row(2, "12"), row(3, "12-2")) == ["12-2", "12-2-2"], "the oldest ended"
    assert names(row(2, "12"), row(4, "12")) == ["12-2", "12"]


@pytest.mark.parametrize("value", ["1.2", None, [1], {"value": {}}, 10**400, math.nan, math.inf])
def test_what_is_no_number_is_left_out(monkeypatch, value):
    by = [value, {"id": value, "slowdown": value}, {"id": "9", "slowdown": {"value": value}}]
    rows = [
        row(1, "7", slowdown={"value": value}, mpi_frac=value, co_runners=by),
        row(2, "8", slowdown=value, mpi_frac=0.5, co_runners=value),
    ]
    monkeypatch.setattr(metrics, "_rows", lambda: rows)
    found = {(one.name, one.labels["job"]): one.value
             for metric in metrics.JobCollector().collect() for one in metric.samples}  # fmt: skip
    assert not {name for name, _ in found} & {"mpicoloc_job_slowdown", "mpicoloc_job_corunner_slowdown"}
    assert found["mpicoloc_job_mpi_time_ratio", "8"] == 0.5
    assert ("mpicoloc_job_mpi_time_ratio", "7") not in found


def test_the_slowdown_by_each_co_runner_has_its_id(monkeypatch):
    by = [
        {"id": name, "slowdown": {"value": value}} for name, value in (("9", 1.4), ("\ud800", 1.1), (7, 2.0))
    ]
    monkeypatch.setattr(metrics, "_rows", lambda: [row(1, "7", co_runners=by, command="\ud800")])
    registry = metrics.CollectorRegistry()
    registry.register(metrics.JobCollector())
    page = generate_latest(registry).decode()
    lines = [line for line in page.splitlines() if line.startswith("mpicoloc_job_corunner_slowdown{")]
    assert sorted(lines) == [f'mpicoloc_job_corunner_slowdown{{corunner="{name}",job="7"}} {value}'
                             for name, value in (("9", 1.4), ("?", 1.1))]  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of another user")
@pytest.mark.parametrize(
    ("text", "known"),
    [
        ('echo [{\\"pid\\": 5, \\"mpi_frac\\": 0.5}]', {5}),
        ("echo garbage", set()),
        ("echo [[1]]", set()),
        ("echo [{}]", set()),
        ("sleep 600 & exit", set()),
        ("sleep 600", set()),
        ("yes", set()),
        ("exit 1", set()),
    ],
)
def test_a_users_process_may_do_anything(monkeypatch, text, known):
    monkeypatch.setattr(metrics, "python_module", lambda name: ["/bin/sh", "-c", f"{text}; :"])
    monkeypatch.setenv("MPICOLOC_SHM_DIR", "/dev/shm")
    began_s = time.monotonic()
    assert set(metrics._rows_of(54321, began_s + 1.0)) == known
    assert time.monotonic() - began_s < 5.0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of another user")
def test_a_user_whose_process_hangs_takes_no_time_from_others(monkeypatch):
    rows = [{"pid": i, "uid": 54321 + i, "id": f"{i}", "n_ranks": 1, "age_s": 1.0} for i in range(3)]
    text = (
        '[ $(id -u) = 54321 ] && sleep 600; echo "[{\\"pid\\": $(($(id -u) - 54321)), \\"mpi_frac\\": 0.5}]"'
    )
    monkeypatch.setattr(metrics, "python_module", lambda name: ["/bin/sh", "-c", f"{text}; :"])
    monkeypatch.setattr(metrics, "_CHILDREN_S", 2.0)
    monkeypatch.setattr(metrics, "_uid_of", lambda row: row["uid"])
    monkeypatch.setattr(metrics.live, "jobs", list)
    monkeypatch.setattr(metrics.live, "as_json", lambda jobs, before: rows)
    assert [row.get("mpi_frac") for row in metrics._rows()] == [None, 0.5, 0.5]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of another user")
def test_a_users_process_has_nothing_of_root(monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    tell = "import os, json; print(json.dumps([{'pid': 1, 'ids': [*os.getresuid(), *os.getresgid()], " \
           "'groups': os.getgroups(), 'env': sorted(os.environ)}]))"  # fmt: skip
    python = "/usr/bin/python3" if not stat.S_IMODE(os.stat("/root").st_mode) & 1 else sys.executable
    monkeypatch.setattr(metrics, "python_module", lambda name: [python, "-c", tell])
    (found,) = metrics._rows_of(54321, time.monotonic() + 20.0).values()
    assert found["ids"] == [54321] * 3 + [metrics._NOBODY] * 3 and found["groups"] == []
    assert "SECRET" not in found["env"]


@pytest.mark.parametrize("uid", [2**32 - 1, 4242])
def test_a_forged_user_starts_nothing(uid):
    assert metrics._uid_of(row(os.getpid(), "7", uid=uid)) is None
    assert metrics._uid_of(row(2**22 + 5, "7", uid=uid)) is None, "no such process"


def test_the_dashboard_asks_for_what_there_is():
    names = {f"mpicoloc_job_{name}" for name in metrics.METRICS} | {
        "mpicoloc_job_info",
        "mpicoloc_job_corunner_slowdown",
    }
    asked = set(re.findall(r"mpicoloc_\w+", DASHBOARD.read_text()))
    assert asked <= names and len(asked) > 5
    assert json.loads(DASHBOARD.read_text())["panels"]
