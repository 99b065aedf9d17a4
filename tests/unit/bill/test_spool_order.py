"""Whatever comes into a spool in whatever order, each CPU second of a job is charged once."""

import contextlib
import io
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import spool_lab
from hypothesis import Phase, given, settings, strategies as st
from ledger_lab import SU, assert_right
from spool_lab import RECORD

from mpicoloc.bill.ledger import Ledger
from mpicoloc.cli.main import main
from mpicoloc.slurm import records

JOB_CPU_S = 8 * 3600.0
STEPS = [
    replace(RECORD, step=step, n_cpus=n_cpus, ran_s=ran_s, job_ran_s=at_s + ran_s,
            step_start_unix_s=RECORD.step_start_unix_s + at_s)
    for step, n_cpus, at_s, ran_s in (("0", 8, 0, 900.0), ("1", 4, 900, 600.0), ("2", 4, 900, 1200.5),
                                      ("3", 8, 1200, 1000.0), ("batch", 8, 0, 3600.0))
]  # fmt: skip
"""Steps that ran within their script, the last of them over two others."""
STEPS_CPU_S = 8 * 2200.0
N = len(STEPS)


class Killed(BaseException):
    """The end of a process, between two posts."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """All that may ever come into the spool: profiles, one of them damaged, and records."""
    spool = spool_lab.Spool(tmp_path_factory.mktemp("files") / "spool")
    paths = [spool.put(record) for record in STEPS]
    Path(paths[1]).write_bytes(b"damaged")
    return [(path, Path(records.record_path(path))) for path in paths]


class Centre:
    """A spool, a ledger, and what may happen to them."""

    def __init__(self, folder, files, patch):
        self.folder, self.files, self.patch = folder, files, patch
        self.spool = spool_lab.make(folder)
        self.where = str(folder / "ledger.sqlite")
        self.call("open", "lab", "--grant", "1000")

    def call(self, *argv):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return main(["ledger", *map(str, argv), "--ledger", self.where])

    def profile(self, i):
        """One comes, after its record, as the plugin does it."""
        self.record(i)
        shutil.copy(self.files[i][0], self.spool.folder)

    def record(self, i):
        path = self.spool.folder / self.files[i][1].name
        if not path.exists():
            shutil.copy(self.files[i][1], path)
            os.utime(path)

    def grace(self, _):
        self.spool.age()

    def collect(self, grace_s=3600):
        return self.call(
            "collect", self.spool.folder, "--key-file", self.folder / "site.key", "--grace-s", grace_s
        )

    def killed(self, n):
        """A call that ends at its n-th post, before it or after it."""
        post, left = Ledger.charge, [n]

        def charge(*argv):
            left[0] -= 1
            if left[0] == -1:
                raise Killed
            posting = post(*argv)
            if left[0] == 0 and n % 2:
                raise Killed
            return posting

        with self.patch.context() as patch, contextlib.suppress(Killed):
            patch.setattr(Ledger, "charge", charge)
            self.collect()

    def release(self, i):
        charges = [line for line in Ledger(self.where).statement("lab") if line.kind == "charge"]
        if charges:
            self.call("refund", charges[i % len(charges)].transaction, "--release")

    def charged(self):
        """CPU seconds by step, of charges that stand."""
        found = {}
        lines = Ledger(self.where).statement("lab")
        back = {line.refers_to for line in lines}
        for line in lines:
            if line.kind == "charge" and line.transaction not in back:
                step, cpu_s = line.facts["slurm"]["step"], line.facts["n_cores"] * line.facts["wall_s"]
                assert step not in found, "a step is charged once"
                found[step] = cpu_s
        assert sum(found.values()) <= (JOB_CPU_S if "batch" in found else STEPS_CPU_S) + 0.01
        return found


HAPPENS = st.lists(
    st.one_of(
        st.tuples(st.just("collect"), st.sampled_from([3600, 0])),
        st.tuples(st.sampled_from(["collect", "grace"]), st.just(0)),
        st.tuples(st.sampled_from(["killed", "release"]), st.integers(0, 3)),
        st.tuples(st.just("profile"), st.integers(0, N - 1)),
    ),
    max_size=2,
)
ARRIVES = st.tuples(st.sampled_from(["profile", "record"]), HAPPENS)


@pytest.mark.timeout(400)
def test_each_cpu_second_of_a_job_is_charged_once(files, monkeypatch):
    @settings(max_examples=20, deadline=None, phases=[Phase.reuse, Phase.generate])
    @given(st.permutations(range(N)), st.lists(ARRIVES, min_size=N, max_size=N))
    def check(order, arrives):
        with tempfile.TemporaryDirectory() as name:
            centre = Centre(Path(name), files, monkeypatch)
            for i, (how, happens) in zip(order, arrives, strict=True):
                getattr(centre, how)(i)
                for what, value in happens:
                    getattr(centre, what)(value)
                    centre.charged()
            centre.grace(0)
            assert centre.collect() == 0, "nothing is refused"
            assert sum(centre.charged().values()) == pytest.approx(JOB_CPU_S, abs=0.01), (
                "all of the job, once"
            )
            before = assert_right(centre.where)["lab"]
            assert centre.collect() == 0 and assert_right(centre.where)["lab"] == before
            assert 0 <= 1000 * SU - before <= JOB_CPU_S / 3600 * SU + N, "never more than by run time"

    check()
