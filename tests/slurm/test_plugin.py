"""A real Slurm with the plugin: jobs that ask are measured, no other is touched, and nothing harms a job."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jobs
import pytest

from mpicoloc.cli.main import main
from mpicoloc.core.batch_system import PENDING, BatchJob
from mpicoloc.lab import slurm_cluster
from mpicoloc.pairing.features import run_of
from mpicoloc.profile import hdf5
from mpicoloc.profile.summary import summary
from mpicoloc.slurm import service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_step_that_asks_leaves_a_signed_profile_and_its_price(cluster, capsys):
    before = set(cluster.spool.glob("*.h5"))
    cluster.run("srun", "-N1", "-n2", "-J", "asks", "--mpicoloc", "./heat2d", "100", "1000")
    (path,) = set(cluster.spool.glob("*.h5")) - before
    profile = hdf5.read(path)
    assert profile.job.n_ranks == 2 and not profile.partial
    assert main(["verify", str(path), "--key-file", str(cluster.key)]) == 0
    told = cluster.price(profile.job.id)
    assert told["n_profiles"] == 1
    slowdown = profile.interference.slowdown  # None where so short a job was not seen to be alone
    assert told["slowdown"] == (slowdown and [slowdown.value, slowdown.low, slowdown.high])
    assert told["profile_fair_su"] == pytest.approx(profile.price.fair_su, abs=1e-9)


def test_jobs_that_share_cores_name_each_other(cluster):
    # Each rank begins when those of both jobs are there, however long Slurm took to start them.
    script = """
cat >task.$SLURM_JOB_ID <<'END'
touch here.$SLURM_JOB_ID.$SLURM_PROCID
while [ $(ls here.* | wc -l) -lt 4 ]; do sleep 0.05; done
exec ./heat2d 100 40000
END
srun -n2 --mpicoloc sh task.$SLURM_JOB_ID
"""
    found = [cluster.submit(script, "-n4", "-w", "n2", "-p", "shared") for _ in range(2)]
    for job in found:
        assert cluster.wait(job)["ExitCode"] == "0:0"
    profiles = [hdf5.read(path) for job in found for path in cluster.signed(job).values()]
    for profile, other in zip(profiles, reversed(found), strict=True):
        found = summary(profile)["interference"]
        assert [job["id"] for job in found["co_runners"]] == [str(other)]


@pytest.mark.parametrize(("family", "mpi"), [("openmpi", "pmix"), ("mpich", "pmi2")])
def test_each_step_of_a_script_has_its_own_profile(cluster, family, mpi):
    if mpi == "pmix" and not slurm_cluster.has_pmix():
        pytest.skip("Slurm's package has no plugin for PMIx")
    script = f"""
mpirun.{family} -n 2 ./heat2d.{family} 60 100
srun --mpi={mpi} sh -c 'exec ./heat2d.{family} 60 100'
"""
    name = f"steps-{family}"
    job = cluster.submit(script, "-N1", "-n2", "-J", name, "--mpicoloc=trace=100")
    assert cluster.wait(job)["ExitCode"] == "0:0", cluster.log("n1")
    steps = {step: hdf5.read(path) for (_, step), path in cluster.signed(job).items()}
    assert len(steps) == 2 and "batch" in steps, "Hydra starts its daemons in a step too"
    assert all(len(profile.tables["events"]) == 200 for profile in steps.values())
    assert cluster.price(job)["n_profiles"] == 2
    # The next job of this name is expected to take as long as both steps.
    known = service.ProfileHistory(str(cluster.spool))
    known.update()
    (user,) = {profile.job.user for profile in steps.values()}
    expected_s = known.features_of(BatchJob(0, user, name, PENDING, "whole", 1, 2, 2), 0.0).runtime_s
    solo_s = sum(run_of(profile).solo_s for profile in steps.values())
    assert expected_s == pytest.approx(solo_s, abs=1e-5)  # as fine as seconds since 1970 are in a double


def test_the_site_chooses_partitions_and_the_user_has_the_last_word(cluster):
    ask = ("srun", "-n1", "sh", "-c", "echo $LD_PRELOAD")
    cluster.site("partition=shared")
    assert cluster.run(*ask) == "\n"
    assert "libmpicoloc-auto.so" in cluster.run(ask[0], "-p", "shared", *ask[1:])
    assert cluster.run(ask[0], "-p", "shared", "--mpicoloc=off", *ask[1:]) == "\n"
    cluster.site("default=on")
    assert "libmpicoloc-auto.so" in cluster.run(*ask)


def test_what_a_measured_job_submits_has_a_profile_of_its_own(cluster):
    cluster.site("default=on")
    run = "mpirun.openmpi -n 1 ./heat2d.openmpi 60 50\n"
    (cluster.work / "next.sh").write_text(f"#!/bin/sh\n{run}")
    job = cluster.submit(f"{run}sbatch --parsable -n1 -o %j.log next.sh > next.id\n", "-n1")
    assert cluster.wait(job)["ExitCode"] == "0:0"
    submitted = int((cluster.work / "next.id").read_text())
    assert cluster.wait(submitted)["ExitCode"] == "0:0"
    for number in (job, submitted):
        ((start, path),) = cluster.signed(number).items()
        assert start[1] == "batch" and hdf5.read(path).job.id == str(number)
        assert cluster.price(number)["n_profiles"] == 1


def test_off_leaves_nothing_of_ours_inside_a_measured_job(cluster):
    show = "sh -c 'echo $LD_PRELOAD; env | grep MPICOLOC_; true'\n"
    script = f"srun -n1 {show}echo off\nsrun -Q -n1 --mpicoloc=off {show}"
    job = cluster.submit(script, "-n1", "--mpicoloc=trace=10")
    cluster.wait(job)
    measured, off = (cluster.work / f"{job}.log").read_text().split("off\n")
    assert "auto.so" in measured and f"/{job}.0.h5" in measured and "MPICOLOC_TRACE=10" in measured
    assert off == "\n"


def test_each_user_may_have_a_folder_and_needs_it_for_a_profile(cluster):
    folder = cluster.work / str(os.getuid())
    words = (f"out={cluster.work}/%u/%j.%s.h5", f"key_file={cluster.key}", f"spool={cluster.spool}")
    cluster.plugstack("default=on", *words)
    before, before_log = set(cluster.spool.glob("*.h5")), len(cluster.log("n1"))
    run = ("srun", "-N1", "-n2", "-w", "n1", "./heat2d", "60", "50")
    assert "conserved" in cluster.run(*run)
    assert cluster.log("n1")[before_log:].count(f"no folder {folder}, so step") == 1
    assert set(cluster.spool.glob("*.h5")) == before
    folder.mkdir(mode=0o700)
    assert "conserved" in cluster.run(*run)
    (path,) = set(cluster.spool.glob("*.h5")) - before
    assert hdf5.read(path).job.n_ranks == 2


def test_who_does_not_ask_runs_in_the_same_environment(cluster):
    def environment():
        lines = cluster.run("srun", "-n1", "-w", "n1", "env").splitlines()
        # Numbers of the job, its ports, processes and, in hexadecimal, its key; its unique name.
        return sorted(re.sub(r"(?<=SLUID=)\w+|[\da-f]{16}|\d+", "N", line) for line in lines)

    asked_not = environment()
    cluster.plugstack(None)
    assert asked_not == environment()


def test_exit_codes_are_the_jobs_own(cluster):
    cluster.run("srun", "-n1", "--mpicoloc", "sh", "-c", "exit 7", code=7)
    cluster.run("srun", "-n1", "--mpicoloc", "sh", "-c", "kill -9 $$", code=137)
    cluster.run("srun", "-n1", "--mpicoloc=often", "true", code=255)


@pytest.mark.parametrize(
    "words",
    [
        ("default=on", "library=/nowhere/libmpicoloc-auto.so"),
        ("default=on", "python=/nowhere/python"),
        ("default=on", "key_file=/nowhere/key", "spool=/nowhere"),
        ("default=on", "nonsense", "default=maybe", "out=relative", "partition=", "library=" + "/x" * 4000),
    ],
)
def test_a_broken_plugin_harms_no_job(cluster, words):
    cluster.site(*words)
    said = cluster.run("srun", "-N1", "-n2", "./heat2d", "60", "50")
    assert "conserved" in said


def test_a_missing_library_is_told_in_the_log(cluster):
    cluster.site("default=on", "library=/nowhere/library.so")
    before = len(cluster.log("n3"))
    cluster.run("srun", "-n1", "-w", "n3", "true")
    jobs.wait_until(lambda: "/nowhere/library.so cannot be read" in cluster.log("n3")[before:], "the line")


def test_the_epilog_removes_what_a_dead_job_left(cluster):
    def left():
        return [name for name in cluster.run("srun", "-n1", "-w", "n4", "ls", "/dev/shm").split()
                if name.startswith("mpicoloc.")]  # fmt: skip

    script = """
srun --mpicoloc ./heat2d 100 100000000 &
while ! ls /dev/shm/mpicoloc.*.seg; do sleep 0.1; done
sleep 0.5
pkill -9 -f 'mpicoloc-keepe[r]'; pkill -9 -f 'heat2d 100 10000000[0]'
wait
echo ended; ls /dev/shm
"""
    job = cluster.submit(script, "-n2", "-w", "n4")
    cluster.wait(job)
    assert ".seg" in (cluster.work / f"{job}.log").read_text().rpartition("ended")[2]
    jobs.wait_until(lambda: not [name for name in left() if name.endswith((".seg", ".node"))], "no files")


def test_a_restart_of_slurmctld_loses_neither_job_nor_price(cluster):
    script = "srun -n2 --mpicoloc ./heat2d 100 100; sleep 2\n"
    job = cluster.submit(script, "-n2")
    jobs.wait_until(lambda: cluster.signed(job), "the profile")
    jobs.wait_until(lambda: "AdminComment" in cluster.facts(job), "its price")
    pid = int(Path(cluster.plan.folder, "slurmctld.pid").read_text())
    first = slurm_cluster.first_process(cluster.plan.name)
    subprocess.run(["nsenter", "-t", str(first), "-p", "-m", "kill", str(pid)], check=True, timeout=20)

    jobs.wait_until(lambda: cluster.is_told("scontrol", "ping"), "slurmctld to come back")
    assert cluster.wait(job)["ExitCode"] == "0:0"
    assert cluster.price(job)["n_profiles"] == 1


def test_a_second_lab_of_the_name_is_refused_and_the_first_stays(cluster):
    command = [sys.executable, "-m", "mpicoloc", "slurm", "up", "--name", cluster.plan.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4 and "already" in done.stderr
    assert cluster.run("srun", "-n1", "echo", "there") == "there\n"
