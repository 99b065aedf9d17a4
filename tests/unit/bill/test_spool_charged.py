"""`mpicoloc ledger collect`: what lies in a spool is charged by Slurm's records, each run of a step once."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from json_output import documented, keys
from ledger_lab import SU, assert_right, balances, results, start, write
from spool_lab import BEGAN_S, KEY, RECORD, collected, script

from mpicoloc.bill.ledger import Ledger
from mpicoloc.profile import signature
from mpicoloc.slurm import records


def test_cores_and_time_are_slurms_and_the_slowdown_is_the_profiles(books, spool):
    """8 CPUs for half an hour are 4 SU, and a quarter at a slowdown of 2; the profile says 2 for an hour."""
    spool(facts={"wall_s": 3600.0})
    code, out, err = books("collect", spool.folder, "--key-file", "site.key")
    assert (code, err) == (0, "mpicoloc: 1 charged, 1 SU; 0 refused; 0 waiting; 0 known before\n")
    assert out.endswith("7.1700000000.0.h5: charged, 1 SU, transaction 2; account lab has 9 SU\n")
    told = "mpicoloc: 0 charged, 0 SU; 0 refused; 0 waiting; 1 known before\n"
    assert books("collect", spool.folder, "--key-file", "site.key") == (0, "", told)
    assert assert_right("ledger.sqlite")["lab"] == 9 * SU


def test_what_was_not_measured_is_charged_as_not_slowed_down(books, spool):
    """Half of the time was outside MPI: 1800 s are 900 s and 450 s alone."""
    spool(facts={"wall_s": 900.0})
    assert collected(books, spool.folder)[1]["charges"][0]["amount_usu"] == 4 * SU * 9 // 16


def test_each_run_of_a_step_is_another_charge(books, spool):
    later_s = float(BEGAN_S + 86400)
    spool()
    spool(step="1", begins_s=1800)
    spool(step="0", restarts=1, job_submit_unix_s=float(BEGAN_S + 7200))  # requeued
    spool(job_submit_unix_s=later_s)  # Slurm counts from 1 again
    code, found = collected(books, spool.folder)
    assert code == 0 and found["n_known"] == 0
    assert [entry["status"] for entry in found["charges"]] == ["charged"] * 4
    assert len({entry["transaction"] for entry in found["charges"]}) == 4
    assert [entry["job"] for entry in found["charges"]].count("7.0") == 3
    assert collected(books, spool.folder) == (0, {"n_known": 4, "n_waiting": 0, "charges": []})
    assert assert_right("ledger.sqlite")["lab"] == 6 * SU


def test_two_clusters_may_have_the_same_job(books, spool, tmp_path):
    spool()
    other = tmp_path / "other"
    other.mkdir()
    path = write(other, "p.h5", job_id="7", start_unix_s=float(BEGAN_S), wall_s=1700.0)
    signature.sign(path, KEY, 1.0)
    record = replace(RECORD, profile="p.h5", cluster="other")
    records.write_sealed(records.record_path(path), record, KEY)
    assert collected(books, spool.folder)[0] == collected(books, other)[0] == 0
    assert len(Ledger("ledger.sqlite").statement("lab")) == 3


def test_the_script_pays_for_what_its_steps_did_not(books, spool):
    spool()
    spool(
        step="1", begins_s=1800, ran_s=50.0, facts={"start_unix_s": BEGAN_S - 7200.0}
    )  # changed after signing: no discount
    spool(step="2", begins_s=1850, ran_s=50.0).unlink()  # killed, say: no profile
    spool(job_submit_unix_s=float(BEGAN_S + 7200))  # another start of the job
    script(spool)
    for more in (["--dry-run"], []):
        found = [
            (entry["job"], entry["price_usu"])
            for entry in collected(books, spool.folder, "--grace-s", 0, *more)[1]["charges"]
        ]
        in_full, rest = (pytest.approx(cpu_s / 3600 * SU, abs=1) for cpu_s in (400, 800))
        paid = [("7.0", SU), ("7.1", in_full), ("7.2", in_full), ("7.0", SU), ("7.batch", rest)]
        assert found == paid


def test_what_cannot_be_charged_is_told_and_keeps_no_other_from_it(books, spool):
    good = spool()
    os.unlink(records.record_path(spool(job=8)))
    spool(job=9, user="nobody")
    changed = Path(records.record_path(spool(job=11)))
    changed.write_text(changed.read_text().replace('"n_cpus": 8', '"n_cpus": 1'))
    Path(records.record_path(spool(job=12))).write_text("{}")
    moved = spool(job=16)
    moved.rename(spool.folder / f"6.{BEGAN_S}.0.h5")
    os.rename(records.record_path(moved), spool.folder / f"6.{BEGAN_S}.0.json")
    code, found = collected(books, spool.folder)
    said = {Path(entry["file"]).name.split(".")[0]: entry["reason"] for entry in found["charges"]}
    words = {"6": f"of another profile, 16.{BEGAN_S}.0.h5", "8": "record of this step",
             "9": "mpicoloc ledger open nobody", "11": "was changed after it was written",
             "12": "damaged"}  # fmt: skip
    assert {job for job, reason in said.items() if reason is None} == {"7"}
    for job, text in words.items():
        assert text in said[job], said[job]
    assert code == 3
    assert assert_right("ledger.sqlite")["lab"] == 9 * SU
    books("open", "nobody", "--grant", "1")
    code, out, err = books("collect", spool.folder, "--key-file", "site.key")
    assert len(out.splitlines()) == 1 and f"9.{BEGAN_S}.0.h5: charged" in out
    *said, total = err.splitlines()
    assert len(said) == len(words) - 1 and str(good) not in err
    assert total == "mpicoloc: 1 charged, 1 SU; 4 refused; 0 waiting; 1 known before"


def test_the_profile_of_one_run_is_not_charged_for_another(books, spool):
    """One that starts nowhere is as good as any; its content tells."""
    first, second = spool(facts={"start_unix_s": 0.0}), spool(job_submit_unix_s=float(BEGAN_S + 7200))
    second.write_bytes(first.read_bytes())
    code, found = collected(books, spool.folder)
    assert (code, found["n_waiting"]) == (0, 1)
    assert [entry["status"] for entry in found["charges"]] == ["charged"]
    found = collected(books, spool.folder, "--grace-s", 0)[1]["charges"]
    assert [entry["amount_usu"] for entry in found] == [4 * SU]
    assert "charged for run" in found[0]["reason"]
    assert assert_right("ledger.sqlite")["lab"] == 5 * SU


def test_what_was_charged_by_hand_is_known_from_then_on_and_paid_once(books, spool, tmp_path):
    path = spool()
    assert books("charge", "lab", path, "--cores", 8, "--wall-s", 1800)[0] == 0
    code, found = collected(books, spool.folder)
    assert (code, found["charges"][0]["status"]) == (0, "already charged")
    path.rename(tmp_path / path.name)
    spool.age()
    assert collected(books, spool.folder)[1] == {"n_known": 1, "n_waiting": 0, "charges": []}
    script(spool)
    (rest,) = collected(books, spool.folder)[1]["charges"]
    assert (rest["job"], rest["amount_usu"]) == ("7.batch", pytest.approx(1600 / 3600 * SU, abs=1))
    assert assert_right("ledger.sqlite")["lab"] == 9 * SU - rest["amount_usu"]


@pytest.mark.parametrize(("leave", "su"), [("__call__", 1), ("bare", 4)], ids=["profile", "none"])
def test_what_is_given_back_stays_so_until_it_is_released(books, spool, leave, su):
    getattr(spool, leave)()
    spool.age()
    collected(books, spool.folder)
    books("refund", 2)
    assert collected(books, spool.folder) == (0, {"n_known": 1, "n_waiting": 0, "charges": []})
    books("refund", 2, "--release")
    code, found = collected(books, spool.folder, "--rate-su", 2)
    assert (code, found["charges"][0]["amount_usu"]) == (0, 2 * su * SU)
    assert assert_right("ledger.sqlite")["lab"] == (10 - 2 * su) * SU


def test_slurms_account_pays_if_the_site_says_so(books, spool):
    books("open", "physics", "--grant", "5")
    spool()
    spool(job=8, account=None)
    code, found = collected(books, spool.folder, "--by", "account")
    assert code == 1
    assert [entry["status"] for entry in found["charges"]] == ["charged", "refused"]
    assert "no account in Slurm" in found["charges"][1]["reason"]
    assert balances(Ledger("ledger.sqlite"))["physics"] == 4 * SU


def test_a_dry_run_charges_nothing(books, spool):
    spool()
    code, out, err = books("collect", spool.folder, "--key-file", "site.key", "--dry-run")
    assert (code, err) == (
        0,
        "mpicoloc: 0 charged, 0 SU; 1 would be charged, 1 SU; 0 refused; 0 waiting; 0 known before\n",
    )
    assert out.endswith(".h5: would be charged, 1 SU to account lab\n")
    assert collected(books, spool.folder, "--dry-run")[1]["charges"][0]["status"] == "would be charged"
    assert assert_right("ledger.sqlite")["lab"] == 10 * SU


def test_a_file_whose_name_may_come_again_is_looked_at_again(books, spool):
    """A name without the job's start says nothing after Slurm began to count anew."""
    path = spool()
    plain = spool.folder / "7.0.h5"
    path.rename(plain)
    os.unlink(records.record_path(path))
    records.write_sealed(records.record_path(plain), replace(RECORD, profile="7.0.h5"), KEY)
    assert collected(books, spool.folder)[1]["charges"][0]["status"] == "charged"
    assert collected(books, spool.folder)[1]["charges"][0]["status"] == "already charged"
    assert assert_right("ledger.sqlite")["lab"] == 9 * SU


@pytest.mark.timeout(120)
def test_two_that_collect_at_once_and_are_killed_charge_each_once(books, spool):
    for job in range(20, 26):
        spool(job=job, ran_s=180.0, facts={"wall_s": 180.0})
    for job in (26, 27):
        spool.bare(job=job, ran_s=180.0)
    spool.age()
    code = "from mpicoloc.cli.main import main; print(json.dumps(main(argv)))"
    argv = ["ledger", "collect", spool.folder, "--key-file", "site.key", "--json"]
    killed = start(code.replace("print", "str"), *argv)
    deadline_s = time.monotonic() + 60
    while len(Ledger("ledger.sqlite").statement("lab")) < 2 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    killed.kill()
    killed.communicate(timeout=60)
    argv.remove("--json")
    code = "import io, contextlib\nfrom mpicoloc.cli.main import main\n" + (
        "with contextlib.redirect_stdout(io.StringIO()): code = main(argv)\nprint(json.dumps(code))"
    )
    assert results([start(code, *argv) for _ in range(2)]) == [0, 0]
    assert len(Ledger("ledger.sqlite").statement("lab")) == 9
    assert assert_right("ledger.sqlite")["lab"] == 10 * SU - 6 * SU // 10 - 2 * 4 * SU // 10


def test_a_folder_of_users_is_told_from_a_spool(books, spool, tmp_path):
    def notes(folder):
        return books("collect", folder, "--key-file", "site.key")[2].splitlines()[:-1]

    users = tmp_path / "profiles"
    (users / "ann").mkdir(parents=True)
    write(users / "ann", "mpicoloc-8.h5", job_id="8")
    assert notes(users) == [
        f"mpicoloc: ignored in {users}: 1 entry that is neither a profile nor a record (ann); subfolders are "
        "not read"
    ]
    write(users, "mpicoloc-8.h5", job_id="8")
    users.chmod(0o1777)
    no_spool, _, is_open, refused = notes(users)
    assert "has profiles but no record of Slurm's plugin: give the folder that plugstack.conf" in no_spool
    assert f"other users can add files to {users}: make root its owner, with mode 755" in is_open
    assert "mpicoloc-8.h5 not charged: the Slurm record of this step" in refused
    spool()
    assert notes(spool.folder) == []
    for mode, may in ((0o777, "remove files from"), (0o775, "remove files from"), (0o1775, "add files to")):
        spool.folder.chmod(mode)
        (is_open,) = notes(spool.folder)
        assert f"other users can {may} {spool.folder}" in is_open
        assert ("a step without a record pays nothing" in is_open) == (may == "remove files from")


@pytest.mark.parametrize("what", ["another's", "copy", "pipe", "folder", "half", "nowhere"])
def test_what_lies_in_the_place_of_a_profile_gives_no_discount(books, spool, what):
    """A link to the step's own profile is as good as that."""
    own, other = spool(), spool(job=8)
    content = own.read_bytes()
    own.rename(spool.folder.parent / own.name)
    own.symlink_to(spool.folder.parent / own.name)
    other.unlink()
    if what in ("another's", "nowhere"):
        other.symlink_to(own if what == "another's" else "/nowhere")
    elif what in ("copy", "half"):
        other.write_bytes(content[: len(content) // (2 if what == "half" else 1)])
    else:
        (os.mkfifo if what == "pipe" else os.mkdir)(other)
    code, found = collected(books, spool.folder)
    assert (code, found["n_waiting"]) == (0, 1)
    assert [(one["job"], one["amount_usu"]) for one in found["charges"]] == [("7.0", SU)]
    spool.age()
    (late,) = collected(books, spool.folder)[1]["charges"]
    assert (late["job"], late["amount_usu"]) == ("8.0", 4 * SU) and "its profile was refused" in late[
        "reason"
    ]


def test_without_a_key_or_a_spool_nothing_is_charged(books, spool):
    assert books("collect", spool.folder)[0] == 2
    assert books("collect", spool.folder, "--key-file", "none")[0] == 2
    code, out, err = books("collect", spool.folder / "none", "--key-file", "site.key")
    assert (code, out, len(err.splitlines())) == (4, "", 1)
    assert str(spool.folder / "none") in err and "plugstack.conf names with spool=" in err


def test_the_documented_keys_are_those_of_the_command(books, spool):
    path = spool()
    record = json.loads(Path(records.record_path(path)).read_text())
    found = collected(books, spool.folder)[1]
    told = documented("ledger collect")
    assert list(found) == list(told) and list(found["charges"][0]) == list(told["charges"][0])
    told = documented("record")
    assert list(told) == list(record) and list(told["signature"]) == list(record["signature"])


def test_a_statement_has_the_documented_facts(books, spool):
    spool()
    assert collected(books, spool.folder)[0] == 0
    found = json.loads(books("statement", "lab", "--json")[1])
    del found["lines"][0]
    found["lines"][0]["facts"]["slurm"] = {}
    assert keys(found) == keys(documented("ledger statement"))
