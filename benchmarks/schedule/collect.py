"""A look at a large spool in which little is new: `mpicoloc ledger collect`, as cron calls it.

    python benchmarks/schedule/collect.py [--known 100000] [--without 0] [--new 10] [--waiting 100] [--json]

Makes a ledger that knows so many steps of a spool, some of them without a profile, with the three claims that
a charge leaves of each. Puts new signed profiles with their records among them, as many new records that are
old enough to be charged without one, and some that are not. Then the command is called four times, as a
process of its own: the first charges what is new, the others find nothing.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mpicoloc.bill.db import claims
from mpicoloc.bill.ledger import Charge, Ledger, Stamp
from mpicoloc.core.profile import Job
from mpicoloc.core.step_record import StepRecord
from mpicoloc.core.tables import table
from mpicoloc.profile import hdf5, signature
from mpicoloc.profile.merge import complete
from mpicoloc.slurm import step_record

KEY = b"c2l0ZSBrZXkgb2YgYSBiZW5jaG1hcmsgb25seS4uLi4="
BEGAN_S = 1_700_000_000


def known(folder, n, n_without):
    """A ledger in which n steps of the spool are charged; their files are never opened, so they are empty."""
    names = [f"{job}.{BEGAN_S + job}.0" for job in range(n)]
    for i, name in enumerate(names):
        for end in (".json",) if i < n_without else (".h5", ".json"):
            (folder / "spool" / (name + end)).touch()
    ledger = Ledger(str(folder / "ledger.sqlite"), create=True)
    stamp = Stamp(float(BEGAN_S), "benchmark")
    ledger.open_account("ada", 10**15, 0, stamp)
    number = ledger.charge("ada", Charge("0" * 64, "0", 0.0, 1), stamp).transaction
    rows = [
        {"claim": claim, "transaction_id": number}
        for i, name in enumerate(names, 1)
        for claim in (
            f"spool:{name}.{'json' if i <= n_without else 'h5'}",
            f"profile:{i:064x}",
            f"job:{i:064x}",
        )
    ]
    ledger.database.write(lambda connection: connection.execute(claims.insert(), rows))


def add(folder, job):
    """A signed profile of 16 ranks, and its record."""
    began_s = float(BEGAN_S + job)
    columns = {"rank": list(range(16)), "state": ["finalized"] * 16, "wall_s": [60.0] * 16}
    tables = {"ranks": table("ranks", columns), "nodes": table("nodes", {"hostname": ["n1"]})}
    found = complete(
        Job(str(job), "app", 16, 1, 16, "MPI", 60.0, began_s), tables, rng=np.random.default_rng(0)
    )
    path = str(folder / "spool" / f"{job}.{BEGAN_S + job}.0.h5")
    hdf5.write(found, path)
    signature.sign(path, KEY, began_s)
    add_record(folder, job)


def add_record(folder, job, age_s=0.0):
    """Slurm's record of a step, written so long ago."""
    path, began_s = str(folder / "spool" / f"{job}.{BEGAN_S + job}.0.h5"), float(BEGAN_S + job)
    ids = ("bench", job, "0", 0, None, None, 1000, "ada", None, "shared", 1, 16)
    record = StepRecord(os.path.basename(path), *ids, began_s, began_s, began_s, 60.0, None, None)
    step_record.write(step_record.path_of(path), record, KEY)
    os.utime(step_record.path_of(path), (time.time() - age_s,) * 2)


def call(folder):
    """One call: seconds, seconds of the processor, and what it says."""
    words = ["spool", "--key-file", "site.key", "--ledger", "ledger.sqlite", "--json"]
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "mpicoloc", "ledger", "collect", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    wall_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = json.loads(done.stdout)
    counts = {"n_known": told["n_known"], "n_charged": len(told["charges"]), "n_waiting": told["n_waiting"]}
    return {**counts, "wall_s": wall_s, "cpu_s": cpu_s}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--known", type=int, default=100_000)
    parser.add_argument("--without", type=int, default=0)
    parser.add_argument("--new", type=int, default=10)
    parser.add_argument("--waiting", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mpicoloc-collect-") as name:
        folder = Path(name)
        (folder / "spool").mkdir()
        (folder / "site.key").write_bytes(KEY)
        (folder / "site.key").chmod(0o600)
        known(folder, args.known, args.without)
        jobs = itertools.count(args.known)
        for job in itertools.islice(jobs, args.new):
            add(folder, job)
        for job in itertools.islice(jobs, args.new):
            add_record(folder, job, age_s=7200.0)
        for job in itertools.islice(jobs, args.waiting):
            add_record(folder, job)
        rows = [call(folder) for _ in range(4)]
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'known':>9} {'charged':>9} {'waiting':>9} {'time, s':>9} {'processor, s':>13}")
    for row in rows:
        counts = f"{row['n_known']:9} {row['n_charged']:9} {row['n_waiting']:9}"
        print(f"{counts} {row['wall_s']:9.2f} {row['cpu_s']:13.2f}")


if __name__ == "__main__":
    main()
