"""Jobs to which Slurm gives a /dev/shm of their own (job_container/tmpfs)."""

import os
import signal
import sys
from pathlib import Path

import jobs
import pytest
from slurm_jobs import LIMIT_S, Cluster, daemon, is_possible

import mpicoloc
from mpicoloc.lab import slurm_cluster
from mpicoloc.profile import hdf5

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SCRIPT = """
stat -c %d /dev/shm
out=job.$SLURM_JOB_ID.h5
exec {python} -m mpicoloc run --mpirun {mpich.mpirun} -n 2 --out $out -- {mpich.program} finalize 20 2000
"""


def renew(cluster, name):
    """End a daemon, which the lab starts again."""
    old = daemon(cluster, name)
    os.kill(old, signal.SIGKILL)
    jobs.wait_until(lambda: daemon(cluster, name) not in (None, old), f"a new {name}")


@pytest.fixture
def cluster():
    """A cluster of one node whose slurmd has read that each job gets its own."""
    if not is_possible():
        pytest.skip("no Slurm here, or not root")
    if any(Path(path).is_relative_to("/tmp") for path in (sys.executable, mpicoloc.__file__)):
        pytest.skip("jobs get a /tmp of their own, too, and mpicoloc lies there")
    plan = slurm_cluster.start(f"test-apart-{os.getpid()}", 1)
    try:
        work = Path(plan.folder, "work")
        work.mkdir()
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


def test_jobs_of_one_node_measure_each_other(cluster):
    mpich = jobs.need_mpi("mpich", cluster.work)
    script = SCRIPT.format(python=sys.executable, mpich=mpich)
    both = [cluster.submit(script, "-p", "shared", "-n", "2")]
    # Slurm 22.05 mounts its base folder anew for each job, and of two that start at once one fails.
    jobs.wait_until(lambda: cluster.output(both[0]), "the first job to run", LIMIT_S)
    both += [cluster.submit(script, "-p", "shared", "-n", "2")]
    states = [cluster.wait(job)["JobState"] for job in both]
    logs = [Path(cluster.work, f"{job}.log").read_text() for job in both]
    assert states == ["COMPLETED", "COMPLETED"], logs
    devices = {log.split()[0] for log in logs}
    assert len({*devices, str(os.stat("/dev/shm").st_dev)}) == 3, "each has its own"
    for job in both:
        profile = hdf5.read(cluster.work / f"job.{job}.h5")
        assert len(profile.tables["corunners"]) == 1
        assert profile.interference.n_used > 0, profile.notes
