"""`mpicoloc exporter`: running jobs in Prometheus, and for whom."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

import jobs
import pytest
from prometheus_client.parser import text_string_to_metric_families

DASHBOARD = Path(__file__).resolve().parents[3] / "packaging" / "grafana" / "jobs.json"
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(jobs.LIMIT_S + 40)]


def fetch(url):
    """The page; None while nobody answers."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()
    return None


def values_of(page):
    """Value of each metric of each job."""
    families = text_string_to_metric_families(page)
    return {(one.name, one.labels["job"]): one.value for family in families for one in family.samples}


@contextlib.contextmanager
def exporter(*before):
    """An exporter on a free port; gives the address of its page."""
    command = [*before, sys.executable, "-m", "mpicoloc", "exporter", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process.stderr.readline().split()[-1]
        finally:
            process.terminate()
            assert process.wait(jobs.LIMIT_S) == 0


@pytest.fixture
def prometheus(tmp_path):
    """Start a Prometheus that scrapes a page every second; gives what answers its queries."""
    processes = []

    def start(page):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        target = urllib.parse.urlsplit(page).netloc
        (tmp_path / "prometheus.yml").write_text(
            "scrape_configs:\n- {job_name: mpicoloc, honor_labels: true, scrape_interval: 1s, "
            f"static_configs: [{{targets: ['{target}']}}]}}\n"
        )
        flags = {"config.file": "prometheus.yml", "storage.tsdb.path": "data", "web.listen-address": address}
        command = ["prometheus", *(f"--{name}={value}" for name, value in flags.items())]
        processes.append(subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL))

        def query(expression):
            page = fetch(f"http://{address}/api/v1/query?query={urllib.parse.quote(expression)}")
            return json.loads(page)["data"]["result"] if page else []

        return query

    yield start
    for process in processes:
        process.kill()
        process.wait(jobs.LIMIT_S)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="not installed: prometheus")
def test_a_prometheus_has_the_slowdown_of_running_jobs(start, tmp_path, prometheus):
    mpi = jobs.need_mpi("openmpi", tmp_path, "../../../examples/heat2d.c")
    for name in ("one", "two"):
        start(mpi, "preload", 400, 10**6, n_ranks=1, name=name)
    with exporter() as page:
        query = prometheus(page)
        found = jobs.wait_until(
            lambda: len(found := query("mpicoloc_job_slowdown")) == 2 and found, "slowdowns"
        )
        names = {"one", "two"}
        assert {row["metric"]["job"] for row in found} == names
        for panel in json.loads(DASHBOARD.read_text())["panels"]:
            for target in panel["targets"]:
                assert query(target["expr"].replace("$node", ".*")), target["expr"]
        values = values_of(fetch(page))
        for job in names:
            ends = [values[f"mpicoloc_job_slowdown{end}", job] for end in ("_low", "", "_high")]
            assert sorted(ends) == ends and ends[0] > 0.5 and ends[2] < 10
            assert values["mpicoloc_job_co_runners", job] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts jobs of another user")
def test_root_has_the_numbers_of_all_users_and_a_user_only_own_ones(openmpi, started, shm_dir):
    shm_dir.chmod(0o1777)
    with tempfile.TemporaryDirectory(prefix="mpicoloc-users-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o777)
        words = ["finalize", jobs.LIMIT_S, 2000, Path(folder, "end")]
        for name, uid in {"own": None, "other": 54321}.items():
            started.append(jobs.start(openmpi, Path(folder), "preload", *words, name=name, uid=uid))
        with exporter(*jobs.reach()) as page:
            names = {("mpicoloc_job_mpi_time_ratio", name) for name in ("own", "other")}
            jobs.wait_until(lambda: names <= set(values_of(fetch(page))), "numbers of both")
        with exporter(*jobs.as_user(54322)) as page:
            found = values_of(fetch(page))
            assert found["mpicoloc_job_node_ranks", "other"] == 2, "the board is for all"
            assert not names & set(found)
        Path(folder, "end").touch()
        assert [job.wait() for job in started] == [0, 0]


def test_a_port_that_is_taken_is_told(shm_dir):
    with exporter() as page:
        port = urllib.parse.urlsplit(page).port
        command = [sys.executable, "-m", "mpicoloc", "exporter", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=jobs.LIMIT_S, check=False)
    assert done.returncode == 4 and done.stderr.count("\n") == 1
    assert f"port {port} of 127.0.0.1" in done.stderr and "--port" in done.stderr
