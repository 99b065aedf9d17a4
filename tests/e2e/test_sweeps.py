"""Sweeps as real processes: killed and gone on with, and handed out to the ranks of mpirun."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jobs
import processes
import pytest

WORK = Path(__file__).resolve().parents[1] / "support" / "sweep_work.py"
LIMIT_S = 100
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def command(folder, n_rows):
    """A sweep of so many rows that each take about a tenth of a second."""
    words = ["--pattern", "alltoall", "--hosts", "32", "--bytes", "64KiB", "--no-base", "--json"]
    words += ["--topology", "XGFT(2;8,4;1,2)", "--link-rate", "100Gbit/s", "--routing", "random"]
    sweep = ["--sweep", "random-state", *map(str, range(n_rows))]
    return [sys.executable, "-m", "mpicoloc", "replay", *words, "--out", str(folder), *sweep]


def is_gone(group):
    return not processes.matching(
        lambda one: processes.stat(one)[2] == str(group) and processes.is_running(one)
    )


def noted(rows):
    return rows.read_text().splitlines() if rows.exists() else []


def test_a_killed_sweep_leaves_no_process_and_goes_on_where_it_was(tmp_path):
    rows = tmp_path / "sweep" / "rows.jsonl"
    killed = subprocess.Popen(
        [*command(rows.parent, 400), "--processes", "2"], start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        jobs.wait_until(lambda: len(noted(rows)) >= 3, "three rows", LIMIT_S)
        killed.kill()
        killed.wait(LIMIT_S)
        jobs.wait_until(lambda: is_gone(killed.pid), "the end of all", LIMIT_S)
    finally:
        if not is_gone(killed.pid):
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait(LIMIT_S)
    before = noted(rows)
    n_before = len(before)
    assert n_before < 400
    with rows.open("a") as file:
        file.write('{"key": "cut o')
    n_rows = n_before + 4
    done = subprocess.run(
        [*command(rows.parent, n_rows), "--processes", "2"], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    assert "the last row, line" in done.stderr
    settings = [row["settings"]["random-state"] for row in json.loads(done.stdout)]
    assert settings == [str(i) for i in range(n_rows)]
    after = noted(rows)
    assert after[:n_before] == before, "no row was made twice"
    # What was running when it was killed may be of numbers beyond those asked for now.
    assert len({json.loads(line)["key"] for line in after}) == len(after)
    assert set(settings) <= {json.loads(line)["settings"]["random-state"] for line in after}


def mpirun(family, n_ranks, *words, code=0):
    """Run a command under the launcher of a family and return the finished process."""
    done = subprocess.run(
        [jobs.need_commands(family)[1], "-n", str(n_ranks), *jobs.FAMILIES[family], *words],
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("family", ["openmpi", "mpich"])
def test_the_ranks_of_mpirun_do_the_work(family, tmp_path):
    program = [sys.executable, str(WORK), str(tmp_path)]
    pid, *squares = map(int, mpirun(family, 3, *program).stdout.split())
    assert squares == [x * x for x in range(8)]
    workers = {json.loads(line)["row"]["pid"] for line in noted(tmp_path / "rows.jsonl")}
    assert len(workers) == 2 and pid not in workers


@pytest.mark.parametrize("family", ["openmpi", "mpich"])
def test_a_sweep_under_mpirun_goes_on_with_rows_of_this_machine(family, tmp_path):
    folder = tmp_path / "sweep"
    subprocess.run(
        [*command(folder, 2), "--processes", "1"], capture_output=True, timeout=LIMIT_S, check=True
    )
    before = noted(folder / "rows.jsonl")
    rows = json.loads(mpirun(family, 3, *command(folder, 5)).stdout)
    assert [row["settings"]["random-state"] for row in rows] == list("01234")
    after = noted(folder / "rows.jsonl")
    assert after[:2] == before and len(after) == 5


@pytest.mark.parametrize("family", ["openmpi", "mpich"])
def test_a_wrong_call_under_mpirun_ends_all_ranks(family, tmp_path):
    words = [*command(tmp_path / "sweep", 2), "--placement", "none"]
    done = mpirun(family, 3, *words, code=2)
    assert done.stderr.count("placement 'none' is unknown") == 1


@pytest.mark.parametrize("family", ["openmpi", "mpich"])
def test_processes_are_refused_under_mpirun(family, tmp_path):
    done = mpirun(family, 3, *command(tmp_path / "sweep", 2), "--processes", "2", code=2)
    assert done.stderr.count("--processes has no effect under mpirun, whose ranks do the work") == 1


@pytest.mark.parametrize("family", ["openmpi", "mpich"])
def test_the_ranks_of_mpirun_simulate_batch_systems(family, tmp_path):
    log = tmp_path / "log.swf"
    log.write_text("".join(f"{i} {i} -1 {i} 1 -1 -1 1 9 -1 1 1 1 1 1 1 -1 -1\n" for i in range(1, 9)))
    words = [sys.executable, "-m", "mpicoloc", "batch", str(log), "--topology", "XGFT(2;2,2;1,1)", "--json"]
    words += ["--out", str(tmp_path / "sweep"), "--sweep", "allocation", "first-available", "exclusive"]
    words += ["--sweep", "order", "fcfs", "easy"]
    rows = json.loads(mpirun(family, 3, *words).stdout)
    assert [(row["settings"]["order"], row["n_jobs"]) for row in rows] == [("fcfs", 8), ("easy", 8)] * 2
    assert len(noted(tmp_path / "sweep" / "rows.jsonl")) == 4
