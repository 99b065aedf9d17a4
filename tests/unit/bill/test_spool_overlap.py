"""Steps of one job that run at one time pay no CPU second twice, nor do two calls that charge at one time."""

import contextlib
import io
import itertools
import multiprocessing
import shutil
import time
from dataclasses import replace

import pytest
import spool_lab
from ledger_lab import SU, assert_right
from spool_lab import RECORD, collected

from mpicoloc.bill import charges
from mpicoloc.bill.ledger import Ledger
from mpicoloc.cli.main import main
from mpicoloc.slurm import collect as charged_job

LIMIT_S = 120


def charged(where="ledger.sqlite"):
    """CPU seconds by job and step, of charges that stand."""
    lines = Ledger(where).statement("lab")
    back = {line.refers_to for line in lines}
    standing = [line.facts for line in lines if line.kind == "charge" and line.transaction not in back]
    names = [facts["job"] for facts in standing]
    assert len(names) == len(set(names)), "a step is charged once"
    return {facts["job"]: facts["n_cores"] * facts["wall_s"] for facts in standing}


@pytest.mark.parametrize("begins", list(itertools.permutations([0, 600, 1200])))
def test_steps_that_overlap_pay_together_what_the_job_had(books, spool, begins):
    """Three of 1800 s, on all CPUs of the job each, in any order."""
    for step, begins_s in enumerate(begins):
        spool.bare(step=str(step), begins_s=begins_s)
    assert collected(books, spool.folder, "--grace-s", 0)[0] == 0
    found = charged()
    assert sum(found.values()) == pytest.approx(8 * 3000, abs=0.01)
    assert found["7.0"] == pytest.approx(8 * 1800, abs=0.01), (
        "the first one that is charged pays all of its own"
    )
    spool.bare(step="batch", ran_s=3600.0)
    collected(books, spool.folder, "--grace-s", 0)
    assert sum(charged().values()) == pytest.approx(8 * 3600, abs=0.01)


def test_steps_that_share_the_cpus_of_their_job_pay_each_for_its_own(books, spool):
    for step, n_cpus in enumerate((4, 2, 2)):
        spool.bare(step=str(step), n_cpus=n_cpus)
    collected(books, spool.folder, "--grace-s", 0)
    assert charged() == {"7.0": 7200.0, "7.1": 3600.0, "7.2": 3600.0}


@pytest.mark.parametrize(("job_billing", "factor"), [(None, 1.0), (8.0, 1.0), (10.0, 1.25), (0.0, 0.0)])
def test_a_job_pays_what_slurm_bills_for_its_cpus_and_memory(books, spool, job_billing, factor):
    """Two steps on half of the job's eight CPUs each, and what its script had besides."""
    for step in ("0", "1"):
        spool.bare(step=step, n_cpus=4, job_billing=job_billing)
    spool.bare(step="batch", ran_s=3600.0, job_billing=job_billing)
    collected(books, spool.folder, "--grace-s", 0)
    assert charged() == {"7.0": 7200.0, "7.1": 7200.0, "7.batch": 14400.0}
    lines = [line for line in Ledger("ledger.sqlite").statement("lab") if line.kind == "charge"]
    assert [line.facts["billing_per_cpu"] for line in lines] == [factor] * 3
    assert sum(line.amount_usu for line in lines) == pytest.approx(-8 * SU * factor, abs=3)


def test_a_step_that_overlaps_one_that_is_given_back_pays_what_nobody_else_does(books, spool):
    for step in ("0", "1"):
        spool.bare(step=step)
    collected(books, spool.folder, "--grace-s", 0)
    assert charged() == {"7.0": 14400.0, "7.1": 0.0}
    books("refund", 2, "--release")
    collected(books, spool.folder, "--grace-s", 0)
    assert charged() == {"7.0": 14400.0, "7.1": 0.0}
    for number in (3, 5):
        books("refund", number, "--release")
    collected(books, spool.folder, "--grace-s", 0)
    assert sum(charged().values()) == 14400.0


def test_what_a_charge_by_hand_has_paid_for_is_charged_to_no_other_step(books, spool):
    """Step 1 is charged by hand, before step 0, which has the same time, has a record."""
    by_hand = spool(step="1")
    assert books("charge", "lab", by_hand, "--cores", 8, "--wall-s", 1800)[0] == 0
    assert [entry["status"] for entry in collected(books, spool.folder)[1]["charges"]] == ["already charged"]
    spool.bare(step="0")
    prices = [entry["price_usu"] for entry in collected(books, spool.folder, "--grace-s", 0)[1]["charges"]]
    assert prices == [0]
    for step in ("2", "3"):
        spool.bare(step=step, begins_s=1800)
    prices = [entry["price_usu"] for entry in collected(books, spool.folder, "--grace-s", 0)[1]["charges"]]
    assert prices == [4 * SU, 0]
    books("refund", 3, "--release")  # of step 0
    prices = [entry["price_usu"] for entry in collected(books, spool.folder, "--grace-s", 0)[1]["charges"]]
    assert prices == [0], "step 1 pays for it still"
    books("refund", 2, "--release")
    spool.bare(step="4", begins_s=1800)
    collected(books, spool.folder, "--grace-s", 0)
    assert sum(charged().values()) == 8 * 3600


def test_a_dry_run_tells_the_same(books, spool):
    for step in ("0", "1"):
        spool.bare(step=step, begins_s=600 * int(step))
    spool.bare(step="batch", ran_s=3000.0)
    dry, real = (
        [entry["price_usu"] for entry in collected(books, spool.folder, "--grace-s", 0, *more)[1]["charges"]]
        for more in (["--dry-run"], [])
    )
    assert dry == real and dry[1] < dry[0]


def test_where_nobody_tells_what_the_job_had_each_step_pays_its_own(books, spool):
    for step in ("0", "1"):
        spool.bare(step=step, job_n_cpus=None)
    collected(books, spool.folder, "--grace-s", 0)
    assert charged() == {"7.0": 14400.0, "7.1": 14400.0}


@pytest.mark.parametrize(
    ("steps", "cpu_s"),
    [
        ([], 0),
        ([(8, 0, 10)], 80),
        ([(8, 0, 10), (8, 5, 10)], 120),
        ([(8, 0, 10), (8, 10, 10)], 160),
        ([(3, 0, 30), (4, 10, 10), (4, 15, 20)], 90 + 40 + 80 - 3 * 5),
        ([(8, 0, 10)] * 50, 80),
    ],
)
def test_at_no_time_do_steps_have_more_cpus_than_their_job(steps, cpu_s):
    records = [
        replace(RECORD, step=str(i), n_cpus=n_cpus, ran_s=ran_s, job_ran_s=at_s + ran_s)
        for i, (n_cpus, at_s, ran_s) in enumerate(steps)
    ]
    for order in (records, records[::-1]):
        load = charged_job.CpuTimeline()
        each = [load.given_cpu_s(record, is_added=False) for record in order[:1]]
        each += [load.given_cpu_s(record, is_added=True) for record in order]
        assert sum(each[1:]) == pytest.approx(cpu_s)
        assert each[:1] == each[1:2], "a look changes nothing"


class Centre:
    """A spool and a ledger; records wait outside of it."""

    def __init__(self, folder, where):
        self.folder, self.where = folder, where
        self.spool, self.outside = spool_lab.make(folder), spool_lab.Spool(folder / "outside")
        self.call("open", "lab", "--grant", "100000")

    def call(self, *argv):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return main(["ledger", *map(str, argv), "--ledger", self.where])

    def collect(self, spool=None):
        folder, key = (spool or self.spool).folder, self.folder / "site.key"
        return self.call("collect", folder, "--key-file", key, "--grace-s", 0)

    def comes(self, path):
        name = path.with_suffix(".json").name
        shutil.move(self.outside.folder / name, self.spool.folder / f".{name}")
        (self.spool.folder / f".{name}").rename(self.spool.folder / name)


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("first", ["batch", "0"])
def test_what_another_call_charges_between_look_and_post_is_not_charged_again(
    tmp_path, where, monkeypatch, first
):
    centre = Centre(tmp_path, where)
    centre.outside.bare(step="1", begins_s=100)  # in a folder of its own, so that one call has nothing else
    centre.spool.bare(step=first, ran_s=3600.0)
    post, calls = charges.post, []

    def overtaken(*argv):
        calls.append(argv)
        if len(calls) == 1:
            assert centre.collect(centre.outside) == 0
        return post(*argv)

    monkeypatch.setattr(charges, "post", overtaken)
    assert centre.collect() == 0 and centre.collect() == 0
    assert sum(charged(where).values()) == pytest.approx(8 * 3600, abs=0.01)
    assert_right(where)


@pytest.mark.timeout(LIMIT_S)
def test_two_calls_at_once_charge_each_cpu_second_once(tmp_path, where):
    """Of 10 jobs, whose records come while both calls are at work."""
    centre, jobs = Centre(tmp_path, where), range(100, 110)
    paths = [
        centre.outside.bare(job=job, step=step, begins_s=begins_s, ran_s=ran_s)
        for job in jobs
        for step, begins_s, ran_s in (("batch", 0, 3600.0), ("0", 0, 1800.0), ("1", 900, 1800.0))
    ]
    context = multiprocessing.get_context("fork")
    is_over = context.Event()
    calls = [context.Process(target=until, args=(is_over, centre.collect)) for _ in range(2)]
    for call in calls:
        call.start()
    try:
        for path in paths:
            centre.comes(path)
            time.sleep(0.02)
        is_over.set()
        for call in calls:
            call.join(LIMIT_S)
            assert call.exitcode == 0
    finally:
        for call in calls:
            call.kill()
    assert centre.collect() == 0
    found = charged(where)
    for job in jobs:
        of_job = [cpu_s for name, cpu_s in found.items() if name.startswith(f"{job}.")]
        assert sum(of_job) == pytest.approx(8 * 3600, abs=0.01), job
    assert_right(where)


def until(is_over, work):
    while not is_over.is_set():
        assert work() == 0
