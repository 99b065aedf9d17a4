"""`mpicoloc bubble propagation` with a real mpirun and real bubbles, on two names of this machine."""

import json
import os
import sys
from pathlib import Path

import pytest

from mpicoloc.cli import main

APP = [sys.executable, "-c", "import time; time.sleep(0.2)"]
HOSTS = ["--hosts", "localhost,127.0.0.1"]
pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("calibrated")]


@pytest.fixture
def mpirun():
    path = os.path.join(os.path.dirname(sys.executable), "mpirun")
    if not os.path.exists(path):
        pytest.skip("no mpirun beside this Python")
    return ["--mpirun", path]


def test_a_matrix_of_real_runs(mpirun, capfd):
    words = ["--max-level", "2", "--settle-s", "2", "--uneven-runs", "1", "--propagation", "m.csv",
             "--name", "sleeps", "--runs", "runs.jsonl", "--json"]  # fmt: skip
    command = ["bubble", "propagation", *HOSTS, *mpirun, *words, "-v", "--", *APP]
    assert main.main(command) == 0
    done = capfd.readouterr()
    found = json.loads(done.out)
    assert found["n_nodes"] == 2 and [len(row) for row in found["slowdown"]] == [2, 2]
    assert found["is_measured"][0][1] and found["is_measured"][1][1]
    assert found["policy"]["n_samples"] == 1
    assert "levels 0 0: " in done.err and "levels 2 2: " in done.err
    assert os.path.exists("m.csv")
    n_lines = len(Path("runs.jsonl").read_text().splitlines())
    assert n_lines > 4
    assert main.main(command) == 0
    again = capfd.readouterr()
    assert json.loads(again.out) == found
    assert len(Path("runs.jsonl").read_text().splitlines()) == n_lines


def test_an_uncalibrated_node_is_one_line(mpirun, capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    assert main.main(["bubble", "propagation", *HOSTS, *mpirun, "-q", "--", *APP]) == 4
    errors = capfd.readouterr().err
    assert errors.startswith("mpicoloc: a bubble ended before the program: bubbles are not calibrated")
    assert "run `mpicoloc bubble calibrate`" in errors and errors.count("\n") == 1
