"""One Slurm cluster of four nodes for all tests here."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import sample
from slurm_jobs import Cluster, is_possible, jobs

from mpicoloc.lab import slurm_cluster
from mpicoloc.pairing.policies import Rules
from mpicoloc.pairing.sharing_plan import Partitions
from mpicoloc.pmpi import build_shim, paths
from mpicoloc.profile import hdf5
from mpicoloc.slurm import client, service

HERE = Path(__file__).resolve().parent
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """One process runs them all: most share a cluster, and the tutorials' have the same name."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker("slurm")


@pytest.fixture(scope="session")
def lab():
    """The cluster, with heat2d of both MPI families in its folder, and `heat2d`, which srun starts."""
    if not is_possible():
        pytest.skip("no Slurm here, or not root")
    plugin, _ = build_shim.build_plugin(paths.lib_dir(), sys.executable)
    name = f"test-{os.getpid()}"
    plan = slurm_cluster.start(name, 4, spank=str(plugin))
    assert plan.folder == f"{slurm_cluster.ROOT}/{name}"
    with tempfile.TemporaryDirectory(prefix="mpicoloc-slurm-") as folder:
        try:
            for family in ("openmpi", "mpich"):
                mpicc, _ = jobs.commands(family)
                command = [mpicc, "-O1", EXAMPLES / "heat2d.c", "-o", f"{folder}/heat2d.{family}", "-lm"]
                subprocess.run(command, check=True, timeout=jobs.LIMIT_S)
            Path(folder, "heat2d").symlink_to(f"heat2d.{'openmpi' if slurm_cluster.has_pmix() else 'mpich'}")
            yield Cluster(plan, plugin, Path(folder))
        finally:
            slurm_cluster.stop(name)


@pytest.fixture
def cluster(lab):
    """The cluster with its plugin as a site would set it up, measuring those that ask."""
    lab.site()
    return lab


@pytest.fixture
def known(tmp_path):
    """Profiles of jobs called a and b."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    for name in "ab":
        job = sample.job(id=name, user="root", batch_name=name, n_ranks=4)
        hdf5.write(dataclasses.replace(sample.profile(), job=job), folder / f"{name}.h5")
    return service.ProfileHistory(str(folder))


@pytest.fixture
def step(known, tmp_path):
    """One look of the pairing service, which knows these."""
    audit = service.AuditLog(str(tmp_path / "audit.jsonl"), lambda text: None)
    rules = Rules("greedy", prior_slowdown=1.5)
    settings = service.ServiceSettings(Partitions("whole", "shared"), rules, None)

    def step(*, is_dry=False):
        return service.run_once(known, settings, audit, is_dry=is_dry)

    step.log = lambda: [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    return step


@pytest.fixture
def queue(cluster, monkeypatch):
    """The queue of the cluster, by job; it is empty at the end."""
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    yield lambda: {job.id: job for job in client.snapshot().jobs}
    cluster.run("scancel", "--full", "-u", "root")
    jobs.wait_until(lambda: not cluster.run("squeue", "-h"), "an empty queue")
