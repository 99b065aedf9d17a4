"""`mpicoloc ledger` at a site's desk: what it is given is seldom all right, and it says so for each thing."""

import json
import os
import subprocess

import h5py
import numpy as np
import pytest
from ledger_lab import SU, assert_right, charged, write

from mpicoloc.bill import ledger
from mpicoloc.cli.main import main
from mpicoloc.profile import signature


def bad_files(folder):
    """Files that cannot be charged, and a word of the reason."""
    (folder / "text.h5").write_text("hello")
    for name, group, fact, value in (
        ("cores.h5", "job", "n_cores", -2),
        ("slowdown.h5", "interference/slowdown", "low", -1.0),
        ("long.h5", "job", "wall_s", 1e300),
        ("tiny.h5", "job", "wall_s", float("nan")),
    ):
        with h5py.File(write(folder, name, job_id=name), "r+") as file:
            file[group].attrs[fact] = value
    return {"text.h5": "not an HDF5 file", "cores.h5": "neither number may be negative",
            "slowdown.h5": "above 0", "long.h5": "a price must be",
            "tiny.h5": "nan", "missing.h5": "no such file"}  # fmt: skip


def test_a_file_that_cannot_be_charged_keeps_no_other_from_it(books, tmp_path):
    reasons = bad_files(tmp_path)
    good = [write(tmp_path, f"{i}.h5", job_id=str(i)).name for i in range(2)]
    code, out, err = books("charge", "lab", good[0], *reasons, good[1])
    assert code == 3
    assert [line.split(":")[0] for line in out.splitlines()] == good
    said = err.splitlines()
    assert len(said) == len(reasons)
    for line, (name, words) in zip(said, reasons.items(), strict=True):
        assert f"{name} not charged" in line and words in line
    assert assert_right("ledger.sqlite")["lab"] == 9.5 * SU
    code, found = charged(books, *reasons, *good)
    assert code == 3
    assert [entry["status"] for entry in found] == ["refused"] * len(reasons) + ["already charged"] * 2
    assert found[0]["job"] is None and "hello" not in found[0]["reason"]


def test_the_price_of_a_bad_profile_says_which(books, tmp_path, capsys):
    bad_files(tmp_path)
    write(tmp_path, "p.h5")
    for name in ("slowdown.h5", "text.h5"):
        assert main(["price", "p.h5", name]) == 3
        assert name in capsys.readouterr().err


def test_a_profile_of_another_job_is_refused(books, tmp_path):
    """An old one, put where the epilog looks, would leave this job without a bill."""
    old = write(tmp_path, "mpicoloc-1234.h5", job_id="1233")
    assert books("charge", "lab", old)[0] == 0
    code, out, err = books("charge", "lab", old, "--job-id", "1234")
    assert (code, out) == (1, "") and "profile of job 1233, not of job 1234" in err
    assert books("charge", "lab", old, "--job-id", "1233")[0] == 0
    assert books("charge", "lab", write(tmp_path, "new.h5", job_id="1234"), "--job-id", "1234")[0] == 0
    assert assert_right("ledger.sqlite")["lab"] == 9.5 * SU


@pytest.mark.parametrize("json_too", [False, True])
def test_what_was_charged_is_told_when_a_later_one_fails(books, tmp_path, monkeypatch, json_too):
    from mpicoloc.errors import EnvironmentFault

    files = [write(tmp_path, f"{i}.h5", job_id=str(i)).name for i in range(3)]
    charge = ledger.Ledger.charge

    def fails_late(self, name, found, stamp):
        if found.job_id == "2":
            raise EnvironmentFault("the ledger has gone")
        return charge(self, name, found, stamp)

    monkeypatch.setattr(ledger.Ledger, "charge", fails_late)
    code, out, err = books("charge", "lab", *files, *["--json"][: int(json_too)])
    assert code == 4 and err == "mpicoloc: the ledger has gone\n"
    told = json.loads(out)["charges"] if json_too else [line.split(":")[0] for line in out.splitlines()]
    assert [entry["file"] for entry in told] == files[:2] if json_too else told == files[:2]


def test_a_reader_that_goes_stops_no_charge(books, tmp_path):
    files = [write(tmp_path, f"{i}.h5", job_id=str(i)) for i in range(4)]
    reader, writer = os.pipe()
    os.close(reader)
    command = ["mpicoloc", "ledger", "charge", "lab", *files]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
    assert assert_right("ledger.sqlite")["lab"] == 9 * SU


def test_all_files_are_read_before_the_key(books, tmp_path, monkeypatch):
    key = tmp_path / "site.key"
    key.write_text("k" * 32)
    key.chmod(0o600)
    files = [write(tmp_path, f"{i}.h5", job_id=str(i)) for i in range(2)]
    order = []
    for name in ("snapshot", "read_key"):
        work = getattr(signature, name)
        monkeypatch.setattr(signature, name, lambda *args, n=name, w=work: (order.append(n), w(*args))[1])
    assert books("charge", "lab", *files, "--key-file", key)[0] == 1
    assert order == ["snapshot", "snapshot", "read_key"]


def test_what_a_profile_says_of_its_signature_is_not_obeyed(books, tmp_path):
    key = tmp_path / "site.key"
    key.write_text("k" * 32)
    key.chmod(0o600)
    file = write(tmp_path, "p.h5")
    signature.sign(file, b"o" * 32, 1.0)
    with h5py.File(file, "r+") as profile:
        profile["signature"].attrs["key_id"] = np.bytes_(b"\x1b]0;owned\x07")
    code, out, err = books("charge", "lab", file, "--key-file", key)
    assert (code, out) == (1, "") and "owned" in err and "\x1b" not in err


@pytest.mark.parametrize(
    "argv",
    [
        ["open", "\udcff"],
        ["grant", "\udcff", "1"],
        ["grant", "lab", "1", "--note", "\udcff"],
        ["grant", "lab", "1", "--reference", "\udcff"],
        ["grant", "lab", "\udcff"],
        ["charge", "\udcff", "p.h5"],
        ["charge", "lab", "p.h5", "--job-id", "\udcff"],
        ["refund", "2", "--note", "\udcff"],
        ["refund", "9" * 5000],
        ["charge", "lab", "p.h5", "--cores", "9" * 5000],
        ["statement", "\udcff"],
        ["list", "--ledger", "\udcff"],
    ],
    ids=lambda argv: " ".join(argv).encode("ascii", "replace").decode()[:30],
)
def test_words_that_are_no_text_are_one_line(books, tmp_path, argv):
    write(tmp_path, "p.h5")
    code, out, err = books(*argv)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert assert_right("ledger.sqlite")["lab"] == 10 * SU


def test_a_file_whose_name_is_no_text_is_charged(books, tmp_path):
    os.rename(write(tmp_path, "p.h5"), tmp_path / os.fsdecode(b"\xff.h5"))
    code, out, err = books("charge", "lab", "\udcff.h5")
    assert (code, err) == (0, "") and out.startswith("?.h5: charged")


def test_a_user_whose_name_is_no_text_can_post(books, monkeypatch):
    monkeypatch.setenv("LOGNAME", "\udcff")
    assert books("grant", "lab", "1")[0] == 0
    assert json.loads(books("statement", "lab", "--json")[1])["lines"][1]["posted_by"].startswith("?@")


@pytest.mark.parametrize("argv", [["@x"], ["x", "--grant", "-1"], ["x", "--overdraft", "y"]])
def test_a_wrong_account_begins_no_ledger(books, tmp_path, argv):
    assert books("open", *argv, "--ledger", "new.sqlite")[0] == 2
    assert not (tmp_path / "new.sqlite").exists()
