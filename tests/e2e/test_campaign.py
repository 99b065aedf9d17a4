"""A campaign of real jobs: interrupted, resumed, and with a program that fails."""

import json
import os
import signal
import subprocess
import sys

import jobs
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(110)]
PROGRAMS = """
rounds = 2
[programs.long]
command = "{program} finalize 2.5"
n_ranks = 1
[programs.short]
command = "{program} finalize 0.4"
n_ranks = 1
[programs.broken]
command = "sh -c 'echo no input file; exit 7'"
"""


def campaign(folder, *arguments):
    command = [sys.executable, "-m", "mpicoloc", "campaign", "programs.toml", "--out", "found", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def test_a_campaign(openmpi, tmp_path, shm_dir):
    (tmp_path / "programs.toml").write_text(PROGRAMS.format(program=openmpi.program))
    # One pair of five, that of the seed.
    some = ["--pairs", "1", "--seed", "1"]
    first = campaign(tmp_path, "--only", "long", "short", *some, "--dry-run")
    planned = {"0 pair long short", "0 solo long", "0 solo short",
               "1 pair short long", "1 solo long", "1 solo short"}  # fmt: skip
    assert set(first.stdout.splitlines()) == planned
    interrupt(tmp_path, "--only", "long", "short", *some)
    done = campaign(tmp_path, "--only", "long", "short", *some, "--json")
    assert done.returncode == 0, done.stderr
    assert "6 of 6" not in done.stderr  # what was made before the end is not made again
    found = {(each["target"], each["co_runner"]) for each in json.loads(done.stdout)["slowdowns"]}
    assert ("long", "short") in found or "long beside short: not known" in done.stderr
    runs = [json.loads(line) for line in (tmp_path / "found" / "runs.jsonl").read_text().splitlines()]
    assert len(runs) == 6
    for each in runs:
        programs = [run["program"] for run in each["runs"] if run["is_whole"]]
        assert set(programs) == set(each["names"])
        assert programs.count("long") == each["names"].count("long")
        assert all((tmp_path / "found" / run["profile"]).exists() for run in each["runs"])
    jobs.assert_nothing_left(shm_dir)


def interrupt(folder, *arguments):
    """Kill a campaign after its first experiment, and what it has started."""
    command = [sys.executable, "-m", "mpicoloc", "campaign", "programs.toml", "--out", "found", *arguments]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    noted = folder / "found" / "runs.jsonl"
    try:
        jobs.wait_until(lambda: noted.exists() and noted.read_text().count("\n"), "an experiment", 60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()


def test_a_program_that_fails_costs_only_its_own_experiments(openmpi, tmp_path, shm_dir):
    (tmp_path / "programs.toml").write_text(PROGRAMS.format(program=openmpi.program))
    done = campaign(tmp_path, "--only", "broken", "--pairs", "1")
    assert done.returncode == 1
    assert done.stderr.count("broken ended with exit code 7: no input file") == 4
    assert not (tmp_path / "found" / "runs.jsonl").exists()


def test_a_job_that_leaves_no_profile_is_told(tmp_path):
    (tmp_path / "programs.toml").write_text("[programs.plain]\ncommand = 'true'\n")
    done = campaign(tmp_path, "--pairs", "1")
    assert done.returncode == 1
    assert "plain left no profile" in done.stderr
    assert os.listdir(tmp_path / "found") == ["profiles"]
