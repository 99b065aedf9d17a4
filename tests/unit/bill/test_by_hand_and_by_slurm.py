"""A run that `ledger collect` charged is not charged by hand as well, nor the other way round."""

import json
import time

import pytest
from ledger_lab import SU, assert_right, results, start
from spool_lab import BEGAN_S, RECORD, collected, script

from mpicoloc.bill.ledger import Ledger

LIMIT_S = 240


@pytest.fixture
def books(books_at, where):
    """As of conftest, on each database."""
    return books_at(where)


def edited(spool, folder, name="edited", **facts):
    """A copy of the profile of job 7's step 0 that says another slowdown."""
    (folder / name).mkdir()
    return spool.profile(folder / name, RECORD, {"slowdown": 4.0} | facts)


def by_hand(books, path, *argv):
    code, out, _ = books("charge", "lab", path, "--cores", 8, "--wall-s", 1800, *argv, "--json")
    return code, json.loads(out)["charges"][0]


def test_an_edited_copy_of_a_collected_profile_is_refused(books, spool, tmp_path, where):
    spool()
    assert collected(books, spool.folder)[0] == 0
    code, entry = by_hand(books, edited(spool, tmp_path))
    assert (code, entry["status"]) == (1, "refused")
    assert "step 7.0 was charged by Slurm's record as transaction 2" in entry["reason"]
    assert assert_right(where)["lab"] == 9 * SU
    books("refund", 2, "--release")
    assert by_hand(books, edited(spool, tmp_path, "again"))[0] == 0


def test_a_step_of_which_an_edited_copy_was_charged_by_hand_is_refused(books, spool, tmp_path, where):
    assert by_hand(books, edited(spool, tmp_path))[0] == 0
    spool()
    for more in (["--dry-run"], [], []):
        code, found = collected(books, spool.folder, *more)
        assert (code, found["charges"][0]["status"]) == (1, "refused")
        assert "charged by hand as transaction 2" in found["charges"][0]["reason"]
    script(spool)
    assert collected(books, spool.folder)[1]["n_waiting"] == 1, "the script waits for its step"
    assert assert_right(where)["lab"] == 9.75 * SU
    books("refund", 2)
    assert [entry["status"] for entry in collected(books, spool.folder)[1]["charges"]] == ["charged"] * 2


@pytest.mark.parametrize(
    ("leave", "start_unix_s", "step"),
    [
        (lambda spool: spool.bare(), BEGAN_S + 3.5, "7.0"),
        (lambda spool: spool(), 0.0, "7.0"),
        (script, BEGAN_S + 100.0, "7.batch"),
    ],
    ids=["in full", "no start", "by the script"],
)
def test_what_slurms_record_has_paid_for_is_not_charged_by_hand(
    books, spool, tmp_path, where, leave, start_unix_s, step
):
    leave(spool)
    collected(books, spool.folder, "--grace-s", 0)
    before = assert_right(where)["lab"]
    code, entry = by_hand(books, edited(spool, tmp_path, start_unix_s=start_unix_s))
    assert (code, entry["status"]) == (1, "refused") and f"step {step}" in entry["reason"]
    assert assert_right(where)["lab"] == before < 10 * SU


def test_a_step_whose_profile_was_charged_by_hand_is_not_charged_in_full(books, spool, tmp_path, where):
    assert by_hand(books, edited(spool, tmp_path, start_unix_s=BEGAN_S + 3.5))[0] == 0
    spool.bare()
    assert collected(books, spool.folder, "--grace-s", 0)[0] == 1
    assert assert_right(where)["lab"] == 9.75 * SU


def test_a_script_does_not_pay_for_what_was_charged_by_hand(books, spool, tmp_path, where):
    """16,000 CPU seconds, of which a step without a record had 14,400."""
    assert by_hand(books, edited(spool, tmp_path, start_unix_s=BEGAN_S + 100.0))[0] == 0
    script(spool)
    found = collected(books, spool.folder)[1]["charges"]
    assert [entry["amount_usu"] for entry in found] == [pytest.approx(1600 / 3600 * SU, abs=1)]
    facts = Ledger(where).statement("lab")[-1].facts
    assert facts["by_hand_cpu_s"] == {"2": 14400.0}
    assert by_hand(books, tmp_path / "edited" / f"7.{BEGAN_S}.0.h5")[1]["status"] == "already charged"


def test_what_was_charged_by_hand_takes_no_more_than_the_job_had(books, spool, tmp_path):
    """A profile says of its cores what its user likes."""
    books("grant", "lab", 100_000)
    path = edited(spool, tmp_path, start_unix_s=BEGAN_S + 1500.0)
    assert books("charge", "lab", path, "--cores", 1000, "--wall-s", 100_000)[0] == 0
    script(spool)
    found = collected(books, spool.folder)[1]["charges"]
    assert [entry["amount_usu"] for entry in found] == [pytest.approx(8 * 1500 / 3600 * SU, abs=1)]


def test_other_steps_and_starts_of_the_job_are_charged_by_hand(books, spool, tmp_path):
    """One whose record is damaged, say."""
    spool()
    collected(books, spool.folder)
    for i, start_s in enumerate((BEGAN_S + 1800.0, BEGAN_S + 86400.0)):
        code, entry = by_hand(books, edited(spool, tmp_path, str(i), start_unix_s=start_s))
        assert (code, entry["status"]) == (0, "charged"), entry["reason"]
    assert by_hand(books, edited(spool, tmp_path, "other", job_id="8"))[0] == 0


@pytest.mark.timeout(LIMIT_S + 60)
def test_of_calls_at_the_same_time_one_charges(books, spool, tmp_path, where):
    """Eight processes by hand and by Slurm's records, each with what differs in content, all at once."""
    spool()
    copies = [edited(spool, tmp_path, str(i), slowdown=2.0 + i) for i in range(1, 5)]
    collect = ("collect", str(spool.folder), "--key-file", str(tmp_path / "site.key"))
    calls = [("charge", "lab", str(path), "--cores", "8", "--wall-s", "1800") for path in copies]
    begin_s = time.time() + 8.0
    code = (
        "import contextlib, io, time\nfrom mpicoloc.cli.main import main\n"
        "from mpicoloc.bill import charges\nfrom mpicoloc.slurm import collect as _\n"
        "time.sleep(max(0.0, float(argv[0]) - time.time()))\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    done = main(['ledger', *argv[1:]])\n"
        "print(json.dumps(done))"
    )
    found = results([start(code, begin_s, *call) for call in [*calls, *[collect] * 4]], timeout=LIMIT_S)
    lines = [line for line in Ledger(where).statement("lab") if line.kind == "charge"]
    assert len(lines) == 1
    is_by_hand = "slurm" not in lines[0].facts
    codes = sorted(found[:4]), found[4:]
    assert codes == (([0, 1, 1, 1], [1] * 4) if is_by_hand else ([1] * 4, [0] * 4))
    assert_right(where)
