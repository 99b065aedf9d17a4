"""Accounts of service units, in double entry: every transaction moves units between accounts and makes none.

A grant comes from the site's account ``@grants``, a charge goes to ``@charges``; the sum of all balances is
always 0. Amounts are whole micro-SU. A transaction is in the database whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from mpicoloc.core.units import su_text
from mpicoloc.errors import Refused, UsageError
from mpicoloc.store.ledger_db import (
    CHARGES,
    FAR_USU,
    GRANTS,
    Database,
    accounts,
    claims,
    entries,
    transactions,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Stamp:
    """When a transaction was posted, and by whom."""

    at_unix_s: float
    by: str


@dataclass(frozen=True)
class Charge:
    """What a profile is charged.

    Attributes
    ----------
    digest : str
        Of the profile's content; the same content is charged once.
    job_id : str
        Name of the job.
    start_unix_s : float
        When it started, 0: unknown. A job, told by both, is charged from one profile only.
    amount_usu : int
        Price.
    facts : mapping
        How the price came about, as plain values.
    """

    digest: str
    job_id: str
    start_unix_s: float
    amount_usu: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def claims(self) -> list[str]:
        """What this charge takes for itself."""
        found = [f"profile:{self.digest}"]
        if self.start_unix_s > 0:
            job = json.dumps([self.job_id, self.start_unix_s]).encode()
            found.append(f"job:{hashlib.sha256(job).hexdigest()}")
        return found


@dataclass(frozen=True)
class Account:
    """One account; `floor_usu` is the lowest balance that it may have."""

    name: str
    balance_usu: int
    floor_usu: int
    opened_unix_s: float


@dataclass(frozen=True)
class Posting:
    """A transaction and its account; `is_new` is false when it had been posted before."""

    transaction: int
    kind: str
    account: str
    amount_usu: int
    balance_usu: int
    is_new: bool


@dataclass(frozen=True)
class Line:
    """One line of a statement: what came (above 0) or went, and what was there after it."""

    transaction: int
    at_unix_s: float
    kind: str
    amount_usu: int
    balance_usu: int
    refers_to: int | None
    posted_by: str
    note: str
    facts: Mapping[str, Any]


class Ledger:
    """The accounts in one database; parameters and errors as of `Database`."""

    def __init__(self, where: str, *, create: bool = False) -> None:
        self.database = Database(where, create=create)

    def open_account(self, name: str, grant_usu: int, overdraft_usu: int, stamp: Stamp) -> Posting:
        """Open an account, with a first grant.

        Raises
        ------
        UsageError
            If the name is none.
        Refused
            If there is such an account.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"account name {name!r}: use up to 64 letters, digits, '.', '_', '-'; a letter or digit first"
            )

        def work(connection: sa.Connection) -> Posting:
            if connection.scalar(sa.select(accounts.c.id).where(accounts.c.name == name)) is not None:
                raise Refused(f"account {name} exists already; `mpicoloc ledger grant` adds units to it")
            row = {"name": name, "balance_usu": 0, "floor_usu": -overdraft_usu}
            connection.execute(accounts.insert().values(**row, opened_unix_s=stamp.at_unix_s))
            return _post(connection, "open", (GRANTS, name), grant_usu, stamp)

        return self.database.write(work)

    def grant(self, name: str, amount_usu: int, stamp: Stamp, reference: str = "", note: str = "") -> Posting:
        """Add units to an account; with a reference, once however often it is called.

        Raises
        ------
        UsageError
            If there is no such account.
        """
        claim = _claim("grant", name, reference)

        def work(connection: sa.Connection) -> Posting:
            _account(connection, name)
            done = _claimed(connection, claim)
            if done:
                return _posted(connection, done[0])
            return _post(connection, "grant", (GRANTS, name), amount_usu, stamp, claim, note=note)

        return self.database.write(work)

    def charge(self, name: str, charge: Charge, stamp: Stamp) -> Posting:
        """Charge a profile to an account, once however often it is called.

        Raises
        ------
        UsageError
            If there is no such account.
        Refused
            If the account has too few units, or the profile, or another profile of the same job, was charged
            elsewhere.
        """

        def work(connection: sa.Connection) -> Posting:
            _account(connection, name)
            done = _claimed(connection, charge.claims[:1])
            if done:
                return _same_account(_posted(connection, done[0]), name)
            done = _claimed(connection, charge.claims)
            if done:
                raise Refused(
                    f"job {charge.job_id} was charged from another profile, as transaction {done[0]}: "
                    f"refund that first"
                )
            return _post(connection, "charge", (name, CHARGES), charge.amount_usu, stamp, charge.claims,
                         facts=charge.facts)  # fmt: skip

        return self.database.write(work)

    def refund(
        self, transaction: int, amount_usu: int | None, stamp: Stamp, reference: str = "", note: str = ""
    ) -> Posting:
        """Give back a charge, or a part of it; never more than was charged.

        After all of it is given back, another profile of the same job may be charged; the same one may not.

        Parameters
        ----------
        transaction : int
            The charge.
        amount_usu : int or None
            How much; None: what is left of it.
        stamp, reference, note
            As of `grant`.

        Raises
        ------
        UsageError
            If there is no such transaction.
        Refused
            If it is no charge, or less is left of it.
        """
        claim = _claim("refund", str(transaction), reference)

        def work(connection: sa.Connection) -> Posting:
            row = _transaction(connection, transaction, keep_others_off=True)
            if row.kind != "charge":
                raise Refused(
                    f"transaction {transaction} is no charge but kind {row.kind}: nothing to refund"
                )
            done = _claimed(connection, claim)
            if done:
                return _posted(connection, done[0])
            given = _take_back(connection, row, amount_usu)
            name = _payer(connection, transaction)
            return _post(connection, "refund", (CHARGES, name), given, stamp, claim, note=note,
                         refers_to=transaction)  # fmt: skip

        return self.database.write(work)

    def accounts(self) -> list[Account]:
        """All accounts by name, the site's own first."""
        with self.database.reading() as connection:
            rows = connection.execute(sa.select(accounts).order_by(accounts.c.name)).all()
        return [Account(row.name, row.balance_usu, row.floor_usu, row.opened_unix_s) for row in rows]

    def statement(self, name: str) -> list[Line]:
        """All that came to an account and went from it, oldest first.

        Raises
        ------
        UsageError
            If there is no such account.
        """
        with self.database.reading() as connection:
            account = _account(connection, name)
            rows = connection.execute(
                sa.select(entries.c.amount_usu.label("moved_usu"), transactions)
                .join(transactions, transactions.c.id == entries.c.transaction_id)
                .where(entries.c.account_id == account.id)
                .order_by(entries.c.id)
            ).all()
        lines, balance_usu = [], 0
        for row in rows:
            balance_usu += row.moved_usu
            lines.append(Line(row.id, row.at_unix_s, row.kind, row.moved_usu, balance_usu, row.refers_to,
                              row.posted_by, row.note, json.loads(row.facts)))  # fmt: skip
        return lines


def _claim(kind: str, of: str, reference: str) -> list[str]:
    if not reference:
        return []
    return [f"{kind}:{hashlib.sha256(json.dumps([of, reference]).encode()).hexdigest()}"]


def _account(connection: sa.Connection, name: str) -> Any:
    row = connection.execute(sa.select(accounts).where(accounts.c.name == name)).first()
    if row is None:
        raise UsageError(f"no account {name!r}; `mpicoloc ledger list` shows all")
    return row


def _transaction(connection: sa.Connection, number: int, *, keep_others_off: bool = False) -> Any:
    wanted = sa.select(transactions).where(transactions.c.id == number)
    # SQLite, where only one writes at a time, leaves that out.
    row = connection.execute(wanted.with_for_update() if keep_others_off else wanted).first()
    if row is None:
        raise UsageError(f"no transaction {number}; `mpicoloc ledger statement NAME` shows their numbers")
    return row


def _claimed(connection: sa.Connection, wanted: Sequence[str]) -> list[int]:
    """Transactions that hold one of the claims."""
    found = connection.scalars(sa.select(claims.c.transaction_id).where(claims.c.claim.in_(wanted)))
    return sorted(set(found))


def _payer(connection: sa.Connection, transaction: int) -> str:
    """The account that a transaction concerns, which is none of the site's."""
    return str(connection.scalar(
        sa.select(accounts.c.name).join(entries, entries.c.account_id == accounts.c.id)
        .where(entries.c.transaction_id == transaction, accounts.c.name.not_in((GRANTS, CHARGES)))
    ))  # fmt: skip


def _posted(connection: sa.Connection, number: int) -> Posting:
    """A transaction that was posted before."""
    row, name = _transaction(connection, number), _payer(connection, number)
    return Posting(number, row.kind, name, row.amount_usu, _account(connection, name).balance_usu, False)


def _same_account(posting: Posting, name: str) -> Posting:
    if posting.account != name:
        raise Refused(
            f"this profile was charged to account {posting.account}, as transaction {posting.transaction}"
        )
    return posting


def _take_back(connection: sa.Connection, charge: Any, amount_usu: int | None) -> int:
    """Note on the charge how much of it is refunded; after all of it, its job may be charged again."""
    left_usu = int(charge.amount_usu - charge.refunded_usu)
    given = left_usu if amount_usu is None else amount_usu
    if given > left_usu or left_usu == 0:
        raise Refused(f"transaction {charge.id}: {su_text(left_usu)} SU of it are left to refund")
    connection.execute(
        transactions.update()
        .where(transactions.c.id == charge.id)
        .values(refunded_usu=charge.refunded_usu + given)
    )
    if given == left_usu:
        job = sa.and_(claims.c.transaction_id == charge.id, claims.c.claim.like("job:%"))
        connection.execute(claims.delete().where(job))
    return given


def _post(
    connection: sa.Connection,
    kind: str,
    way: tuple[str, str],
    amount_usu: int,
    stamp: Stamp,
    claimed: Sequence[str] = (),
    *,
    note: str = "",
    refers_to: int | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Posting:
    """Move an amount from the first account to the second, and write down that."""
    row = {"kind": kind, "amount_usu": amount_usu, "refunded_usu": 0, "refers_to": refers_to, "note": note}
    row |= {"at_unix_s": stamp.at_unix_s, "posted_by": stamp.by, "facts": json.dumps(dict(facts or {}))}
    inserted = connection.execute(transactions.insert().values(**row)).inserted_primary_key
    number = int(inserted[0]) if inserted is not None else 0
    if claimed:
        taken = [{"claim": claim, "transaction_id": number} for claim in claimed]
        connection.execute(claims.insert(), taken)
    moves = {way[0]: -amount_usu, way[1]: amount_usu}
    rows = {name: _account(connection, name) for name in moves}
    # In one order for everybody, or two posts could wait for each other.
    for name in sorted(moves, key=lambda name: rows[name].id):
        _move(connection, rows[name], moves[name])
        row = {"transaction_id": number, "account_id": rows[name].id, "amount_usu": moves[name]}
        connection.execute(entries.insert().values(**row))
    name = next(name for name in way if name not in (GRANTS, CHARGES))
    return Posting(number, kind, name, amount_usu, _account(connection, name).balance_usu, True)


def _move(connection: sa.Connection, account: Any, amount_usu: int) -> None:
    """Change a balance if it may have the new value, looking and changing in one step."""
    after = accounts.c.balance_usu + amount_usu
    lowest = accounts.c.floor_usu if amount_usu < 0 else -FAR_USU
    changed = connection.execute(
        accounts.update()
        .where(accounts.c.id == account.id, after >= lowest, after <= FAR_USU)
        .values(balance_usu=after)
    )
    if changed.rowcount != 1:
        floor = f", and may go down to {su_text(account.floor_usu)} SU" if account.floor_usu else ""
        raise Refused(
            f"account {account.name} has not enough units: {su_text(account.balance_usu)} SU{floor}, "
            f"needed are {su_text(abs(amount_usu))} SU"
        )
