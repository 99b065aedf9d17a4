"""A profile charged by hand, of which Slurm's record lies in the spool."""

import pytest
from ledger_lab import SU, assert_right
from spool_lab import collected, script


def test_one_that_a_call_has_seen_may_be_moved_and_is_paid_once(books, spool, tmp_path):
    path = spool()
    assert books("charge", "lab", path, "--cores", 8, "--wall-s", 1800)[0] == 0
    assert [entry["status"] for entry in collected(books, spool.folder)[1]["charges"]] == ["already charged"]
    path.rename(tmp_path / path.name)
    spool.age()
    assert collected(books, spool.folder) == (0, {"n_known": 1, "n_waiting": 0, "charges": []})
    script(spool)
    rest = pytest.approx(1600 / 3600 * SU, abs=1)
    charges = collected(books, spool.folder)[1]["charges"]
    assert [(entry["job"], entry["amount_usu"]) for entry in charges] == [("7.batch", rest)]
    assert assert_right("ledger.sqlite")["lab"] == 9 * SU - charges[0]["amount_usu"]
