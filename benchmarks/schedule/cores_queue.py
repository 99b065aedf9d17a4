"""Queues of jobs by cores in a real Slurm, with and without `mpicoloc pair --watch --layout cores`.

    python benchmarks/schedule/cores_queue.py [--queues 5] [--jobs 20] [--publish]

Makes a Slurm cluster of four nodes of four processors on this machine (`mpicoloc slurm up`; root, Debian's
slurm-wlm). Jobs are of three programs, which use no processor: each works at the speed that its neighbours
leave it, by the curves below and by their cores. So the scheduler is real, and the contention is not.
Every queue runs both ways, in turn first. The service knows each program's profile and the slowdowns.
"""

import dataclasses
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.stats import t as students_t

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support" / "simulated"))

import programs
import sample
import tables

from mpicoloc.bubble.model import pairs_of_programs
from mpicoloc.lab import slurm_cluster
from mpicoloc.pairing import model_file
from mpicoloc.profile import hdf5
from mpicoloc.slurm import client

LAB = f"cores-{os.getpid()}"
N_NODES, N_CPUS = 4, 4
CURVES = """program,score,level_1,level_4,level_8
memory,8,1.05,1.4,1.8
mixed,4,1.02,1.15,1.3
arithmetic,0.5,1,1,1.02
"""
NAMES = ("memory", "mixed", "arithmetic")
JOB = """import os, sys, time
name, n_cores, n_cpus, work_s, slowdowns, folder = sys.argv[1:]
cost = dict(word.split("=") for word in slowdowns.split(","))
here = os.path.join(folder, os.environ["SLURMD_NODENAME"])
os.makedirs(here, exist_ok=True)
mine = ".".join((os.environ["SLURM_JOB_ID"], name, n_cores))
open(os.path.join(here, mine), "w").close()
work_s, last_s = float(work_s), time.monotonic()
while work_s > 0:
    time.sleep(0.1)
    others = [one.split(".")[1:] for one in os.listdir(here) if one != mine]
    slow = 1 + sum(2 * int(n) / int(n_cpus) * (float(cost[other]) - 1) for other, n in others)
    now_s = time.monotonic()
    work_s, last_s = work_s - (now_s - last_s) / slow, now_s
os.unlink(os.path.join(here, mine))
"""
"""A program of a job: it ends when it has worked for so long at the speed that its neighbours leave it."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A program, its cores, and how long it takes alone."""

    name: str
    n_cores: int
    work_s: float


def drawn(rng, n):
    """A queue."""
    names, sizes = rng.choice(NAMES, n), rng.integers(1, 4, n)
    return [Job(str(name), int(size), float(work_s))
            for name, size, work_s in zip(names, sizes, rng.uniform(6, 24, n), strict=True)]  # fmt: skip


class Site:
    """A cluster that is up, with profiles of all programs and the service's model."""

    def __init__(self, folder):
        self.folder, self.profiles = folder, folder / "profiles"
        self.profiles.mkdir()
        (folder / "job.py").write_text(JOB)
        (folder / "curves.csv").write_text(CURVES)
        self.slowdowns = pairs_of_programs(model_file.of_curves(str(folder / "curves.csv")))
        for name in NAMES:
            for n_cores in range(1, 4):
                self._write_profile(name, n_cores)
        self._call("fit", "--curves", folder / "curves.csv", "--out", folder / "model")
        self._call("slurm", "up", "--name", LAB, "--nodes", N_NODES, "--cpus", N_CPUS)
        os.environ["SLURM_CONF"] = slurm_cluster.conf(LAB)

    def _write_profile(self, name, n_cores):
        facts = {"id": f"{name}{n_cores}", "user": "root", "batch_name": name, "n_ranks": n_cores,
                 "n_cores": n_cores, "command": name, "wall_s": 15.0}  # fmt: skip
        profile = dataclasses.replace(sample.profile(), job=sample.job(**facts))
        hdf5.write(profile, self.profiles / f"{name}{n_cores}.h5")

    def _call(self, *words):
        command = [sys.executable, "-m", "mpicoloc", *map(str, words)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def submit(self, job):
        costs = ",".join(f"{other}={self.slowdowns[job.name, other][0]}" for other in NAMES)
        words = [sys.executable, "-S", self.folder / "job.py", job.name, job.n_cores, N_CPUS, job.work_s,
                 costs, self.folder / "nodes"]  # fmt: skip
        command = ["sbatch", "--parsable", "-p", "cores", "-N1", f"-n{job.n_cores}", "-t", "2",
                   "-J", job.name, "-o", "/dev/null", "--wrap", " ".join(map(str, words))]  # fmt: skip
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def run(self, queue, *, is_watched):
        """Makespan and mean slowdown of the jobs."""
        service = self._watch() if is_watched else None
        try:
            numbers = {self.submit(job): job for job in queue}
            ended = self._wait(numbers)
        finally:
            if service is not None:
                service.send_signal(signal.SIGTERM)
                service.wait(20)
        begin_s = min(job.submit_s for job, _ in ended.values())
        last_s = max(end_s for _, end_s in ended.values())
        return last_s - begin_s, statistics.mean(
            (end_s - job.start_s) / numbers[number].work_s for number, (job, end_s) in ended.items()
        )

    def _watch(self):
        words = ["--layout", "cores", "--shared", "cores", "--profiles", self.profiles, "--model",
                 self.folder / "model", "--interval-s", "1",
                 "--audit", self.folder / "audit.jsonl"]  # fmt: skip
        command = [sys.executable, "-m", "mpicoloc", "pair", "--watch", *map(str, words)]
        with open(self.folder / "service.log", "a") as log:
            service = subprocess.Popen(command, stdout=log, stderr=log)
        time.sleep(4)  # it has read the profiles
        return service

    def _wait(self, numbers, limit_s=600):
        """Each job with the time when it was first seen to have ended."""
        ended, deadline_s = {}, time.monotonic() + limit_s
        while len(ended) < len(numbers):
            if time.monotonic() > deadline_s:
                raise SystemExit(f"jobs still run after {limit_s} s: see {self.folder}")
            for job in client.snapshot().jobs:
                if job.id in numbers and job.id not in ended and job.state not in ("PENDING", "RUNNING"):
                    ended[job.id] = job, time.time()
            time.sleep(0.3)
        return ended


def ratio(values):
    """Geometric mean of ratios with its 95 % interval."""
    logs = np.log(values)
    half = students_t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5
    return [float(np.exp(logs.mean() + shift)) for shift in (0, -half, half)]


def measured(args):
    """Makespan and mean slowdown of each queue, without and with the service."""
    folder = Path(tempfile.mkdtemp(prefix="mpicoloc-cores-"))
    found = []
    try:
        site = Site(folder)
        for seed in range(args.queues):
            queue, both = drawn(np.random.default_rng(seed), args.jobs), {}
            for is_watched in (True, False) if seed % 2 else (False, True):
                both[is_watched] = site.run(queue, is_watched=is_watched)
            found.append([*both[False], *both[True]])
            programs.progress(f"queue {seed}: {found[-1]}")
    finally:
        slurm_cluster.stop(LAB)
        if args.keep:
            print(folder, file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def main():
    parser = programs.parser(__doc__)
    parser.add_argument("--queues", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--keep", action="store_true", help="keep the folder with the service's log")
    parser.add_argument("--publish", action="store_true", help="write results/schedule/cores-queue.json")
    args = parser.parse_args()
    found = np.array(measured(args))
    rows = [
        [what, *map(float, found[:, [i, i + 2]].mean(axis=0)), ratio(found[:, i + 2] / found[:, i])]
        for i, what in enumerate(("makespan, s", "mean slowdown of jobs"))
    ]
    table = {"columns": ["", "Slurm", "with the service", "ratio"],
             "formats": [None, "{:.3g}", "{:.3g}", "{:.3f}"], "rows": rows}  # fmt: skip
    print(tables.markdown(table))
    if args.publish:
        text = [
            f"{args.queues} queues of {args.jobs} jobs of 1 to 3 cores on four nodes of four. The scheduler "
            "is real, the contention is not: jobs of three programs, slowed by up to 1.8, work at the speed "
            "that their neighbours leave them."
        ]
        result = {"title": "Jobs by cores in Slurm", **programs.setup(), "text": text, "tables": [table],
                  "command": "python benchmarks/schedule/cores_queue.py", "short": [],
                  "data": found.tolist()}  # fmt: skip
        tables.publish("schedule/cores-queue", json.loads(json.dumps(result)))


if __name__ == "__main__":
    main()
