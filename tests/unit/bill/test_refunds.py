"""A refund never exceeds its charge, and the books stay right when the job is charged again."""

from dataclasses import replace

import pytest
from ledger_lab import STAMP, SU, assert_right, charge, charged, write

from mpicoloc.bill import ledger as posts
from mpicoloc.errors import Refused, UsageError


@pytest.fixture
def two(ledger):
    """A ledger with two accounts of 10 SU."""
    for name in ("lab", "other"):
        ledger.open_account(name, 10 * SU, 0, STAMP)
    return ledger


def test_a_charge_to_the_wrong_account_is_put_right(two, where):
    number = two.charge("lab", charge(1, 4 * SU), STAMP).transaction
    with pytest.raises(
        Refused, match=f"charged to account lab, as transaction {number}; .*refund {number} --release"
    ):
        two.charge("other", charge(1, 4 * SU), STAMP)
    assert two.refund(number, None, STAMP, release=True).amount_usu == 4 * SU
    again = two.charge("other", charge(1, 4 * SU), STAMP)
    assert again.is_new and again.transaction != number
    found = assert_right(where)
    assert (found["lab"], found["other"]) == (10 * SU, 6 * SU)


def test_a_charge_at_the_wrong_rate_is_put_right(two, where):
    """Also if it was given back first, without a thought of what comes after."""
    number = two.charge("lab", charge(1, 4 * SU), STAMP).transaction
    two.refund(number, SU, STAMP)
    assert not two.charge("lab", charge(1, 2 * SU), STAMP).is_new
    two.refund(number, None, STAMP)
    with pytest.raises(Refused, match=f"transaction {number} and refunded; .*refund {number} --release"):
        two.charge("lab", charge(1, 2 * SU), STAMP)
    released = two.refund(number, None, STAMP, release=True)
    assert (released.amount_usu, released.account) == (0, "lab")
    assert two.charge("lab", charge(1, 2 * SU), STAMP).is_new
    assert assert_right(where)["lab"] == 8 * SU


def test_a_release_is_whole_and_once(two, where):
    number = two.charge("lab", charge(1, 4 * SU), STAMP).transaction
    with pytest.raises(UsageError, match="only be released in full"):
        two.refund(number, 4 * SU, STAMP, release=True)
    first = two.refund(number, None, STAMP, reference="r", release=True)
    assert two.refund(number, None, STAMP, reference="r", release=True) == replace(first, is_new=False)
    with pytest.raises(Refused, match=r"0 SU of transaction . can still"):
        two.refund(number, None, STAMP, release=True)
    # The old charge no longer stands for the profile.
    second = two.charge("lab", charge(1, 4 * SU), STAMP)
    with pytest.raises(Refused, match=r"0 SU of transaction . can still"):
        two.refund(number, None, STAMP, release=True)
    assert two.charge("lab", charge(1), STAMP) == replace(second, is_new=False)
    assert assert_right(where)["lab"] == 6 * SU


def test_a_release_lets_no_job_be_charged_twice(two, where):
    first = charge(1)
    corrected = replace(first, digest="f" * 64)
    number = two.charge("lab", first, STAMP).transaction
    two.refund(number, None, STAMP)
    second = two.charge("lab", corrected, STAMP).transaction
    two.refund(number, None, STAMP, release=True)
    with pytest.raises(Refused, match=f"another profile or without one, as transaction {second}"):
        two.charge("lab", first, STAMP)
    assert assert_right(where)["lab"] == 9 * SU


def test_a_charge_of_nothing_can_be_given_back(two, where):
    """Then another profile of the same job may be charged."""
    free = charge(1, 0)
    number = two.charge("lab", free, STAMP).transaction
    assert two.charge("lab", free, STAMP).transaction == number
    assert two.refund(number, None, STAMP).amount_usu == 0
    with pytest.raises(Refused, match="and refunded"):
        two.charge("lab", free, STAMP)
    with pytest.raises(Refused, match=r"0 SU of transaction . can still"):
        two.refund(number, None, STAMP)
    assert two.charge("lab", replace(free, digest="f" * 64, amount_usu=SU), STAMP).is_new
    assert assert_right(where)["lab"] == 9 * SU


@pytest.mark.parametrize("amount_usu", [None, 2 * SU])
def test_a_refund_trusts_nothing_that_it_read_before(two, where, monkeypatch, amount_usu):
    """Not every database keeps others off a row that was read."""
    number = two.charge("lab", charge(1, 4 * SU), STAMP).transaction
    with two.database.reading() as connection:
        before = posts.transaction_row(connection, number)
    two.refund(number, 3 * SU, STAMP)
    read = posts.transaction_row

    def late(*args, keep_others_off=False):
        return before if keep_others_off else read(*args)

    monkeypatch.setattr(posts, "transaction_row", late)
    with pytest.raises(Refused, match=r"1 SU of transaction . can still"):
        two.refund(number, amount_usu, STAMP)
    assert two.refund(number, SU, STAMP).balance_usu == 10 * SU
    assert assert_right(where)["lab"] == 10 * SU
    # All was given back, which the second of them did not know when it began.
    assert two.charge("lab", replace(charge(1), digest="f" * 64), STAMP).is_new


def test_a_person_puts_a_charge_right(books, tmp_path):
    file = write(tmp_path, "p.h5")
    assert charged(books, file, "--rate-su", "4")[1][0]["transaction"] == 2
    assert books("refund", "2")[0] == 0
    code, out, err = books("charge", "lab", file)
    assert (code, out) == (1, "") and "mpicoloc ledger refund 2 --release" in err
    code, out, err = books("refund", "2", "--su", "1", "--release")
    assert (code, out) == (2, "") and "leave out the amount" in err
    code, out, _ = books("refund", "2", "--release")
    assert code == 0 and "0 SU of transaction 2 given back to lab, its profile may be charged again" in out
    assert charged(books, file)[1][0]["status"] == "charged"
    assert assert_right("ledger.sqlite")["lab"] == 9.75 * SU
