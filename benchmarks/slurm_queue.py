"""A queue of real programs in a real Slurm: exclusive, shared blindly, and in pairs that mpicoloc chose.

    python benchmarks/slurm_queue.py [--jobs 20] [--seconds 8] [--json]

Makes a Slurm cluster of one node on this machine (`mpicoloc slurm up`; root, Debian's slurm-wlm), whose two
slots are two processors, and gives it the same jobs of one processor each in three ways:

exclusive   each has the node alone, in order of arrival
shared      two at a time, in order of arrival, whatever they suffer
pairs       as exclusive, with `mpicoloc pair --watch` beside it, which knows nothing at the start but what it
            assumes of strangers (--prior-slowdown): jobs run alone until their kind has a profile

Every job is measured by the SPANK plugin; its signed profile is charged to a ledger, each once. The makespan
is from the first start to the last end.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import programs

from mpicoloc.lab import slurm_cluster
from mpicoloc.run import slurm

LAB = f"queue-{os.getpid()}"
PROGRAMS = "heat2d,nbody,ranks,updates"
WAYS = {"exclusive": "whole", "shared": "shared", "pairs": "whole"}
SCRIPT = """#!/bin/sh
mkdir -p $SLURM_JOB_ID && cd $SLURM_JOB_ID
{files}
exec srun -n1 {command}
"""


def mpicoloc(*words, **options):
    command = [sys.executable, "-m", "mpicoloc", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[1:])}: {done.stderr.strip()}")
    return done.stdout


class Site:
    """A cluster that is up, with the plugin, a key, a spool and a ledger."""

    def __init__(self, folder):
        self.folder, self.spool, self.key = folder, folder / "spool", folder / "site.key"
        self.ledger = folder / "ledger.sqlite"
        self.spool.mkdir()
        self.key.write_text("c2l0ZSBrZXkgb2YgYSBiZW5jaG1hcmsgb25seS4uLi4=")
        self.key.chmod(0o600)
        mpicoloc("slurm", "build")
        words = f"default=on out={folder}/%j.%s.h5 key_file={self.key} spool={self.spool}"
        mpicoloc("slurm", "up", "--name", LAB, "--nodes", 1, "--cpus", 1, "--plugstack", words)
        os.environ["SLURM_CONF"] = slurm_cluster.conf(LAB)
        mpicoloc("ledger", "open", "users", "--grant", 1000, "--ledger", self.ledger)

    def submit(self, program, partition):
        files = "\n".join(f"cat >{name} <<'END'\n{text}\nEND" for name, text in program.files)
        script = self.folder / program.name
        script.write_text(SCRIPT.format(files=files, command=" ".join(program.argv)))
        words = ["sbatch", "--parsable", "-p", partition, "-n1", "-t", "20", "-o", "%j.log", script]
        return int(subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=True).stdout)

    def wait(self, numbers, limit_s):
        """The jobs when all have ended; they stay known for some minutes."""
        seen, deadline_s = {}, time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            now = {job.id: job for job in slurm.snapshot().jobs if job.id in numbers}
            seen |= now
            if all(job.state not in ("PENDING", "RUNNING", "COMPLETING") for job in now.values()):
                return seen
            time.sleep(0.5)
        raise SystemExit(f"jobs still run after {limit_s:.0f} s")

    def charge(self):
        """Charge what is signed; sum of the amounts, SU, and how many profiles."""
        files = sorted(self.spool.glob("*.h5"))
        words = ("--ledger", self.ledger, "--require-signature", self.key, "--json")
        told = json.loads(mpicoloc("ledger", "charge", "users", *files, *words))
        return {each["job"]: each["amount_su"] for each in told["charges"]}


@contextlib.contextmanager
def watching(site, prior):
    """The pairing service."""
    words = ["pair", "--watch", "--profiles", site.spool, "--prior-slowdown", prior, "--interval-s", "0.5"]
    command = [
        sys.executable,
        "-m",
        "mpicoloc",
        *map(str, words),
        "--audit",
        str(site.folder / "audit.jsonl"),
    ]
    with open(site.folder / "service.log", "w") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(20)


def ends_of(site, numbers):
    """Start and end of each job, s since 1970, by Slurm's own file of ended jobs."""
    told = Path(site_log(), "jobs.txt").read_text()
    found = {}
    for line in told.splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if int(words["JobId"]) in numbers:
            found[int(words["JobId"])] = [
                time.mktime(time.strptime(words[name], "%Y-%m-%dT%H:%M:%S"))
                for name in ("StartTime", "EndTime")
            ]
    return found


def n_together(times):
    """Jobs that ran beside another one: there is one node."""
    return sum(
        any(
            i != j and begin < other_end and other_begin < end
            for j, (other_begin, other_end) in enumerate(times)
        )
        for i, (begin, end) in enumerate(times)
    )


def site_log():
    return Path(slurm_cluster.conf(LAB)).parent / "log"


def run(site, way, queue, args):
    """One row of the table."""
    before = set(site.spool.glob("*.h5"))
    service = watching(site, args.prior_slowdown) if way == "pairs" else contextlib.nullcontext()
    with service:
        numbers = {site.submit(program, WAYS[way]): program.name for program in queue}
        done = site.wait(set(numbers), 120 + 10 * args.seconds * len(queue))
    times = ends_of(site, set(numbers))
    profiles = {path.name.split(".")[0] for path in set(site.spool.glob("*.h5")) - before}
    prices = site.charge()
    return {
        "way": way,
        "n_jobs": len(queue),
        "n_completed": sum(job.state == "COMPLETED" for job in done.values()),
        "n_profiles": len(profiles & {str(number) for number in numbers}),
        "n_shared": n_together([*times.values()]),
        "makespan_s": max(end for _, end in times.values()) - min(start for start, _ in times.values()),
        "charged_su": sum(prices.get(str(number)) or 0.0 for number in numbers),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each program alone (default 8)")
    parser.add_argument("--programs", default=PROGRAMS)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--prior-slowdown", default="1.3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mpicoloc-queue-"))
    try:
        launcher = programs.Launcher.find("mpirun.openmpi", programs.processors(1), n_ranks=1)
        known = [programs.prepare(name, launcher, folder, args.seconds) for name in args.programs.split(",")]
        rng = np.random.default_rng(args.seed)
        queue = [known[i] for i in rng.integers(len(known), size=args.jobs)]
        site = Site(folder)
        rows = [run(site, way, queue, args) for way in args.ways.split(",")]
    finally:
        slurm_cluster.stop(LAB)
        shutil.rmtree(folder, ignore_errors=True)
    show(rows, args.json)


def show(rows, as_json):
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    fifo = next((row["makespan_s"] for row in rows if row["way"] == "exclusive"), None)
    titles = ("jobs", "ended well", "shared", "makespan, s", "of exclusive", "SU")
    print(f"{'way':10}" + "".join(f"{title:>13}" for title in titles))
    for row in rows:
        part = f"{row['makespan_s'] / fifo:.2f}" if fifo else "-"
        numbers = (row["n_jobs"], row["n_completed"], row["n_shared"], f"{row['makespan_s']:.0f}", part)
        print(f"{row['way']:10}" + "".join(f"{each:>13}" for each in (*numbers, f"{row['charged_su']:.5f}")))


if __name__ == "__main__":
    main()
