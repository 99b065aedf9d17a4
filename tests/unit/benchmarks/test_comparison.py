"""Comparison of runs in `benchmarks/harmless`: output may differ only where bare runs differ."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks" / "harmless"))

from comparison import Outcome, Reference


def reference(*texts, code=0, name="stdout"):
    found = Reference()
    for text in texts:
        found.learn(Outcome(code, {name: text if isinstance(text, bytes) else text.encode()}))
    return found


def differences(found, text, code=0, name="stdout"):
    return found.differences(Outcome(code, {name: text if isinstance(text, bytes) else text.encode()}))


BARE = (
    "energy -1.25\ntime 1.5 s\n3 0.5\n4 0.6\nended at 12:30:01 on Tue Nov 24, pid 77\n",
    "energy -1.25\ntime 10.7 s\n3 0.5\n4 0.7\nended at 12:30:07 on Wed Nov 25, pid 78\n",
)


def test_what_differs_among_bare_runs_may_differ():
    text = "energy -1.25\ntime  9.1 s\n3 0.5\n4 0.9\nended at 01:02:03 on Mon Dec 1, pid 5\n"
    assert differences(reference(*BARE), text) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("energy -1.25", "energy -1.26"),
        ("energy -1.25", "energy  -1.25"),
        ("3 0.5", "3 0.6"),
        ("4 0.6", "5 0.6"),
        ("time 1.5 s", "time 1.5 m"),
        ("3 0.5\n", ""),
        ("ended", "a line more\nended"),
    ],
)
def test_all_else_must_be_equal(old, new):
    text = BARE[0].replace(old, new)
    assert text != BARE[0]
    assert len(differences(reference(*BARE), text)) == 1


def test_a_number_of_a_table_is_masked_in_all_lines_of_the_same_words_only():
    found = reference("Pair 0.1 s\nPair 0.2 s\nBond 0.3 s\n", "Pair 0.4 s\nPair 0.2 s\nBond 0.3 s\n")
    assert differences(found, "Pair 0.1 s\nPair 0.9 s\nBond 0.3 s\n") == []
    assert len(differences(found, "Pair 0.1 s\nPair 0.2 s\nBond 0.4 s\n")) == 1


def test_gaps_and_ends_of_lines_are_compared():
    assert len(differences(reference("a\n", "a\n"), "a \n")) == 1
    assert len(differences(reference("a\n", "a\n"), "a")) == 1
    assert len(differences(reference("12:30\n", "12:31\n"), "12:30")) == 1


def test_exit_codes_and_files_belong_to_a_run():
    found = reference(*BARE, code=3)
    assert differences(found, BARE[0], code=0) == ["exit code 3 became 0"]
    assert len(found.differences(Outcome(3, {}))) == 1
    assert len(found.differences(Outcome(3, {"stdout": BARE[0].encode(), "core": b""}))) == 1


def test_bytes_that_never_differ_must_not():
    found = reference(b"\0ab1", b"\0ab2")
    assert differences(found, b"\0ab3") == []
    assert len(differences(found, b"\0xb1")) == 1
    assert len(differences(found, b"\0ab")) == 1
    dated = reference(b"\0Tue Nov 24 19:03:37 2026 x")
    assert differences(dated, b"\0Wed Nov 25 00:00:01 2026 x") == []
    assert len(differences(dated, b"\0Wed Nov 25 00:00:01 2026 y")) == 1


def test_rounded_times_are_masked_and_what_stands_beside_them_is_not():
    found = Reference(" +[\\d.]+s WALL")
    found.learn(Outcome(0, {"stdout": b"calbec: 9.1s WALL 356 calls\nEnergy 1\n"}))
    assert differences(found, "calbec: 9.2s WALL 356 calls\nEnergy 1\n") == []
    assert len(differences(found, "calbec: 9.1s WALL 357 calls\nEnergy 1\n")) == 1
    assert len(differences(found, "calbec: 9.1s WALL 356 calls\nEnergy 2\n")) == 1


def test_times_in_a_file_that_is_no_text_do_not_count():
    def outcome(time, rest=b"\1\0"):
        return Outcome(0, {"run.db": b"\0task:walltime\0" + time + rest})

    bare, other = outcome(b"\x01" * 8), outcome(b"\x02" * 8)
    for times, n in ((b"", 1), (rb"task:walltime\0.{8}", 0)):
        reference = Reference("", times)
        reference.learn(bare)
        assert len(reference.differences(other)) == n
    assert reference.differences(outcome(b"\x01" * 8, b"\2\0"))
