"""Whatever is away when a step ends, it has a record, once: slurmctld, the profile, the node."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import jobs
import processes
import pytest
from slurm_jobs import LIMIT_S, command_of, daemon

from mpicoloc.cli.main import main
from mpicoloc.profile import signature
from mpicoloc.slurm import records as files

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
WAITS = """
touch begun.$SLURM_JOB_ID
while ! [ -e go.$SLURM_JOB_ID ]; do sleep 0.05; done
./heat2d 60 100
touch ended.$SLURM_JOB_ID
"""


def records(cluster, job):
    """Records of a job, by the start in their names and step; each is the site's."""
    found = {}
    for path in files.record_paths(str(cluster.spool), job):
        sealed = files.read_record(path)
        assert sealed.reason(signature.read_key(cluster.key)) == ""
        found[Path(path).name.split(".")[1], sealed.record.step] = sealed.record
    return found


def notes(cluster, job):
    return {
        note.step: note for note in map(files.read_note, files.note_paths(str(cluster.spool), job)) if note
    }


def time_of(cluster, what, job):
    return (cluster.work / f"{what}.{job}").stat().st_mtime


@contextlib.contextmanager
def without_slurmctld(cluster):
    """It is killed, and the one that is started in its place stands still."""
    before = daemon(cluster, "slurmctld")
    os.kill(before, signal.SIGKILL)

    def next_one():
        found = daemon(cluster, "slurmctld")
        return found if found != before else None

    new = jobs.wait_until(next_one, "the next slurmctld", LIMIT_S)
    os.kill(new, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(new, signal.SIGCONT)


def test_a_step_that_ends_while_slurmctld_is_away_has_its_record_and_signature(cluster):
    script = f"cat >task.$SLURM_JOB_ID <<'END'\n{WAITS}END\nsrun sh task.$SLURM_JOB_ID\n"
    job = cluster.submit(script, "-N1", "-n1", "-w", "n1", "--mpicoloc")
    jobs.wait_until((cluster.work / f"begun.{job}").exists, "the step", LIMIT_S)
    assert set(notes(cluster, job)) == {"batch", "0"}
    before = len(cluster.log("n1"))
    cluster.save(job)
    with without_slurmctld(cluster):
        (cluster.work / f"go.{job}").touch()
        failed = f"job {job}: `mpicoloc slurm close` ended with"
        jobs.wait_until(lambda: failed in cluster.log("n1")[before:], "the plugin to give up", LIMIT_S)
        assert not records(cluster, job) and notes(cluster, job)["0"].ended_unix_s
    jobs.wait_until(lambda: len(records(cluster, job)) == 2 and not notes(cluster, job), "records", LIMIT_S)
    found = {step: record for (_, step), record in records(cluster, job).items()}
    assert found["0"].n_cpus == found["batch"].n_cpus == 4
    took_s = time_of(cluster, "ended", job) - time_of(cluster, "begun", job)
    assert found["0"].ran_s == pytest.approx(took_s, abs=5.0)
    assert "0" in {step for _, step in cluster.signed(job)}


def test_a_step_without_a_profile_has_a_record(cluster):
    script = """
srun --exact -n1 sh -c './heat2d 60 100; rm -f $MPICOLOC_OUT'
srun -n1 sleep 2
"""
    job = cluster.submit(script, "-N1", "-n2", "-p", "shared", "--mpicoloc")
    assert cluster.wait(job)["ExitCode"] == "0:0"
    found = {step: record for (_, step), record in records(cluster, job).items()}
    assert {step: record.n_cpus for step, record in found.items()} == {"0": 1, "1": 2, "batch": 2}
    assert found["batch"].ran_s > found["1"].ran_s >= 2.0
    assert not cluster.signed(job) and not notes(cluster, job)


def test_daemons_of_mpirun_are_no_step_of_their_own(cluster):
    script = "mpirun.openmpi -N 1 ./heat2d.openmpi 60 100\n"
    if cluster.wait(cluster.submit(script, "-N2", "-n2"))["ExitCode"] != "0:0":
        pytest.skip("Open MPI 6 does not connect nodes that share an address")
    job = cluster.submit(script, "-N2", "-n2", "--mpicoloc")
    assert cluster.wait(job)["ExitCode"] == "0:0"
    assert {step: record.n_cpus for (_, step), record in records(cluster, job).items()} == {"batch": 8}
    assert not notes(cluster, job)


def test_each_start_of_a_requeued_job_has_records_of_its_own(cluster):
    script = """
if [ -z "$SLURM_RESTART_COUNT" ]; then touch begun.$SLURM_JOB_ID; srun sleep 100; fi
srun sleep 1
"""
    job = cluster.submit(script, "-N1", "-n1", "-w", "n2", "--requeue", "--mpicoloc")
    jobs.wait_until(lambda: "0" in notes(cluster, job), "the step", LIMIT_S)
    begun = {step: note.begun_unix_s for step, note in notes(cluster, job).items()}
    time.sleep(2)
    cluster.run("scontrol", "requeue", job)
    requeued_s = time.time()
    jobs.wait_until(lambda: cluster.facts(job)["JobState"] == "PENDING", "the epilog", LIMIT_S)
    first = records(cluster, job)
    assert {step for _, step in first} == {"batch", "0"} and len({start for start, _ in first}) == 1
    for (_, step), record in first.items():
        assert (record.restarts, record.n_cpus) == (0, 4)
        assert record.ran_s == pytest.approx(requeued_s - begun[step], abs=8.0) and record.ran_s > 1.5
    time.sleep(1.1)  # in the second in which it killed the job slurmd starts no other of this number
    cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    assert cluster.wait(job)["ExitCode"] == "0:0"
    both = records(cluster, job)
    assert len(both) == 4 and len({record.run for record in both.values()}) == 4
    assert sorted(record.restarts for record in both.values()) == [0, 0, 1, 1]
    assert not notes(cluster, job)


@pytest.mark.parametrize("requeue", ["--no-requeue", "--requeue"])
def test_the_records_of_a_node_that_died_are_made_later(cluster, monkeypatch, capsys, requeue):
    job = cluster.submit("srun sleep 1000", "-N1", "-n1", "-w", "n4", "--mpicoloc", requeue)
    jobs.wait_until(lambda: "0" in notes(cluster, job), "the step", LIMIT_S)
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    settle = ["slurm", "settle", "--spool", str(cluster.spool), "--key-file", str(cluster.key)]
    assert main(settle) == 0 and len(notes(cluster, job)) == 2, "it runs"
    with died(cluster, "n4", job):
        cluster.run("scontrol", "update", "NodeName=n4", "State=DOWN", "Reason=died")
        state = "NODE_FAIL" if requeue == "--no-requeue" else "PENDING"
        jobs.wait_until(lambda: cluster.facts(job)["JobState"] == state, state, LIMIT_S)
        capsys.readouterr()
        assert main(settle) == 0
        assert len(capsys.readouterr().out.splitlines()) == 2 and not notes(cluster, job)
        assert main(settle) == 0 and not capsys.readouterr().out
    found = {step: record for (_, step), record in records(cluster, job).items()}
    assert set(found) == {"0", "batch"} and found["0"].run_of("") == found["batch"].run_of("")
    assert all((record.n_cpus, record.restarts) == (4, 0) for record in found.values())
    cluster.run("scancel", job)


@contextlib.contextmanager
def died(cluster, node, job):
    """A node of which all of a job and what would clean up after it is gone; it comes back at the end."""
    slurmd = daemon(cluster, "slurmd", f"-N\0{node}\0")
    os.kill(slurmd, signal.SIGSTOP)
    steps = processes.matching(lambda one: command_of(one.name).startswith(f"slurmstepd: [{job}."))
    tasks = processes.matching(cluster.owns, environ=[f"SLURM_JOB_ID={job}".encode()])
    for pid in (*steps, *tasks):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    try:
        yield
    finally:
        os.kill(slurmd, signal.SIGCONT)
        # Refused where it is back already, as its slurmd has told of itself.
        resume = ["scontrol", "update", f"NodeName={node}", "State=RESUME"]
        subprocess.run(resume, env=cluster.env, capture_output=True, timeout=LIMIT_S, check=False)

        def is_back():
            return "idle" in cluster.run("sinfo", "-h", "-n", node, "-p", "whole", "-o", "%T")

        jobs.wait_until(is_back, f"{node} to be back", LIMIT_S)
