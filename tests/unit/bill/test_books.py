"""Double entry: units move and are neither lost nor made; what may happen once happens once."""

import os
import tempfile
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from ledger_lab import STAMP, SU, assert_right, balances, charge

from mpicoloc.bill import ledger as posts, ledger as spool
from mpicoloc.bill.ledger import CHARGES, GRANTS, Ledger
from mpicoloc.bill.ledger_actions import audit
from mpicoloc.core.units import MAX_USU, su_text, usu_of_su, usu_of_text
from mpicoloc.errors import DataError, Refused, UsageError


def test_units_move_between_accounts(ledger, where):
    ledger.open_account("lab", 10 * SU, 0, STAMP)
    assert ledger.grant("lab", 5 * SU, STAMP).balance_usu == 15 * SU
    posting = ledger.charge("lab", charge(1, 4 * SU), STAMP)
    assert (posting.balance_usu, posting.is_new) == (11 * SU, True)
    assert ledger.refund(posting.transaction, SU, STAMP).balance_usu == 12 * SU
    assert assert_right(where) == {GRANTS: -15 * SU, CHARGES: 3 * SU, "lab": 12 * SU}
    lines = ledger.statement("lab")
    assert [line.kind for line in lines] == ["open", "grant", "charge", "refund"]
    assert [line.amount_usu for line in lines] == [10 * SU, 5 * SU, -4 * SU, SU]
    assert [line.balance_usu for line in lines] == [10 * SU, 15 * SU, 11 * SU, 12 * SU]
    assert lines[3].refers_to == posting.transaction


def test_a_profile_is_charged_once(ledger, where):
    for name in ("lab", "other"):
        ledger.open_account(name, 10 * SU, 0, STAMP)
    first = ledger.charge("lab", charge(1), STAMP)
    again = ledger.charge("lab", charge(1, 9 * SU), STAMP)
    assert not again.is_new
    assert (again.transaction, again.amount_usu) == (first.transaction, SU)
    with pytest.raises(Refused, match="charged to account lab"):
        ledger.charge("other", charge(1), STAMP)
    ledger.refund(first.transaction, None, STAMP)
    with pytest.raises(Refused, match="and refunded"):  # a refund is no leave to post it again
        ledger.charge("lab", charge(1), STAMP)
    assert assert_right(where)["lab"] == 10 * SU


def test_a_job_is_charged_from_one_profile(ledger, where):
    """A profile of the same job with other numbers is a mistake or a forgery."""
    ledger.open_account("lab", 10 * SU, 0, STAMP)
    first = charge(1)
    forged = type(first)("f" * 64, first.job_id, first.start_unix_s, 1)
    number = ledger.charge("lab", first, STAMP).transaction
    with pytest.raises(Refused, match=f"job-1 .*transaction {number}"):
        ledger.charge("lab", forged, STAMP)
    ledger.refund(number, SU // 2, STAMP)
    with pytest.raises(Refused):
        ledger.charge("lab", forged, STAMP)
    ledger.refund(number, None, STAMP)
    assert ledger.charge("lab", forged, STAMP).is_new  # now it is the correction
    unknown = [type(first)(c * 64, "", 0.0, SU) for c in "ab"]
    assert all(ledger.charge("lab", one, STAMP).is_new for one in unknown)
    assert_right(where)


def test_files_of_a_spool_are_known_while_their_charge_stands(ledger, where):
    ledger.open_account("lab", 10 * SU, 0, STAMP)
    names = ["7.1.0.h5", "ü" * 200 + ".h5", "n" * 250, "not charged.h5", *map(str, range(1000))]
    for i, name in enumerate(names[:3]):
        ledger.charge("lab", replace(charge(i), spooled=name), STAMP)
    assert spool.settled(ledger, names) == set(names[:3])
    ledger.refund(2, None, STAMP)
    assert spool.settled(ledger, names) == set(names[:3])
    ledger.refund(2, None, STAMP, release=True)
    assert spool.settled(ledger, names) == set(names[1:3])
    assert_right(where)


def test_a_run_is_charged_from_one_profile_and_a_profile_for_one_run(ledger, where):
    ledger.open_account("lab", 10 * SU, 0, STAMP)
    assert ledger.charge("lab", replace(charge(1), run="first"), STAMP).is_new
    assert not ledger.charge("lab", replace(charge(1), run="first"), STAMP).is_new
    with pytest.raises(Refused, match="charged for run first, as transaction 2"):
        ledger.charge("lab", replace(charge(1), run="second"), STAMP)
    with pytest.raises(Refused, match="from another profile"):
        ledger.charge("lab", replace(charge(2), run="first"), STAMP)
    assert ledger.charge("lab", replace(charge(2), run="second"), STAMP).is_new
    assert assert_right(where)["lab"] == 8 * SU


def test_too_few_units_change_nothing(ledger, where):
    ledger.open_account("lab", SU, 0, STAMP)
    with pytest.raises(Refused, match=r"lab does not have enough units: it has 1 SU, but needs 1\.000001"):
        ledger.charge("lab", charge(1, SU + 1), STAMP)
    assert assert_right(where)["lab"] == SU
    ledger.grant("lab", 1, STAMP)
    assert ledger.charge("lab", charge(1, SU + 1), STAMP).balance_usu == 0


def test_an_overdraft_has_an_end(ledger, where):
    ledger.open_account("lab", 0, 2 * SU, STAMP)
    assert ledger.charge("lab", charge(1, 2 * SU), STAMP).balance_usu == -2 * SU
    with pytest.raises(Refused, match="may go down to -2 SU"):
        ledger.charge("lab", charge(2, 1), STAMP)
    assert_right(where)


def test_a_reference_makes_grants_and_refunds_once(ledger, where):
    ledger.open_account("lab", 0, 0, STAMP)
    ledger.open_account("other", 0, 0, STAMP)
    first = ledger.grant("lab", 5 * SU, STAMP, reference="2026-Q1")
    again = ledger.grant("lab", 5 * SU, STAMP, reference="2026-Q1")
    assert (first.is_new, again.is_new, again.transaction) == (True, False, first.transaction)
    assert ledger.grant("other", SU, STAMP, reference="2026-Q1").is_new
    number = ledger.charge("lab", charge(1, 4 * SU), STAMP).transaction
    assert ledger.refund(number, SU, STAMP, reference="ticket 7").is_new
    assert not ledger.refund(number, SU, STAMP, reference="ticket 7").is_new
    assert assert_right(where)["lab"] == 2 * SU


def test_no_more_is_refunded_than_was_charged(ledger, where):
    opened = ledger.open_account("lab", 10 * SU, 0, STAMP)
    number = ledger.charge("lab", charge(1, 4 * SU), STAMP).transaction
    ledger.refund(number, 3 * SU, STAMP)
    with pytest.raises(Refused, match=r"1 SU of transaction . can still"):
        ledger.refund(number, 2 * SU, STAMP)
    ledger.refund(number, None, STAMP)
    with pytest.raises(Refused, match=r"0 SU of transaction . can still"):
        ledger.refund(number, None, STAMP)
    with pytest.raises(Refused, match="not a charge"):
        ledger.refund(opened.transaction, None, STAMP)
    with pytest.raises(UsageError, match="no transaction 999"):
        ledger.refund(999, None, STAMP)
    assert assert_right(where)["lab"] == 10 * SU


@pytest.mark.parametrize("name", [GRANTS, CHARGES])
def test_the_sites_own_accounts_are_no_users(ledger, where, name):
    ledger.open_account("lab", SU, 0, STAMP)
    for post in (
        lambda: ledger.grant(name, SU, STAMP),
        lambda: ledger.charge(name, charge(1), STAMP),
        lambda: ledger.open_account(name, SU, 0, STAMP),
    ):
        with pytest.raises(UsageError, match=name):
            post()
    assert assert_right(where) == {GRANTS: -SU, CHARGES: 0, "lab": SU}
    assert [line.kind for line in ledger.statement(GRANTS)] == ["open"]


@pytest.mark.parametrize("name", [GRANTS, CHARGES, "lab"])
def test_no_account_pays_itself(ledger, where, name):
    ledger.open_account("lab", SU, 0, STAMP)
    with pytest.raises(UsageError, match=f"{name} cannot pay itself"):
        ledger.database.write(
            lambda connection: posts.post_transfer(connection, "grant", (name, name), SU, STAMP)
        )
    assert assert_right(where)["lab"] == SU


@pytest.mark.parametrize("name", ["", "@grants", "@new", "a ", "-x", "x" * 65, "a;b", "a/b"])
def test_bad_names_are_refused(tmp_path, name):
    with pytest.raises(UsageError, match="account name"):
        Ledger(str(tmp_path / "l.sqlite"), create=True).open_account(name, 0, 0, STAMP)


def test_an_account_is_opened_once(ledger):
    ledger.open_account("lab", SU, 0, STAMP)
    with pytest.raises(Refused, match="exists already"):
        ledger.open_account("lab", SU, 0, STAMP)
    with pytest.raises(UsageError, match="no account 'nobody'"):
        ledger.charge("nobody", charge(1), STAMP)


def test_opening_a_ledger_again_keeps_it(ledger, where):
    ledger.open_account("lab", SU, 0, STAMP)
    assert balances(Ledger(where, create=True)) == balances(ledger)


def test_the_largest_amounts_stay_exact(ledger, where):
    """No sum leaves 64 bits; the account that would is refused."""
    ledger.open_account("lab", MAX_USU, 0, STAMP)
    for _ in range(3):
        ledger.grant("lab", MAX_USU, STAMP)
    with pytest.raises(Refused):
        ledger.grant("lab", MAX_USU, STAMP)
    assert ledger.charge("lab", charge(1, 1), STAMP).balance_usu == 4 * MAX_USU - 1
    assert_right(where)


def _entry_to(name, number, sign):
    """Let an entry be one of another account, and the balances those of the entries."""
    return (
        f"UPDATE mpicoloc_entries SET account_id = (SELECT id FROM mpicoloc_accounts WHERE name = '{name}') "
        f"WHERE transaction_id = {number} AND amount_usu {sign}; "
        "UPDATE mpicoloc_accounts SET balance_usu = (SELECT coalesce(sum(amount_usu), 0) "
        "FROM mpicoloc_entries WHERE account_id = mpicoloc_accounts.id)"
    )


DAMAGES = {
    "UPDATE mpicoloc_accounts SET balance_usu = balance_usu + 1 WHERE name = 'lab'": "add up to 0.000001 SU",
    "DELETE FROM mpicoloc_entries WHERE amount_usu < 0": "are not moved",
    "UPDATE mpicoloc_transactions SET refunded_usu = 7 WHERE kind = 'charge'": "given back",
    "DELETE FROM mpicoloc_claims": "charges neither a profile",
    "UPDATE mpicoloc_claims SET claim = 'released:3' WHERE claim LIKE 'profile:%'": "3 was released and not",
    "UPDATE mpicoloc_transactions SET kind = 'gift' WHERE kind = 'charge'": "3: 1 SU are not moved",
    _entry_to("lab", 3, "> 0"): "transaction 3: 1 SU are not moved",
    _entry_to("@grants", 3, "> 0"): "transaction 3: 1 SU are not moved",
    _entry_to("@charges", 1, "< 0"): "transaction 1: 10 SU are not moved",
    _entry_to("other", 4, "> 0"): "transaction 4 refunds to account other what it did not pay in 3",
}


@pytest.mark.parametrize("statement", DAMAGES)
def test_the_audit_sees_what_somebody_changed(ledger, where, statement):
    import sqlalchemy as sa

    ledger.open_account("lab", 10 * SU, 0, STAMP)
    ledger.open_account("other", 10 * SU, 0, STAMP)
    ledger.refund(ledger.charge("lab", charge(1), STAMP).transaction, SU // 2, STAMP)
    assert audit(ledger) == []
    with ledger.database._engine.begin() as connection:
        for one in statement.split(";"):
            connection.execute(sa.text(one))
    assert any(DAMAGES[statement] in line for line in audit(ledger))


ACCOUNTS = st.sampled_from(["a", "b", "c"])
AMOUNTS = st.integers(0, 5 * SU)
OPERATIONS = st.one_of(
    st.tuples(st.just("grant"), ACCOUNTS, AMOUNTS, st.sampled_from(["", "r1", "r2"])),
    st.tuples(st.just("charge"), ACCOUNTS, st.integers(0, 8), AMOUNTS),
    st.tuples(st.just("refund"), st.integers(0, 30), st.one_of(st.none(), AMOUNTS)),
    st.tuples(st.just("release"), st.integers(0, 30)),
)


def apply(ledger, operation):
    """Do one operation; what it moved to or from which account, None: nothing."""
    kind, *rest = operation
    try:
        if kind == "grant":
            posting, sign = ledger.grant(rest[0], rest[1], STAMP, reference=rest[2]), 1
        elif kind == "charge":
            posting, sign = ledger.charge(rest[0], charge(rest[1], rest[2]), STAMP), -1
        elif kind == "refund":
            posting, sign = ledger.refund(rest[0], rest[1], STAMP), 1
        else:
            posting, sign = ledger.refund(rest[0], None, STAMP, release=True), 1
    except (Refused, UsageError):
        return None
    return (posting.account, sign * posting.amount_usu) if posting.is_new else None


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=st.lists(OPERATIONS, max_size=24))
def test_any_sequence_of_operations_keeps_every_unit(operations):
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="mpicoloc-test-", dir=memory) as folder:
        check_conservation(os.path.join(folder, "ledger.sqlite"), operations)


def check_conservation(where, operations):
    ledger = Ledger(where, create=True)
    expected = dict.fromkeys("abc", 3 * SU)
    for name in expected:
        ledger.open_account(name, expected[name], 0, STAMP)
    n_released = 0
    for operation in operations:
        moved = apply(ledger, operation)
        if moved:
            expected[moved[0]] += moved[1]
            n_released += operation[0] == "release"
    found = assert_right(where)
    assert {name: found[name] for name in expected} == expected
    assert min(expected.values()) >= 0
    charged = [line.facts for name in expected for line in ledger.statement(name) if line.kind == "charge"]
    assert len(charged) <= 9 + n_released  # each profile at most once, but for those that were released


@given(st.integers(0, MAX_USU))
def test_amounts_as_text_are_exact(amount_usu):
    assert usu_of_text(su_text(amount_usu), "x") == amount_usu
    assert su_text(-amount_usu) == ("-" if amount_usu else "") + su_text(amount_usu)


@given(st.floats(0, 1e9))
def test_prices_are_rounded_by_at_most_half_a_micro_unit(amount_su):
    assert abs(Decimal(usu_of_su(amount_su)) - Decimal(amount_su) * SU) <= Decimal("0.5")


def test_bad_amounts_are_refused():
    far = ("1e1000000", "1e-2000000", "-1e1000000", "1e9999999999999999999", f"1.{'0' * 40}1")
    for text in ("-1", "x", "nan", "snan", "inf", "1e30", "0.0000001", "", *far):
        with pytest.raises(UsageError):
            usu_of_text(text, "--grant")
    for number in (-1.0, float("nan"), float("inf"), 1e13):
        with pytest.raises(DataError):
            usu_of_su(number)
    assert usu_of_text("1e3", "x") == 1000 * SU and usu_of_su(0.0000005) == 0 and usu_of_su(0.0000015) == 2
