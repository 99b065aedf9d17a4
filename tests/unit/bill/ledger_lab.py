"""Ledgers and profiles for tests, and the processes that use them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from mpicoloc.bill.ledger import Charge, Ledger, Stamp
from mpicoloc.bill.ledger_actions import audit
from mpicoloc.core.profile import Estimate, Job, Profile, table
from mpicoloc.profile import hdf5
from mpicoloc.profile.merge import complete

HERE = Path(__file__).resolve().parent
STAMP = Stamp(1.7e9, "tester@here")
SU = 10**6


def profile(job_id="1", wall_s=1800.0, slowdown=2.0, start_unix_s=1.7e9) -> Profile:
    """A job on two cores; alone it would have taken wall_s / slowdown."""
    job = Job(job_id, "app", 2, 1, 2, "an MPI library", wall_s, start_unix_s)
    found = complete(job, {"nodes": table("nodes", {"hostname": ["n1"]})}, rng=np.random.default_rng(0))
    measured = Estimate(slowdown, slowdown * 0.9, slowdown * 1.1, 40, "1", "burst-matched")
    return replace(found, interference=replace(found.interference, slowdown=measured, shared_s=wall_s))


def write(folder, name, **facts):
    path = folder / name
    hdf5.write(profile(**facts), path)
    return path


def charge(i, amount_usu=SU, **facts):
    """The charge of profile number i."""
    return Charge(f"{i:064x}", f"job-{i}", float(i + 1), amount_usu, facts)


def balances(ledger: Ledger):
    return {account.name: account.balance_usu for account in ledger.accounts()}


def assert_right(where):
    """The books are right; the balances."""
    ledger = Ledger(str(where))
    assert audit(ledger) == []
    found = balances(ledger)
    assert sum(found.values()) == 0
    return found


def charged(call, *argv):
    code, out, _ = call("charge", "lab", *argv, "--json")
    return code, json.loads(out)["charges"]


def empty(url):
    import sqlalchemy as sa

    from mpicoloc.bill.ledger import tables

    engine = sa.create_engine(url)
    tables.drop_all(engine)
    engine.dispose()


def start(code, *argv, env=None):
    """A process that runs `code` with the arguments in `argv`, with this folder's modules."""
    preamble = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); from ledger_lab import *; argv = sys.argv[1:]\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", preamble + code, *map(str, argv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def results(processes, timeout=90):
    """Output of each process, parsed as JSON; all must exit with 0."""
    found = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=timeout)
            assert process.returncode == 0, err
            found.append(json.loads(out))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return found
