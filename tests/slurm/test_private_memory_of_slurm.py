"""Jobs to which Slurm gives a /dev/shm of their own (job_container/tmpfs)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jobs
import processes
import pytest
from slurm_jobs import LIMIT_S, Cluster, daemon, is_possible

import mpicoloc
from mpicoloc.lab import slurm_cluster
from mpicoloc.pmpi import build_shim, paths
from mpicoloc.profile import hdf5

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]
SCRIPT = """
stat -c %d /dev/shm
out=job.$SLURM_JOB_ID.h5
exec {python} -m mpicoloc run --mpirun {mpich.mpirun} -n 2 --out $out -- {mpich.program} finalize 200 2000 end
"""


def renew(cluster, name):
    """End a daemon, which the lab starts again."""
    old = daemon(cluster, name)
    os.kill(old, signal.SIGKILL)
    jobs.wait_until(lambda: daemon(cluster, name) not in (None, old), f"a new {name}")
    jobs.wait_until(lambda: is_ready(cluster), "the node")


def is_ready(cluster):
    """Whether the node takes jobs; Slurm drains it where it could not begin one."""
    state = cluster.run("sinfo", "-h", "-p", "whole", "-o", "%T").strip()
    if "drain" in state or "down" in state:
        cluster.is_told("scontrol", "update", "NodeName=n1", "State=RESUME")
    return state in ("idle", "mixed", "allocated")


@pytest.fixture
def cluster(request):
    """A cluster of one node whose slurmd has read that each job gets its own; its plugin has these words."""
    if not is_possible():
        pytest.skip("no Slurm here, or not root")
    if any(Path(path).is_relative_to("/tmp") for path in (sys.executable, mpicoloc.__file__)):
        pytest.skip("jobs get a /tmp of their own, too, and mpicoloc lies there")
    build_shim.build_plugin(paths.lib_dir(), sys.executable)
    plan = slurm_cluster.Plan(f"test-apart-{os.getpid()}", 1, 4, 0)
    words = getattr(request, "param", "default=off").format(folder=plan.folder)
    up = [sys.executable, "-m", "mpicoloc", "slurm", "up", "--name", plan.name, "--nodes", "1"]
    try:
        subprocess.run([*up, "--plugstack", words], check=True, capture_output=True, timeout=LIMIT_S)
        work = Path(plan.folder, "jobs")
        work.mkdir()
        work.chmod(0o1777)
        found = Cluster(plan, None, work)
        conf = Path(plan.folder, "slurm.conf")
        text = conf.read_text().replace("proctrack/linuxproc", "proctrack/pgid")
        conf.write_text(f"{text}JobContainerType=job_container/tmpfs\nPrologFlags=Contain\n")
        Path(plan.folder, "job_container.conf").write_text(f"AutoBasePath=true\nBasePath={work}\n")
        for name in ("slurmctld", "slurmd"):
            renew(found, name)
        jobs.wait_until(lambda: "idle" in found.run("sinfo", "-h", "-o", "%T"), "the node")
        yield found
    finally:
        slurm_cluster.stop(plan.name)


OVER = ("COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED")
N_TRIES = 5
TOGETHER_S = 18


def begun(cluster, script, *words, is_there=lambda: True):
    """Number of a job that has begun, and the device of its /dev/shm, which the script prints first.

    `is_there` says whether its step has begun, too.

    Slurm 22.05 mounts its base folder anew for each job. One slurmd in ten cannot, and fails all jobs.
    """
    for _ in range(N_TRIES):
        job = cluster.submit(script, "--no-requeue", "-p", "shared", "-n", "2", *words)

        def device(job=job):
            found = (line for line in cluster.output(job).splitlines() if line.isdecimal())
            return next(found, None) if is_there() else None

        cluster.until(job, lambda job=job: device() or cluster.facts(job)["JobState"] in OVER, "to begin")
        if found := device():
            return job, found
        renew(cluster, "slurmd")
    raise AssertionError(f"Slurm could not begin a job in {N_TRIES} tries: {cluster.log('n1')[-2000:]}")


def profiles_of_two(cluster, script, *words):
    """Profiles that two jobs at a time leave, the second one submitted with these words more."""
    both, devices = zip(begun(cluster, script), begun(cluster, script, *words), strict=True)
    assert len({*devices, str(os.stat("/dev/shm").st_dev)}) == 3, "each has its own"
    time.sleep(TOGETHER_S)
    (cluster.work / "end").touch()
    states = [cluster.wait(job)["JobState"] for job in both]
    assert states == ["COMPLETED", "COMPLETED"], [cluster.output(job) for job in both]
    paths = [cluster.work / f"job.{job}.h5" for job in both]
    return [hdf5.read(path) for path in paths if path.exists()]


def test_jobs_of_one_node_measure_each_other(cluster):
    mpich = jobs.need_mpi("mpich", cluster.work)
    profiles = profiles_of_two(cluster, SCRIPT.format(python=sys.executable, mpich=mpich))
    assert len(profiles) == 2
    for profile in profiles:
        assert len(profile.tables["corunners"]) == 1
        assert profile.interference.n_used > 0, profile.notes


SHARED = ["default=on out={folder}/jobs/job.%j.h5 shm={folder}/shm"]


@pytest.mark.parametrize("cluster", SHARED, indirect=True)
def test_jobs_of_two_users_meet_in_the_folder_of_the_site(cluster):
    mpich = jobs.need_mpi("mpich", cluster.work)
    script = f"stat -c %d /dev/shm\nexec srun --mpi=pmi2 {mpich.program} finalize 200 2000 end\n"
    profiles = profiles_of_two(cluster, script, "--uid=daemon")
    # where others may not read this Python, their jobs have no profile
    assert [profile.job.user for profile in profiles] == ["root", "daemon"][: 1 if jobs.reach() else 2]
    for profile in profiles:
        assert len(profile.tables["corunners"]) == 1
        assert profile.interference.n_used > 0, profile.notes
    shm = Path(cluster.plan.folder, "shm")
    assert (shm.stat().st_uid, shm.stat().st_mode & 0o7777) == (0, 0o1777)
    assert {path.suffix for path in shm.iterdir()} <= {".board"}


@pytest.mark.parametrize("cluster", SHARED, indirect=True)
def test_files_of_a_killed_job_are_removed_from_that_folder(cluster):
    mpich = jobs.need_mpi("mpich", cluster.work)
    shm = Path(cluster.plan.folder, "shm")
    script = f"stat -c %d /dev/shm\nexec srun --mpi=pmi2 {mpich.program} finalize 100 2000\n"
    job, _ = begun(cluster, script, is_there=lambda: len(list(shm.glob("*.seg"))) == 2)
    time.sleep(1)
    for pid in processes.matching(lambda one: processes.comm(one).startswith(("mpicoloc-keeper", "life"))):
        if cluster.owns(Path(f"/proc/{pid}")):
            os.kill(pid, signal.SIGKILL)
    cluster.wait(job)
    jobs.wait_until(lambda: {path.suffix for path in shm.iterdir()} <= {".board"}, "the epilog to clean")


@pytest.mark.parametrize("cluster", ["default=on shm={folder}/jobs/shm"], indirect=True)
def test_a_folder_that_others_could_replace_is_left_out(cluster):
    job, _ = begun(cluster, "stat -c %d /dev/shm\nsrun -n1 sh -c 'echo shm ${MPICOLOC_SHM_DIR:-none}'\n")
    cluster.wait(job)
    assert "shm none" in cluster.output(job)
    assert "users other than root may write in the folder above: left out" in cluster.log("n1")
