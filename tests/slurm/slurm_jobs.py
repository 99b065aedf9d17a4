"""A Slurm cluster of the tests, and what it takes to run jobs in it."""

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import jobs
import processes

from mpicoloc.lab import slurm_cluster
from mpicoloc.slurm import client

LIMIT_S = 150
LONG = """
(until ls /dev/shm/mpicoloc.*.seg; do sleep 0.1; done; sleep 0.5; touch up.$SLURM_JOB_ID) &
srun --mpicoloc ./heat2d 100 100000000
"""
"""A script of a job that has to be ended."""


def ask(words, **how):
    """Run a Slurm command, again while slurmctld is too busy to change a job."""
    for _ in range(20):
        done = subprocess.run([*map(str, words)], capture_output=True, text=True, **how)
        if client.BUSY_MESSAGE not in done.stderr:
            break
        time.sleep(0.5)
    return done


class Cluster:
    """A lab that is up, with a folder for the files of its jobs."""

    def __init__(self, plan, plugin, work):
        self.plan, self.plugin, self.work = plan, plugin, work
        self.key, self.spool = work / "site.key", work / "spool"
        self.spool.mkdir()
        self.key.write_text("c2l0ZSBrZXkgb2YgdGhlIHRlc3RzIG9ubHkuLi4uLi4=")
        self.key.chmod(0o600)

    def plugstack(self, *words):
        """Write plugstack.conf, in effect from the next job on; None: without the plugin."""
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
        """Output of a Slurm command."""
        done = ask(words, env=self.env, cwd=self.work, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
        assert done.returncode == code, done.stdout + done.stderr + self.log("n1")
        return done.stdout

    def is_told(self, *words):
        """Whether a command of Slurm's succeeds."""
        done = subprocess.run([*map(str, words)], env=self.env, capture_output=True, timeout=jobs.LIMIT_S)
        return done.returncode == 0

    def submit(self, script, *words):
        """Number of a batch job, its output in `<number>.log`."""
        file = self.work / "job.sh"
        file.write_text("#!/bin/sh\n" + script)
        return int(self.run("sbatch", "--parsable", "-o", "%j.log", *words, file))

    def facts(self, job):
        """Fields of a job in `scontrol show job`."""
        words = self.run("scontrol", "-o", "show", "job", job).split(" ")
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job):
        """Facts of a job that has ended."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        facts = {}

        def is_over():
            facts.update(self.facts(job))
            return facts["JobState"] in over

        self.until(job, is_over, "to end")
        return facts

    def until(self, job, condition, what):
        """Wait for `condition()` and return its value; a timeout error has the job's state and logs."""
        try:
            return jobs.wait_until(condition, f"job {job} {what}", LIMIT_S)
        except AssertionError as error:
            error.add_note(f"{self.facts(job)}\n{self.output(job)}\n{self.log('n1')[-2000:]}")
            raise

    def output(self, job):
        """Output of the batch job so far."""
        log = self.work / f"{job}.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def until_measured(self, job):
        """Wait until a job of `LONG` is measured."""
        jobs.wait_until((self.work / f"up.{job}").exists, f"job {job} to be measured", 30)

    def price(self, job):
        """The mpicoloc entry of the job's AdminComment: number and price of its profiles."""
        return json.loads(self.facts(job)["AdminComment"])["mpicoloc"]

    def save(self, job):
        """Wait until slurmctld has saved all jobs: when it is killed the others are gone.

        It saves every 5 s, if anything has changed since: a change of `job` makes it do so once more.
        """
        time.sleep(0.5)  # what is being written may be of before
        now_s = time.time()
        self.run("scontrol", "update", f"JobId={job}", "Comment=saved")
        state = Path(self.plan.folder, "state/job_state")
        jobs.wait_until(lambda: state.stat().st_mtime > now_s, "slurmctld to save")

    def signed(self, job):
        """Signed profiles of a job: (start, step) -> path."""
        found = {path: path.name.split(".") for path in sorted(self.spool.glob(f"{job}.*.h5"))}
        return {(int(name[1]), name[2]): path for path, name in found.items()}

    def owns(self, folder):
        """Whether a process, given as its folder in /proc, is one of this cluster's."""
        first = slurm_cluster.first_process(self.plan.name)
        return os.stat(folder / "ns/pid").st_ino == os.stat(f"/proc/{first}/ns/pid").st_ino

    def log(self, daemon):
        return Path(self.plan.folder, "log", f"{daemon}.log").read_text(errors="replace")


def is_possible():
    """Root makes the cluster, of Debian's packages."""
    return os.geteuid() == 0 and all(map(shutil.which, slurm_cluster.TOOLS))


def daemon(cluster, name, *words):
    """Number of this cluster's daemon with these words in its command; None: none runs.

    A fork has the name and the words of its parent until it takes its own.
    """
    wanted = [cluster.plan.folder, *words]
    named = processes.matching(lambda one: processes.comm(one) == name)
    found = {pid for pid in named if all(word in command_of(pid) for word in wanted)}
    return next((pid for pid in found if parent_of(pid) not in found), None)


def parent_of(pid):
    """Number of its parent; None: it has ended."""
    with contextlib.suppress(OSError):
        return int(processes.stat(pid)[1])
    return None


def command_of(pid):
    """Its words, a zero byte behind each; empty: it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
