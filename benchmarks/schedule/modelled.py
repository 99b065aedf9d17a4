"""Jobs with modelled contention in a real Slurm cluster on this machine (`mpicoloc slurm up`; root).

They use no processor: each works at the speed that its neighbours leave it.
"""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from programs import mpicoloc_said

from mpicoloc.lab import slurm_cluster
from mpicoloc.measure.statistics import Difference
from mpicoloc.slurm import client

JOB = """import os, sys, time
name, weight, work_s, slowdowns, folder = sys.argv[1:]
cost = {other: float(value) - 1 for other, value in (word.split("=") for word in slowdowns.split(","))}
here = os.path.join(folder, os.environ["SLURMD_NODENAME"])
os.makedirs(here, exist_ok=True)
number = os.environ["SLURM_JOB_ID"]
mine = " ".join((number, name, weight))
open(os.path.join(here, mine), "w").close()
begin_s = last_s = time.monotonic()
left_s = work_s = float(work_s)
while left_s > 0:
    time.sleep(0.1)
    others = [one.split()[1:] for one in os.listdir(here) if one != mine]
    slow = 1 + sum(float(part) * cost[other] for other, part in others)
    now_s = time.monotonic()
    left_s, last_s = left_s - (now_s - last_s) / slow, now_s
os.unlink(os.path.join(here, mine))
with open(os.path.join(folder, number), "w") as file:
    file.write(str((time.monotonic() - begin_s) / work_s))
"""
"""Script of a job: works at the speed that its neighbours leave it until `work_s` is done, and writes its
slowdown to a file."""

LIMIT = 20
"""Time limit of a job, as a multiple of its time alone."""
START_S = 5.0
"""Time in which the service reads its profiles, s."""


@dataclass(frozen=True)
class Job:
    """A program, its tasks and cores, and how long it takes alone.

    `weight` multiplies the excess slowdown that it causes.
    """

    name: str
    n_tasks: int
    n_cores: int
    work_s: float
    weight: float = 1.0


class Site:
    """A cluster that is up, whose jobs slow each other: `slowdowns` by names of target and co-runner."""

    def __init__(self, lab, folder, n_nodes, n_cpus, slowdowns):
        self.folder, self.slowdowns = folder, slowdowns
        (folder / "job.py").write_text(JOB)
        (folder / "nodes").mkdir(exist_ok=True)
        mpicoloc_said("slurm", "up", "--name", lab, "--nodes", n_nodes, "--cpus", n_cpus)
        os.environ["SLURM_CONF"] = slurm_cluster.conf(lab)

    def submit(self, job, partition):
        costs = ",".join(
            f"{other}={value}" for (target, other), value in self.slowdowns.items() if target == job.name
        )
        words = [sys.executable, "-S", self.folder / "job.py", job.name, job.weight, job.work_s, costs,
                 self.folder / "nodes"]  # fmt: skip
        limit_min = 2 + math.ceil(LIMIT * job.work_s / 60)
        command = ["sbatch", "--parsable", "-p", partition, "-N1", f"-n{job.n_tasks}",
                   f"-c{job.n_cores // job.n_tasks}", "-t", str(limit_min), "-J", job.name,
                   "-o", "/dev/null", "--wrap", " ".join(map(str, words))]  # fmt: skip
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def run(self, queue, partition, watch=None):
        """Makespan, s, and mean slowdown of jobs that are all submitted at once.

        `watch`: arguments of the pairing service that runs beside them.
        """
        with contextlib.nullcontext() if watch is None else self._watching(watch):
            numbers = [self.submit(job, partition) for job in queue]
            makespan_s = self._wait(set(numbers))
        left = [float((self.folder / "nodes" / str(number)).read_text()) for number in numbers]
        return makespan_s, float(np.mean(left))

    @contextlib.contextmanager
    def _watching(self, words):
        words = [*words, "--interval-s", "1", "--audit", self.folder / "audit.jsonl"]
        command = [sys.executable, "-m", "mpicoloc", "pair", "--watch", *map(str, words)]
        with open(self.folder / "service.log", "a") as log:
            service = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            time.sleep(START_S)
            yield
            if service.poll() is not None:
                raise SystemExit(f"the service has ended: {Path(log.name).read_text()}")
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(20)

    def _wait(self, numbers, limit_s=1800):
        """Time from the first submission to the end that is seen last, s."""
        ended, deadline_s = {}, time.monotonic() + limit_s
        while len(ended) < len(numbers):
            if time.monotonic() > deadline_s:
                raise SystemExit(f"jobs still run after {limit_s} s: see {self.folder}")
            for job in client.snapshot().jobs:
                if job.id in numbers and job.id not in ended and job.state not in ("PENDING", "RUNNING"):
                    ended[job.id] = job.submit_s, time.time()
            time.sleep(0.3)
        return max(end_s for _, end_s in ended.values()) - min(begin_s for begin_s, _ in ended.values())


def ratio(values):
    """Geometric mean of ratios with its 95 % interval."""
    logs = np.log(values)
    half = Difference(float(logs.mean()), logs.std(ddof=1) / len(logs) ** 0.5, len(logs) - 1).half_width()
    return [float(np.exp(logs.mean() + shift)) for shift in (0, -half, half)]
