"""Many processes, also of several hosts, post at once through the command and its functions."""

import json
import os
import shutil
import sqlite3
import subprocess
from dataclasses import replace

import h5py
import pytest
from json_output import documented
from ledger_lab import STAMP, SU, assert_right, charge, charged, profile, results, start, write

from mpicoloc.bill.ledger import CHARGES, Ledger
from mpicoloc.cli.main import main
from mpicoloc.profile import hdf5, signature

COMMAND = """
import contextlib, io
from mpicoloc.cli.main import main
found = []
for file in argv[1:]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["ledger", "charge", argv[0], file, "--json"])
    found += [[code, entry["status"]] for entry in json.loads(out.getvalue())["charges"]]
print(json.dumps(found))
"""


@pytest.fixture
def desk(where, tmp_path, monkeypatch):
    """A folder to work in, with an empty ledger as the default one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPICOLOC_LEDGER", where)
    return tmp_path


@pytest.mark.timeout(150)
def test_processes_that_post_the_same_profiles_at_once(desk, where):
    assert main(["ledger", "open", "lab", "--grant", "100"]) == 0
    shared = [write(desk, f"s{i}.h5", job_id=f"s{i}") for i in range(4)]
    workers = []
    for i in range(4):
        own = write(desk, f"own{i}.h5", job_id=f"own{i}")
        files = [*shared[i:], own, *shared[:i]]
        workers.append(start(COMMAND, "lab", *files))
    found = [entry for worker in results(workers, timeout=140) for entry in worker]
    assert {code for code, _ in found} == {0}
    assert sorted(status for _, status in found) == ["already charged"] * 12 + ["charged"] * 8
    # Each of 2 cores x 0.5 h at a slowdown of 2: 1 SU by run time, 1/4 SU by Eq. 4
    assert assert_right(where)[CHARGES] == 8 * SU // 4


TRIES = """
from mpicoloc.errors import Refused
ledger, n = Ledger(argv[0], create=True), 0
for i in range(int(argv[1])):
    try:
        {}
        n += 1
    except Refused:
        pass
print(n)
"""
SPEND = TRIES.format('ledger.charge("lab", charge(100 * int(argv[2]) + i, 3 * SU), STAMP)')
OPEN = TRIES.format('ledger.open_account("lab", SU, 0, STAMP)')
REFUND = TRIES.format("ledger.refund(2, 2 * SU, STAMP)")


@pytest.mark.timeout(150)
def test_processes_cannot_spend_a_unit_twice(desk, where):
    Ledger(where, create=True).open_account("lab", 20 * SU, 0, STAMP)
    assert sum(results([start(SPEND, where, 8, i) for i in range(4)], timeout=140)) == 6
    assert assert_right(where)["lab"] == 2 * SU


@pytest.mark.timeout(150)
def test_processes_that_begin_a_ledger_at_once(where):
    assert sorted(results([start(OPEN, where, 1) for _ in range(4)], timeout=140)) == [0, 0, 0, 1]
    assert assert_right(where)["lab"] == SU


@pytest.mark.timeout(150)
def test_processes_cannot_refund_more_than_was_charged(where):
    ledger = Ledger(where, create=True)
    ledger.open_account("lab", 20 * SU, 0, STAMP)
    assert ledger.charge("lab", charge(1, 9 * SU), STAMP).transaction == 2
    assert sum(results([start(REFUND, where, 4) for _ in range(3)], timeout=140)) == 4
    assert assert_right(where)["lab"] == 19 * SU


def host(name, *argv):
    """The command on another host: names, processes and mounts of its own, the same file system."""
    script = 'hostname "$0" && exec mpicoloc "$@"'
    return ["unshare", "--user", "--map-root-user", "--uts", "--pid", "--fork", "--mount", "--ipc",
            "sh", "-c", script, name, *map(str, argv)]  # fmt: skip


@pytest.mark.timeout(120)
def test_two_hosts_post_to_one_file(tmp_path):
    if (
        shutil.which("unshare") is None
        or subprocess.run(host("a", "--version"), capture_output=True).returncode
    ):
        pytest.skip("this machine lets nobody make namespaces")
    where, file = tmp_path / "ledger.sqlite", write(tmp_path, "p.h5")
    Ledger(str(where), create=True).open_account("lab", SU, 0, STAMP)
    argv = ["ledger", "charge", "lab", file, "--ledger", where, "--json"]
    posts = [
        subprocess.Popen(host(name, *argv), stdout=subprocess.PIPE, text=True) for name in ("node1", "node2")
    ]
    found = [json.loads(post.communicate(timeout=100)[0])["charges"][0]["status"] for post in posts]
    assert sorted(found) == ["already charged", "charged"]
    line = Ledger(str(where)).statement("lab")[1]
    assert line.posted_by.endswith(("@node1", "@node2"))
    assert assert_right(where)[CHARGES] == SU // 4


def test_the_documented_keys_are_those_of_the_command(books, tmp_path):
    for rate in ("1", "1000"):  # charged, refused
        name = f"{rate}.h5"
        found = charged(books, write(tmp_path, name, job_id=rate), "--rate-su", rate)[1]
        assert list(found[0]) == list(documented("ledger charge")["charges"][0])


def test_copies_and_other_layouts_of_a_profile_are_the_same_profile(books, tmp_path):
    file = write(tmp_path, "p.h5")
    shutil.copy(file, "copy.h5")
    signature.sign("copy.h5", b"k" * 32, 1.0)
    files = [file, "copy.h5"]
    if shutil.which("h5repack"):
        subprocess.run(["h5repack", file, "packed.h5"], check=True, timeout=60)
        files.append("packed.h5")
    code, found = charged(books, *files)
    assert code == 0
    assert [entry["status"] for entry in found] == ["charged", *["already charged"] * (len(files) - 1)]
    assert len({entry["transaction"] for entry in found}) == 1


def test_the_tariff_is_the_keepers_and_not_the_profiles(books, tmp_path, monkeypatch):
    """Whoever runs a job sets its rate and price function; he must not set his bill."""
    cheap = profile()
    cheap = replace(cheap, price=replace(cheap.price, rate_su=0.0, pricing="math:nothing", fair_su=0.0))
    hdf5.write(cheap, tmp_path / "cheap.h5")
    assert charged(books, "cheap.h5")[1][0]["amount_usu"] == SU // 4
    monkeypatch.setenv("MPICOLOC_RATE_SU", "3")
    write(tmp_path, "b.h5", job_id="b")
    assert charged(books, "b.h5")[1][0]["amount_usu"] == 3 * SU // 4
    write(tmp_path, "c.h5", job_id="c")
    assert charged(books, "c.h5", "--rate-su", "4", "--pricing", "runtime")[1][0]["amount_usu"] == 4 * SU
    write(tmp_path, "d.h5", job_id="d")
    found = charged(books, "d.h5", "--rate-su", "1", "--cores", "1", "--wall-s", "3600")[1]
    assert found[0]["amount_usu"] == SU // 4


def test_only_signed_profiles_are_taken(books, tmp_path):
    for name in ("good", "other"):
        key = tmp_path / f"{name}.key"
        key.write_text(name * 16)
        key.chmod(0o600)
    files = [
        write(tmp_path, f"{name}.h5", job_id=name) for name in ("signed", "unsigned", "changed", "others")
    ]
    for i, key in ((0, "good"), (2, "good"), (3, "other")):
        signature.sign(files[i], signature.read_key(f"{key}.key"), 1.0)
    with h5py.File(files[2], "r+") as file:
        file["job"].attrs["wall_s"] = 1.0
    code, out, err = books("charge", "lab", *files, "--key-file", "good.key", "--json")
    assert code == 1
    found = json.loads(out)["charges"]
    assert [entry["status"] for entry in found] == ["charged", "refused", "refused", "refused"]
    reasons = [entry["reason"] for entry in found]
    assert reasons[1] == "unsigned" and "changed after signing" in reasons[2] and "another key" in reasons[3]
    assert len(err.splitlines()) == 3 and all("not charged" in line for line in err.splitlines())
    (tmp_path / "good.key").chmod(0o644)
    code, out, err = books("charge", "lab", files[0], "--key-file", "good.key")
    assert (code, out, len(err.splitlines())) == (4, "", 1)


def test_a_job_cannot_write_on_the_keepers_terminal(books, tmp_path):
    file = write(tmp_path, "p.h5", job_id="1\x1b]0;owned\x07\n@grants")
    for argv in (["charge", "lab", file], ["statement", "lab"]):
        code, out, err = books(*argv)
        assert code == 0 and "\x1b" not in out + err and "\x07" not in out + err
    assert main(["price", str(file)]) == 0


def test_too_few_units_is_a_negative_answer(books, tmp_path):
    file = write(tmp_path, "p.h5")
    code, out, err = books("charge", "lab", file, "--rate-su", "100")
    assert (
        (code, out) == (1, "") and "not have enough units: it has 10 SU" in err and len(err.splitlines()) == 1
    )
    assert books("grant", "lab", "15")[0] == 0
    assert charged(books, file, "--rate-su", "100")[0] == 0


def test_what_was_not_measured_is_charged_as_an_unshared_run(books, tmp_path):
    bare = profile()
    bare = replace(bare, interference=replace(bare.interference, slowdown=None), price=None)
    hdf5.write(bare, tmp_path / "p.h5")
    assert charged(books, "p.h5")[1][0]["amount_usu"] == SU
    facts = json.loads(books("statement", "lab", "--json")[1])["lines"][1]["facts"]
    assert facts["slowdown"] is None and facts["fair_su"] is None and facts["runtime_su"] == 1.0


def test_statement_list_refund_and_audit_as_a_person_sees_them(books, tmp_path):
    number = charged(books, write(tmp_path, "p.h5"))[1][0]["transaction"]
    code, out, _ = books("refund", number, "--su", "0.1", "--note", "node was slow")
    assert code == 0 and "0.1 SU of transaction 2 given back to lab" in out
    out = books("statement", "lab")[1]
    assert "charge job 1" in out and "refund of 2: node was slow" in out and "-0.25" in out and "9.85" in out
    out = books("list")[1]
    assert "@grants" in out and "-10" in out and "9.85" in out
    listed = json.loads(books("list", "--json")[1])
    assert listed["sum_usu"] == 0 and len(listed["accounts"]) == 3
    assert books("audit") == (0, "the books are right: no unit was lost or made\n", "")
    assert json.loads(books("audit", "--json")[1]) == {"is_right": True, "wrong": []}


WRONG = [
    ([], 2, "ACTION"),
    (["bogus"], 2, "bogus"),
    (["open"], 2, "NAME"),
    (["open", "lab"], 1, "exists already"),
    (["open", "@x"], 2, "account name"),
    (["open", "x", "--grant", "-1"], 2, "--grant"),
    (["open", "x", "--overdraft", "some"], 2, "--overdraft"),
    (["grant", "nobody", "1"], 2, "no account 'nobody'"),
    (["grant", "lab", "0.0000001"], 2, "decimal places"),
    (["charge", "lab"], 2, "PROFILE"),
    (["charge", "lab", "missing.h5"], 3, "missing.h5"),
    (["charge", "lab", "p.h5", "--rate-su", "x"], 2, "--rate-su"),
    (["charge", "lab", "p.h5", "--cores", "0"], 2, "--cores"),
    (["charge", "lab", "p.h5", "--wall-s", "x"], 2, "--wall-s"),
    (["charge", "lab", "p.h5", "--key-file", "missing.key"], 2, "missing.key"),
    (["charge", "nobody", "p.h5"], 2, "no account"),
    (["refund", "1"], 1, "not a charge"),
    (["refund", "x"], 2, "TRANSACTION"),
    (["refund", "99"], 2, "no transaction 99"),
    (["statement", "nobody"], 2, "no account"),
    (["list", "--ledger", "missing.sqlite"], 3, "no ledger"),
    (["list", "--ledger", "p.h5"], 3, "p.h5"),
    (["open", "x", "--ledger", "no/folder/l.sqlite"], 4, "does not exist"),
    (["list", "--ledger", "bogus://x"], 4, "not installed"),
]


@pytest.mark.parametrize(("argv", "code", "words"), WRONG, ids=[" ".join(row[0]) for row in WRONG])
def test_a_wrong_call_is_one_line_and_changes_nothing(books, tmp_path, argv, code, words):
    write(tmp_path, "p.h5")
    found, out, err = books(*argv)
    assert (found, out, len(err.splitlines())) == (code, "", 1) and words in err, err
    assert assert_right("ledger.sqlite")["lab"] == 10 * SU


def test_a_ledger_that_others_keep_busy_is_named(books, tmp_path):
    holder = sqlite3.connect("ledger.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    url = f"sqlite:///{os.path.abspath('ledger.sqlite')}?timeout=0.2"
    code, out, err = books("charge", "lab", write(tmp_path, "p.h5"), "--ledger", url)
    assert (code, out, len(err.splitlines())) == (4, "", 1) and "locked it for too long" in err
    assert books("list", "--ledger", url)[0] == 0  # readers wait for nobody
    holder.close()


def test_the_default_ledger_is_the_users_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert main(["ledger", "list"]) == 3
    assert main(["ledger", "open", "lab"]) == 0
    assert (tmp_path / "data" / "mpicoloc" / "ledger.sqlite").exists()
    assert main(["ledger", "list"]) == 0
