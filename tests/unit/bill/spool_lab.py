"""A spool for tests: signed profiles and records as Slurm's plugin leaves them."""

import json
import os
from dataclasses import replace
from pathlib import Path

from ledger_lab import write

from mpicoloc.core.batch_system import StepRecord
from mpicoloc.profile import signature
from mpicoloc.slurm import records

KEY = b"0123456789abcdef0123456789abcdef"
BEGAN_S = 1_700_000_000
RECORD = StepRecord(
    profile="", cluster="test", job=7, step="0", restarts=0, array_job=None, array_task=None, uid=1000,
    user="lab", account="physics", partition="shared", n_nodes=1, n_cpus=8, ran_s=1800.0, job_n_cpus=8,
    job_submit_unix_s=float(BEGAN_S), job_start_unix_s=float(BEGAN_S), step_start_unix_s=float(BEGAN_S),
    job_ran_s=1800.0, job_billing=None,
)  # fmt: skip
OLD_S = 7200.0
"""Older than the grace."""


class Spool:
    """A folder; called, it gets a step's signed profile and record, and answers with the profile's path."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def __call__(self, begins_s=0, facts=None, **changes):
        began_s = changes.get("job_submit_unix_s", float(BEGAN_S))
        times = {"job_start_unix_s": began_s, "step_start_unix_s": began_s + begins_s}
        times["job_ran_s"] = begins_s + changes.get("ran_s", RECORD.ran_s)
        return self.put(replace(RECORD, **times | changes), facts)

    def put(self, record, facts=None):
        """The step of this record."""
        path = self.profile(self.folder, record, facts)
        record_path = records.record_path(path)
        assert records.write_sealed(record_path, replace(record, profile=path.name), KEY)
        return path

    def profile(self, folder, record, facts=None):
        """The signed profile of the step of a record, in a folder of any kind."""
        name = f"{record.job}.{int(record.job_submit_unix_s)}.{record.step}.h5"
        told = {"job_id": str(record.job), "wall_s": 1800.0, "start_unix_s": record.step_start_unix_s}
        path = write(folder, name, **told | (facts or {}))
        signature.sign(path, KEY, 1.0)
        return path

    def bare(self, **changes):
        """A step that left no profile; the profile's path."""
        path = self(**changes)
        path.unlink()
        return path

    def age(self):
        """No profile is waited for any more."""
        for path in self.folder.glob("*.json"):
            then_s = path.stat().st_mtime - OLD_S
            os.utime(path, (then_s, then_s))


def script(spool):
    """The script of job 7: 16,000 CPU seconds, of which its step 0 has 14,400."""
    return spool(step="batch", ran_s=2000.0, facts={"wall_s": 200.0, "slowdown": 1.0})


def collected(books, folder, *argv):
    """One call: exit code and answer."""
    code, out, _ = books("collect", folder, "--key-file", "site.key", *argv, "--json")
    return code, json.loads(out)


def make(folder):
    """A spool below a folder, and the site's key beside it."""
    key = Path(folder, "site.key")
    key.write_bytes(KEY)
    key.chmod(0o600)
    return Spool(Path(folder, "spool"))
