"""Real jobs, pairs chosen by what their first runs told, prices in the ledger: the benchmark, short."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_jobs import is_possible

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.timeout(240)]


def test_every_job_of_a_queue_ends_once_and_is_charged_once():
    if not is_possible():
        pytest.skip("no Slurm here, or not root")
    words = ["--jobs", "8", "--seconds", "1", "--programs", "heat2d,nbody", "--ways", "pairs", "--json"]
    command = [sys.executable, "slurm_queue.py", *words]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, timeout=220)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["n_completed"] == row["n_profiles"] == row["n_jobs"] == 8
    assert row["n_shared"] >= 2
    assert row["charged_su"] > 0
