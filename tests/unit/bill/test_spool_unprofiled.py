"""Steps that left no profile, or one that is refused, are charged by Slurm's record, without a discount."""

import json
import os
from pathlib import Path

import pytest
from ledger_lab import SU, assert_right
from spool_lab import BEGAN_S, collected, script

from mpicoloc.bill.ledger import Ledger
from mpicoloc.profile import signature
from mpicoloc.slurm import records

NOTHING = {"n_waiting": 0, "charges": []}
REFUSED = {"other key": "signed with another key", "damaged": "not an HDF5 file",
           "other job": "profile of job 8, not of job 7", "other run": "is from another run",
           "no slowdown": "a slowdown must be above 0"}  # fmt: skip
SAYS = {
    "other job": {"job_id": "8"},
    "other run": {"start_unix_s": BEGAN_S - 7200.0},
    "no slowdown": {"slowdown": 0.0},
}


def lines(account="lab"):
    return [line for line in Ledger("ledger.sqlite").statement(account) if line.kind == "charge"]


def test_who_leaves_no_profile_pays_in_full_when_none_can_come_any_more(books, spool):
    """8 CPUs for half an hour are 4 SU; a profile would have made them 1."""
    record = records.record_path(spool.bare())
    code, out, err = books("collect", spool.folder, "--key-file", "site.key")
    assert (code, out) == (0, "")
    assert "1 waiting (a step without a good profile until its record is 3600 s old, --grace-s;" in err
    assert collected(books, spool.folder) == (0, {"n_known": 0, "n_waiting": 1, "charges": []})
    spool.age()
    code, out, err = books("collect", spool.folder, "--key-file", "site.key")
    assert (code, err) == (0, "mpicoloc: 1 charged, 4 SU; 0 refused; 0 waiting; 0 known before\n")
    assert out == (
        f"{record}: charged, 4 SU, transaction 2; account lab has 6 SU; no discount, as it left no profile\n"
    )
    assert collected(books, spool.folder) == (0, {"n_known": 1, **NOTHING})
    facts = lines()[0].facts
    assert facts["measured_slowdown"] is facts["slowdown"] is None
    assert (facts["file"], facts["profile"], facts["lacks"]) == (record, "none", "it left no profile")
    assert "charge job 7.0, no profile" in books("statement", "lab")[1]
    assert assert_right("ledger.sqlite")["lab"] == 6 * SU


def test_the_grace_is_the_keepers(books, spool):
    spool.bare()
    for text in ("-1", "nan", "soon", "inf"):
        code, out, err = books("collect", spool.folder, "--key-file", "site.key", "--grace-s", text)
        assert (code, out) == (2, "") and f"--grace-s must be a number of seconds, got '{text}'" in err
    spool.age()
    assert collected(books, spool.folder, "--grace-s", 9000)[1]["n_waiting"] == 1
    found = collected(books, spool.folder, "--grace-s", 0, "--dry-run")[1]["charges"]
    assert [(entry["status"], entry["price_usu"]) for entry in found] == [("would be charged", 4 * SU)]
    assert collected(books, spool.folder, "--grace-s", 0)[1]["charges"][0]["amount_usu"] == 4 * SU


def test_a_profile_that_comes_late_is_told_until_the_site_has_decided(books, spool):
    path = spool()
    kept = path.rename("kept.h5")
    assert collected(books, spool.folder, "--grace-s", 0)[1]["charges"][0]["amount_usu"] == 4 * SU
    kept.rename(path)
    for _ in range(2):
        code, out, err = books("collect", spool.folder, "--key-file", "site.key")
        assert (code, out) == (0, "") and len(err.splitlines()) == 2
        assert err.endswith("mpicoloc: 0 charged, 0 SU; 1 late; 0 refused; 0 waiting; 0 known before\n")
        assert str(path) in err and "as transaction 2: `mpicoloc ledger refund 2 --release`" in err
    code, found = collected(books, spool.folder)
    assert (code, found["n_known"], found["n_waiting"], len(found["charges"])) == (0, 0, 0, 1)
    told = found["charges"][0]
    assert (told["status"], told["transaction"], told["job"], told["account"]) == ("late", 2, "7.0", "lab")
    books("refund", 2, "--release")
    code, found = collected(books, spool.folder)
    assert (code, found["charges"][0]["status"], found["charges"][0]["amount_usu"]) == (0, "charged", SU)
    assert collected(books, spool.folder) == (0, {"n_known": 1, **NOTHING})
    assert assert_right("ledger.sqlite")["lab"] == 9 * SU


def test_a_discount_given_by_hand_settles_a_late_profile(books, spool):
    path = spool()
    kept = path.rename("kept.h5")
    collected(books, spool.folder, "--grace-s", 0)
    kept.rename(path)
    books("refund", 2, "--su", 3)
    assert collected(books, spool.folder) == (0, {"n_known": 1, **NOTHING})
    books("refund", 2)
    assert collected(books, spool.folder) == (0, {"n_known": 1, **NOTHING})
    assert assert_right("ledger.sqlite")["lab"] == 10 * SU


def test_a_script_waits_for_its_steps_and_then_pays_the_rest(books, spool):
    """14,400 CPU seconds of 16,000 are the step's, in full; the rest is the script's."""
    script(spool)
    spool.bare()
    spool(job=8, step="batch")  # another job's has nothing to wait for
    code, found = collected(books, spool.folder)
    assert (code, found["n_waiting"], [entry["job"] for entry in found["charges"]]) == (0, 2, ["8.batch"])
    spool.age()
    code, found = collected(books, spool.folder)
    rest_usu = pytest.approx(1600 / 3600 * SU, abs=1)
    assert code == 0
    assert [(e["job"], e["amount_usu"]) for e in found["charges"]] == [("7.0", 4 * SU), ("7.batch", rest_usu)]


def test_a_script_without_a_profile_pays_the_rest_too(books, spool):
    spool()
    spool.bare(step="batch", ran_s=2000.0)
    assert [entry["job"] for entry in collected(books, spool.folder)[1]["charges"]] == ["7.0"]
    spool.age()
    found = collected(books, spool.folder)[1]["charges"]
    assert [entry["amount_usu"] for entry in found] == [pytest.approx(1600 / 3600 * SU, abs=1)]


def test_a_job_without_a_script_pays_for_what_its_steps_did_not(books, spool):
    """Its step ended on the first node long before the job: 14,400 CPU seconds of 16,000."""
    spool()
    spool.bare(step="allocation", n_nodes=2, n_cpus=16, job_n_cpus=16, ran_s=1000.0)
    code, found = collected(books, spool.folder)
    assert (code, found["n_waiting"], [entry["job"] for entry in found["charges"]]) == (0, 1, ["7.0"])
    spool.age()
    (rest,) = collected(books, spool.folder)[1]["charges"]
    assert rest["job"] == "7.allocation" and rest["amount_usu"] == pytest.approx(1600 / 3600 * SU, abs=1)
    spool.bare(step="1", begins_s=1800)
    spool.age()
    assert collected(books, spool.folder)[1]["charges"] == [], "it has paid for this one"


def test_a_step_that_comes_after_its_script_was_charged_has_paid(books, spool):
    """One that was killed is signed in the epilog; the script has paid for all its time."""
    script(spool)
    whole_usu = pytest.approx(16000 / 3600 * SU, abs=1)
    assert collected(books, spool.folder)[1]["charges"][0]["amount_usu"] == whole_usu
    spool.bare()
    late = spool(step="1", begins_s=1800, ran_s=100.0)
    spool.age()
    for _ in range(2):
        code, found = collected(books, spool.folder)
        assert (code, found["n_known"], len(found["charges"])) == (0, 2, 1)
        told = found["charges"][0]
        assert (told["file"], told["status"], told["job"]) == (str(late), "late", "7.1")
        assert "with the script, as transaction 2" in told["reason"]
    books("refund", 2, "--release")
    code, found = collected(books, spool.folder)
    assert code == 0 and [entry["job"] for entry in found["charges"]] == ["7.0", "7.1", "7.batch"]
    assert sum(line.facts["n_cores"] * line.facts["wall_s"] for line in lines()[1:]) == pytest.approx(16000)


def test_a_step_that_has_too_few_units_keeps_its_script_waiting(books, spool):
    """Else the script would pay for it at its own slowdown, and the grant would come too late."""
    books("charge", "lab", spool(job=8), "--cores", 2, "--wall-s", 14400, "--pricing", "runtime")
    spool.bare()
    script(spool)
    spool.age()
    code, found = collected(books, spool.folder)
    told = {entry["job"]: entry["status"] for entry in found["charges"]}
    assert (code, told, found["n_waiting"]) == (1, {"7.0": "refused", "8.0": "already charged"}, 1)
    books("grant", "lab", 10)
    code, found = collected(books, spool.folder)
    assert code == 0 and [entry["job"] for entry in found["charges"]] == ["7.0", "7.batch"]


@pytest.mark.parametrize("what", REFUSED)
def test_a_profile_that_is_refused_makes_nothing_cheaper(books, spool, what):
    path = spool(facts=SAYS.get(what))
    if what == "other key":
        signature.sign(path, b"k" * 32, 1.0)
    if what == "damaged":
        path.write_text("hello")
    assert collected(books, spool.folder) == (0, {"n_known": 0, "n_waiting": 1, "charges": []})
    spool.age()
    code, found = collected(books, spool.folder)
    told = found["charges"][0]
    assert (code, told["status"], told["amount_usu"]) == (0, "charged", 4 * SU)
    assert "its profile was refused" in told["reason"] and REFUSED[what] in told["reason"]
    assert collected(books, spool.folder) == (0, {"n_known": 1, **NOTHING}), "told once"
    facts = lines()[0].facts
    assert (facts["profile"], facts["lacks"], facts["measured_slowdown"]) == ("refused", told["reason"], None)
    assert facts["file"] == records.record_path(path)
    assert "profile refused" in " ".join(books("statement", "lab")[1].split())


def test_a_refused_profile_that_was_put_right_is_charged_after_a_release(books, spool):
    path = spool()
    good = path.read_bytes()
    path.write_bytes(b"hello")
    collected(books, spool.folder, "--grace-s", 0)
    path.write_bytes(good)
    assert collected(books, spool.folder) == (0, {"n_known": 1, **NOTHING})
    books("refund", 2, "--release")
    assert collected(books, spool.folder)[1]["charges"][0]["amount_usu"] == SU


def test_files_of_what_was_charged_may_be_moved_away(books, spool):
    """Profiles take room: without them the records say nothing new, and the script pays as much."""
    path = spool()
    collected(books, spool.folder)
    path.unlink()
    spool.age()
    assert collected(books, spool.folder) == (0, {"n_known": 1, **NOTHING})
    os.unlink(records.record_path(path))
    script(spool)
    found = collected(books, spool.folder)[1]["charges"]
    assert [entry["amount_usu"] for entry in found] == [pytest.approx(1600 / 3600 * SU, abs=1)]


def test_only_what_the_plugin_calls_a_record_is_one(books, spool):
    Path(spool.folder, "notes.json").write_text("{}")
    Path(spool.folder, ".7.1.0.json").write_text("{}")
    assert collected(books, spool.folder) == (0, {"n_known": 0, **NOTHING})
    Path(spool.folder, "7.1.0.json").write_text("{}")
    code, found = collected(books, spool.folder, "--grace-s", 0)
    assert (code, found["charges"][0]["status"]) == (3, "refused")


def test_a_record_that_is_not_the_sites_charges_nobody(books, spool):
    changed = Path(records.record_path(spool.bare()))
    changed.write_text(changed.read_text().replace('"user": "lab"', '"user": "eve"'))
    moved = Path(records.record_path(spool.bare(job=8)))
    moved.rename(spool.folder / f"9.{BEGAN_S}.0.json")
    spool.age()
    code, found = collected(books, spool.folder)
    assert code == 1
    assert [entry["status"] for entry in found["charges"]] == ["refused"] * 2
    reasons = " ".join(entry["reason"] for entry in found["charges"])
    assert (
        "was changed after it was written" in reasons and f"of another profile, 8.{BEGAN_S}.0.h5" in reasons
    )


def test_a_name_of_strange_bytes_keeps_no_other_from_being_charged(books, spool):
    spool()
    Path(os.fsencode(spool.folder).decode(), os.fsdecode(b"\xff.h5")).write_text("hello")
    code, out, _ = books("collect", spool.folder, "--key-file", "site.key", "--json")
    told = {entry["status"] for entry in json.loads(out)["charges"]}
    assert (code, told) == (1, {"charged", "refused"})
