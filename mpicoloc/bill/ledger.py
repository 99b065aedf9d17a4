"""Accounts of service units, in double entry: every transaction moves units between accounts and makes none.

A grant comes from the site's account ``@grants``, a charge goes to ``@charges``; the sum of all balances is
always 0. Amounts are whole micro-SU. A transaction is in the database whole or not at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from mpicoloc.bill import posts
from mpicoloc.bill.db import CHARGES, GRANTS, Database, accounts, entries, transactions
from mpicoloc.errors import MpicolocError, Refused, UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Stamp:
    """When a transaction was posted, and by whom."""

    at_unix_s: float
    by: str


@dataclass(frozen=True)
class Charge:
    """What a profile is charged, or a step that left none.

    Attributes
    ----------
    digest : str
        Of the profile's content, or of that of Slurm's record where no profile counts; the same content is
        charged once.
    job_id : str
        Name of the job.
    start_unix_s : float
        When it started, 0: unknown. A job, told by both, is charged from one profile only.
    amount_usu : int
        Price.
    facts : mapping
        How the price came about, as plain values.
    run : str
        Name of the run by the batch system, unlike that of any other: it is charged from one profile only,
        and this profile for no other run. Empty: `job_id` and `start_unix_s` name it.
    spooled : str
        Name of the file in a spool that this charge settles, by which `ledger_spool.settled` finds it;
        empty: none.
    turn : (str, int) or None
        The number of its job, and how many charges of jobs of that number took a turn before
        (`ledger_job.of_number`); None: those do not matter.
    """

    digest: str
    job_id: str
    start_unix_s: float
    amount_usu: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""
    spooled: str = ""
    turn: tuple[str, int] | None = None

    @property
    def claims(self) -> list[str]:
        """What this charge takes for itself."""
        found = [posts.content_claim(self.digest)]
        if self.run:
            found.append(posts.run_claim(self.run))
        elif self.start_unix_s > 0:
            found.append(posts.run_claim(json.dumps([self.job_id, self.start_unix_s])))
        return [*found, posts.spool_claim(self.spooled)] if self.spooled else found


class Overtaken(MpicolocError):
    """The job was charged after its charges were looked at: look again."""


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


def is_name(name: str) -> bool:
    """Whether an account can have that name."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    """Refuse what cannot name an account.

    Raises
    ------
    UsageError
        If it is no name.
    """
    if not is_name(name):
        raise UsageError(
            f"account name {name!r}: use up to 64 letters, digits, '.', '_', '-'; a letter or digit first"
        )


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
        check_name(name)

        def work(connection: sa.Connection) -> Posting:
            if connection.scalar(sa.select(accounts.c.id).where(accounts.c.name == name)) is not None:
                raise Refused(f"account {name} exists already; `mpicoloc ledger grant` adds units to it")
            row = {"name": name, "balance_usu": 0, "floor_usu": -overdraft_usu}
            connection.execute(accounts.insert().values(**row, opened_unix_s=stamp.at_unix_s))
            number = posts.post(connection, "open", (GRANTS, name), grant_usu, stamp)
            return posted(connection, number, is_new=True)

        return self.database.write(work)

    def grant(self, name: str, amount_usu: int, stamp: Stamp, reference: str = "", note: str = "") -> Posting:
        """Add units to an account; with a reference, once however often it is called.

        Raises
        ------
        UsageError
            If there is no such account, or it is the site's own.
        """
        claim = _claim("grant", name, reference)

        def work(connection: sa.Connection) -> Posting:
            posts.users_account(connection, name)
            done = posts.claimed(connection, claim)
            if done:
                return posted(connection, done[0])
            number = posts.post(connection, "grant", (GRANTS, name), amount_usu, stamp, claim, note=note)
            return posted(connection, number, is_new=True)

        return self.database.write(work)

    def charge(self, name: str, charge: Charge, stamp: Stamp) -> Posting:
        """Charge a profile to an account, once however often it is called.

        Raises
        ------
        UsageError
            If there is no such account, or it is the site's own.
        Overtaken
            If it is not the charge's turn any more.
        Refused
            If the account has too few units; if the profile was charged to another account or for another
            run, or was given back and not released; if another profile of the same job was charged.
        """

        def work(connection: sa.Connection) -> Posting:
            posts.users_account(connection, name)
            turn = posts.turn_claims(charge.turn[0], charge.turn[1:]) if charge.turn else []
            # All in one question: between two another call may post the same charge.
            held = posts.holders(connection, [*charge.claims, *turn])
            if charge.claims[0] in held:
                return _standing(connection, held[charge.claims[0]], name, charge)
            if held.keys() & set(turn):
                raise Overtaken(f"job {charge.job_id} was charged meanwhile")
            if held:
                raise Refused(
                    f"job {charge.job_id} was charged from another profile or without one, as transaction "
                    f"{min(held.values())}: refund that first"
                )
            facts = {**charge.facts, "run": charge.run} if charge.run else charge.facts
            taken = [*charge.claims, *turn]
            number = posts.post(
                connection, "charge", (name, CHARGES), charge.amount_usu, stamp, taken, facts=facts
            )
            return posted(connection, number, is_new=True)

        return self.database.write(work)

    def refund(
        self,
        transaction: int,
        amount_usu: int | None,
        stamp: Stamp,
        reference: str = "",
        note: str = "",
        *,
        release: bool = False,
    ) -> Posting:
        """Give back a charge, or a part of it; never more than was charged.

        After all of it is given back, another profile of the same job may be charged; the same one only if it
        was released.

        Parameters
        ----------
        transaction : int
            The charge.
        amount_usu : int or None
            How much; None: what is left of it, which may be nothing.
        stamp, reference, note
            As of `grant`.
        release : bool
            Give back what is left, and let the same profile be charged again, to any account at any rate.

        Raises
        ------
        UsageError
            If there is no such transaction, or a part of it is to be released.
        Refused
            If it is no charge, less is left of it, or there is nothing left to give back or to release.
        """
        if release and amount_usu is not None:
            raise UsageError("a charge is released as a whole: leave out the amount, which is what is left")
        claim = _claim("refund", str(transaction), reference)

        def work(connection: sa.Connection) -> Posting:
            row = posts.transaction(connection, transaction, keep_others_off=True)
            if row.kind != "charge":
                raise Refused(
                    f"transaction {transaction} is no charge but kind {row.kind}: nothing to refund"
                )
            done = posts.claimed(connection, claim)
            if done:
                return posted(connection, done[0])
            given = posts.take_back(connection, row, amount_usu, release)
            name = posts.payer(connection, transaction)
            number = posts.post(connection, "refund", (CHARGES, name), given, stamp, claim, note=note,
                                refers_to=transaction)  # fmt: skip
            return posted(connection, number, is_new=True)

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
            account = posts.account(connection, name)
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
    return [f"{kind}:{posts.hashed(json.dumps([of, reference]))}"] if reference else []


def posted(connection: sa.Connection, number: int, *, is_new: bool = False) -> Posting:
    """A transaction as it is answered; part of one database transaction."""
    row, name = posts.transaction(connection, number), posts.payer(connection, number)
    return Posting(
        number, row.kind, name, row.amount_usu, posts.account(connection, name).balance_usu, is_new
    )


def _standing(connection: sa.Connection, number: int, name: str, wanted: Charge) -> Posting:
    """The charge of the same profile, if it is one to that account and still holds."""
    posting, charge = posted(connection, number), posts.transaction(connection, number)
    before = json.loads(charge.facts).get("run", wanted.run)
    if wanted.run and before != wanted.run:
        raise Refused(f"this profile was charged for run {before}, as transaction {number}: one is a copy")
    remedy = f"`mpicoloc ledger refund {number} --release` lets it be charged again"
    if posting.account != name:
        raise Refused(
            f"this profile was charged to account {posting.account}, as transaction {number}; {remedy}"
        )
    refund = sa.select(transactions.c.id).where(transactions.c.refers_to == number).limit(1)
    if charge.refunded_usu == charge.amount_usu and connection.scalar(refund) is not None:
        raise Refused(f"this profile was charged as transaction {number} and given back; {remedy}")
    free = [claim for claim in wanted.claims[1:] if not posts.claimed(connection, [claim])]
    posts.claim(connection, number, free if wanted.run else [])
    return posting
