"""One Slurm cluster of four nodes for all tests here, and what it takes to run jobs in it."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import jobs

from mpicoloc import paths
from mpicoloc.lab import slurm_cluster, slurm_files
from mpicoloc.pmpi import build_spank

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIMIT_S = 40


class Cluster:
    """A lab that is up, with a folder for the files of its jobs."""

    def __init__(self, plan, plugin, work):
        self.plan, self.plugin, self.work = plan, plugin, work
        self.key, self.spool = work / "site.key", work / "spool"
        self.spool.mkdir()
        self.key.write_text("c2l0ZSBrZXkgb2YgdGhlIHRlc3RzIG9ubHkuLi4uLi4=")
        self.key.chmod(0o600)

    def plugstack(self, *words):
        """What plugstack.conf says from the next job on; None: no plugin."""
        line = f"optional {self.plugin} {' '.join(map(str, words))}\n" if words != (None,) else ""
        Path(self.plan.folder, "plugstack.conf").write_text(line)

    def site(self, *words):
        """A plugin that signs, with these words more."""
        files = (f"out={self.work}/%j.%s.h5", f"key_file={self.key}", f"spool={self.spool}")
        self.plugstack(*files, *words)

    @property
    def env(self):
        return {**os.environ, "SLURM_CONF": f"{self.plan.folder}/slurm.conf"}

    def run(self, *words, code=0):
        """A command of Slurm's; returns what it said."""
        done = subprocess.run(
            [*map(str, words)],
            env=self.env,
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, done.stdout + done.stderr + self.log("n1")
        return done.stdout

    def submit(self, script, *words):
        """Number of a batch job, its output in `<number>.log`."""
        file = self.work / "job.sh"
        file.write_text("#!/bin/sh\n" + script)
        return int(self.run("sbatch", "--parsable", "-o", "%j.log", *words, file))

    def facts(self, job):
        """What slurmctld says of a job."""
        words = self.run("scontrol", "-o", "show", "job", job).split(" ")
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job):
        """Facts of a job that has ended."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        facts = {}

        def is_over():
            facts.update(self.facts(job))
            return facts["JobState"] in over

        jobs.wait_until(is_over, f"job {job} to end", LIMIT_S)
        return facts

    def log(self, daemon):
        return Path(self.plan.folder, "log", f"{daemon}.log").read_text(errors="replace")


def is_possible():
    """Root makes the cluster, of Debian's packages."""
    return os.geteuid() == 0 and all(map(shutil.which, slurm_cluster.TOOLS))


@pytest.fixture(scope="session")
def lab():
    """The cluster, with heat2d of both MPI families in its folder."""
    if not is_possible():
        pytest.skip("no Slurm here, or not root")
    plugin, _ = build_spank.build(paths.lib_dir(), sys.executable)
    name = f"test-{os.getpid()}"
    plan = slurm_cluster.start(name, 4, spank=str(plugin))
    assert plan.folder == f"{slurm_files.ROOT}/{name}"
    with tempfile.TemporaryDirectory(prefix="mpicoloc-slurm-") as folder:
        try:
            for family in ("openmpi", "mpich"):
                mpicc, _ = jobs.commands(family)
                command = [mpicc, "-O1", EXAMPLES / "heat2d.c", "-o", f"{folder}/heat2d.{family}", "-lm"]
                subprocess.run(command, check=True, timeout=jobs.LIMIT_S)
            yield Cluster(plan, plugin, Path(folder))
        finally:
            slurm_cluster.stop(name)


@pytest.fixture
def cluster(lab):
    """The cluster with its plugin as a site would set it up, measuring those that ask."""
    lab.site()
    return lab
