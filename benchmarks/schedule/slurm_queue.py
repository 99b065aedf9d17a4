"""A queue of real programs in a real Slurm: exclusive, shared blindly, and in pairs that mpicoloc chose.

    python benchmarks/schedule/slurm_queue.py [--jobs 20] [--seconds 8] [--json]
    python benchmarks/schedule/slurm_queue.py --programs lmp:2,nbody:1,heat2d:2 --ways pairs,shared

Makes a Slurm cluster of one node on this machine (`mpicoloc slurm up`; root, Debian's slurm-wlm), which takes
two jobs at a time, and gives it the same jobs in several ways. They have one rank each, and a processor of
their own; or, with `NAME:N` in --programs, N ranks, and all ask for the whole node, which has as many
processors as the largest of them has ranks:

exclusive   each has the node alone, in order of arrival
shared      two at a time, in order of arrival, whatever they suffer
pairs       as exclusive, with `mpicoloc pair --watch` beside it, which knows nothing at the start but what it
            assumes of strangers (--prior-slowdown): jobs run alone until their kind has a profile
known       the same with the profiles of all that ran before

Every job is measured by the SPANK plugin; its signed profile is charged to a ledger, each once. The table is
that of examples/slurm-day/makespans.py; `pairs` runs first, the way that is named first is compared with.
"""

import collections
import contextlib
import getpass
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import programs
from programs import mpicoloc_said

sys.path.insert(0, str(programs.EXAMPLES / "slurm-day"))

import makespans

from mpicoloc.lab import slurm_cluster
from mpicoloc.slurm import client

LAB = f"queue-{os.getpid()}"
PROGRAMS = "heat2d,nbody,ranks,updates"
WAYS = {"exclusive": "whole", "shared": "shared", "pairs": "whole", "known": "whole"}
WATCHED = ("pairs", "known")
SCRIPT = """#!/bin/sh
mkdir -p $SLURM_JOB_ID && cd $SLURM_JOB_ID
{files}
exec srun -n{n_ranks} {before} {command}
"""


@dataclass(frozen=True)
class Job:
    """A program, and how it is called in the queue."""

    name: str
    launcher: programs.Launcher
    program: programs.Program

    @property
    def script(self):
        """Of the batch job."""
        files = "\n".join(f"cat >{name} <<'END'\n{text}\nEND" for name, text in self.program.files)
        before, command = map(shlex.join, (self.launcher.before, self.program.argv))
        return SCRIPT.format(files=files, n_ranks=self.launcher.n_ranks, before=before, command=command)


class Site:
    """A cluster that is up, with the plugin, a key, a spool and a ledger."""

    def __init__(self, folder, n_cpus=1):
        self.folder, self.spool, self.key = folder, folder / "spool", folder / "site.key"
        self.ledger, self.n_cpus = folder / "ledger.sqlite", n_cpus
        self.spool.mkdir()
        self.key.write_text("c2l0ZSBrZXkgb2YgYSBiZW5jaG1hcmsgb25seS4uLi4=")
        self.key.chmod(0o600)
        mpicoloc_said("slurm", "build")
        words = f"default=on out={folder}/%j.%s.h5 key_file={self.key} spool={self.spool}"
        mpicoloc_said("slurm", "up", "--name", LAB, "--nodes", 1, "--cpus", n_cpus, "--plugstack", words)
        os.environ["SLURM_CONF"] = slurm_cluster.conf(LAB)
        mpicoloc_said("ledger", "open", getpass.getuser(), "--grant", 1000, "--ledger", self.ledger)

    def submit(self, job, partition):
        script, n_ranks = self.folder / job.name, job.launcher.n_ranks
        script.write_text(job.script)
        size = [f"-n{n_ranks}", f"-c{self.n_cpus // n_ranks}"]
        words = ["sbatch", "--parsable", "-p", partition, *size, "-t", "20", "-o", "%j.log", script]
        return int(subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=True).stdout)

    def wait(self, numbers, limit_s):
        """The jobs when all have ended; they stay known for some minutes."""
        seen, deadline_s = {}, time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            now = {job.id: job for job in client.snapshot().jobs if job.id in numbers}
            seen |= now
            if all(job.state not in ("PENDING", "RUNNING", "COMPLETING") for job in now.values()):
                return seen
            time.sleep(0.5)
        raise SystemExit(f"jobs still run after {limit_s:.0f} s")

    def charge(self):
        """Charge what was signed since the last call; the amount of each job, SU."""
        words = ("--ledger", self.ledger, "--key-file", self.key, "--json")
        told = json.loads(mpicoloc_said("ledger", "collect", self.spool, *words))
        amounts = collections.defaultdict(float)
        for each in told["charges"]:
            amounts[each["job"].split(".")[0]] += each["amount_su"]
        return amounts


@contextlib.contextmanager
def watching(site, prior):
    """The pairing service."""
    words = ["--profiles", site.spool, "--prior-slowdown", prior, "--interval-s", "0.5"]
    words += ["--audit", site.folder / "audit.jsonl"]
    command = [sys.executable, "-m", "mpicoloc", "pair", "--watch", *map(str, words)]
    with open(site.folder / "service.log", "w") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(20)


def run(site, way, queue, args):
    """Numbers of the jobs, all of which have ended."""
    service = watching(site, args.prior_slowdown) if way in WATCHED else contextlib.nullcontext()
    with service:
        numbers = {site.submit(job, WAYS[way]) for job in queue}
        site.wait(numbers, 120 + 10 * args.seconds * len(queue))
    return numbers


def rows_of(site, ways, queue, args):
    """The table, and what was charged."""
    # Who knows nothing must come before all that leave profiles.
    ran = {way: run(site, way, queue, args) for way in sorted(ways, key="pairs".__ne__)}
    ordered = {way: ran[way] for way in ways}
    charged = site.charge()
    return [
        row | {"charged_su": sum(charged[str(number)] for number in ran[row["way"]])}
        for row in makespans.compared(ordered, makespans.ended(), makespans.profiles(site.spool))
    ]


def prepared(args, folder):
    """The jobs that --programs names, each of which takes so long alone."""
    found = []
    for word in args.programs.split(","):
        name, _, n = word.partition(":")
        n_ranks = int(n or 1)
        cores = programs.processors(n_ranks)
        launcher = programs.Launcher.find("mpirun.openmpi", cores, args.first, n_ranks)
        found.append(Job(name + n, launcher, programs.prepare(name, launcher, folder, args.seconds)))
    return found


def main():
    args = arguments()
    folder = Path(tempfile.mkdtemp(prefix="mpicoloc-queue-"))
    try:
        jobs = prepared(args, folder)
        rng = np.random.default_rng(args.seed)
        queue = [jobs[i] for i in rng.integers(len(jobs), size=args.jobs)]
        site = Site(folder, max(job.launcher.n_ranks for job in jobs))
        rows = rows_of(site, args.ways.split(","), queue, args)
    finally:
        slurm_cluster.stop(LAB)
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(rows, indent=2) if args.json else makespans.table(rows))


def arguments():
    parser = programs.parser(__doc__)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each program alone (default 8)")
    parser.add_argument("--programs", default=PROGRAMS, help="names, each with :RANKS if it has several")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--prior-slowdown", default="1.3")
    parser.add_argument("--first", action="store_true", help="ranks before all else, agents too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
