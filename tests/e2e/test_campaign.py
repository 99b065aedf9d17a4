"""A campaign of real jobs: interrupted, resumed, and with a program that fails."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jobs
import pytest

from mpicoloc.errors import DataError
from mpicoloc.job import init_barrier
from mpicoloc.pairing import campaign as campaign_file, campaign as campaign_folder, campaign as pair_runner
from mpicoloc.pairing.campaign import Experiment, Program
from mpicoloc.pmpi import contract

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
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
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=170, check=False)


def test_a_campaign(openmpi, tmp_path, shm_dir):
    (tmp_path / "programs.toml").write_text(PROGRAMS.format(program=openmpi.program))
    name = os.path.basename(openmpi.program)
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
    told = json.loads(done.stdout)["slowdowns"]
    found = {(each["target"], each["co_runner"]) for each in told}
    assert {each[end] for each in told for end in ("target_kind", "co_runner_kind")} <= {f"{name} x1"}
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
    """Kill a campaign after its first experiment; its launcher then ends the job by itself."""
    command = [sys.executable, "-m", "mpicoloc", "campaign", "programs.toml", "--out", "found", *arguments]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    noted = folder / "found" / "runs.jsonl"
    try:
        jobs.wait_until(lambda: noted.exists() and noted.read_text().count("\n"), "an experiment", 60)
        jobs.wait_until(lambda: left(folder), "a run", 60)
        process.kill()
        process.wait()
        jobs.wait_until(lambda: not left(folder), "the end of what it had started", 60)
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
    assert sorted(os.listdir(tmp_path / "found")) == [".lock", "profiles"]


def test_company_spoils_an_experiment(openmpi, tmp_path, shm_dir):
    """Another job of mpicoloc is on the node as long as the campaign runs."""
    program = f"{openmpi.program} finalize 1"
    (tmp_path / "programs.toml").write_text(f"rounds = 2\n[programs.a]\ncommand = '{program}'\nn_ranks = 1\n")
    company = [sys.executable, "-m", "mpicoloc", "run", "-n", "1", "--mpirun-arg=--oversubscribe"]
    company += ["--mpirun-arg=--bind-to", "--mpirun-arg=none", openmpi.program, "finalize", "90"]
    env = {**os.environ, "MPICOLOC_JOB_ID": "somebody-else"}
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(company, cwd=tmp_path, stdout=log, stderr=log, env=env)
    try:
        jobs.wait_until(lambda: Path(contract.board_path()).exists(), "the other job", 60)
        plan = campaign_file.read_file(str(tmp_path / "programs.toml"))
        told = []
        made = campaign_folder.make(
            plan, [Experiment(0, ("a",))], str(tmp_path / "found"), {}, lambda _, why: told.append(str(why))
        )
    finally:
        process.terminate()
        process.wait(60)
    assert made == 1, told
    assert "a: job somebody-else also ran on this node" in told[0]


def test_each_run_has_its_own_limit(tmp_path):
    """The short one is started again and again; each time its limit begins anew."""
    slow, short = (Program(name, ("sleep", length), limit_s=limit_s)
                   for name, length, limit_s in (("slow", "600", 1.5), ("short", "0.1", 1.0)))  # fmt: skip
    places = dict.fromkeys(range(2), tuple(os.sched_getaffinity(0)))
    made = pair_runner.Corun([slow, short], places, str(tmp_path / "profile"), {})
    with pytest.raises(
        DataError, match=r"slow beside short was ended because it ran for longer than its limit_s, 1\.5 s"
    ):
        made.run()
    assert len(made.runs) > 2
    assert all(run.process.returncode is not None for run in made.runs)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_campaign_that_is_ended_ends_what_it_started(tmp_path, number):
    """Of a shell that is killed with it the children stay; the next campaign finds them."""
    marks = tmp_path / "marks"
    marks.mkdir()
    script = f"touch {marks}/$$; sleep 601; true"
    (tmp_path / "programs.toml").write_text(f"[programs.slow]\ncommand = \"sh -c '{script}'\"\n")
    command = [sys.executable, "-m", "mpicoloc", "campaign", "programs.toml", "--out", "found"]
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        jobs.wait_until(lambda: os.listdir(marks), "a run", 60)
        second = campaign(tmp_path)
        assert second.returncode == 4
        assert "another campaign is running in found" in second.stderr
        process.send_signal(number)
        assert process.wait(60) == {signal.SIGTERM: 143}.get(number, -number)
        if number == signal.SIGKILL:
            jobs.wait_until(lambda: len(left(tmp_path)) == 1, "the shell's end", 10)
            (tmp_path / "programs.toml").write_text("[programs.short]\ncommand = 'false'\n")
            third = campaign(tmp_path, "--pairs", "1")
            assert "was killed; its remaining processes (1) were ended" in third.stderr
        assert left(tmp_path) == []
    finally:
        process.kill()
        process.wait()


def left(folder):
    """Processes of runs of the campaign in a folder."""
    entry = f"MPICOLOC_OUT={folder}/found/profiles/".encode()
    return [pid for pid in filter(str.isdigit, os.listdir("/proc"))
            if any(each.startswith(entry) for each in init_barrier.entries(pid, "environ"))]  # fmt: skip
