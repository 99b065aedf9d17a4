"""Whether a ledger's books are right: what double entry promises, looked up row by row."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from mpicoloc.bill.db import CHARGES, GRANTS, accounts, claims, entries, transactions
from mpicoloc.bill.ledger import RELEASED, Ledger
from mpicoloc.core.service_units import su_text

SITES_SIDE = {"open": (GRANTS, -1), "grant": (GRANTS, -1), "charge": (CHARGES, 1), "refund": (CHARGES, -1)}
"""The site's account of each kind of transaction, and whether it comes there or goes from there."""


def audit(ledger: Ledger) -> list[str]:
    """What is wrong, one line each; empty: no unit was lost or made."""
    with ledger.database.reading() as connection:
        return [
            *_sum_of_all(connection),
            *_transactions(connection),
            *_balances(connection),
            *_refunds(connection),
            *_claims(connection),
            *_released(connection),
        ]


def _sum_of_all(connection: sa.Connection) -> Iterator[str]:
    total = int(connection.scalar(sa.select(sa.func.sum(accounts.c.balance_usu))) or 0)
    if total:
        yield f"the balances of all accounts add up to {su_text(total)} SU, not to 0"


def _transactions(connection: sa.Connection) -> Iterator[str]:
    of = transactions.c
    rows = connection.execute(
        sa.select(of.id, of.kind, of.amount_usu, of.refers_to, accounts.c.name, entries.c.amount_usu)
        .join(entries, entries.c.transaction_id == of.id, isouter=True)
        .join(accounts, accounts.c.id == entries.c.account_id, isouter=True)
        .order_by(of.id)
    )
    payers: dict[int, str] = {}
    for (number, kind, amount_usu, refers_to), entered in itertools.groupby(
        rows, operator.itemgetter(0, 1, 2, 3)
    ):
        name = _other_side(kind, amount_usu, [(row[4], row[5]) for row in entered])
        if name is None:
            yield f"transaction {number}: {su_text(amount_usu)} SU are not moved from one account to another"
        elif kind == "charge":
            payers[number] = name
        elif kind == "refund" and payers.get(refers_to) != name:
            yield f"transaction {number} gives account {name} what it did not pay for {refers_to}"


def _other_side(kind: str, amount_usu: int, entered: list[tuple[Any, ...]]) -> str | None:
    """The user's account, if the amount went as a transaction of that kind moves it; else None."""
    users = [str(name) for name, _ in entered if name not in (GRANTS, CHARGES)]
    if kind not in SITES_SIDE or amount_usu < 0 or len(users) != 1 or len(entered) != 2:
        return None
    sites, sign = SITES_SIDE[kind]
    is_right = set(entered) == {(sites, sign * amount_usu), (users[0], -sign * amount_usu)}
    return users[0] if is_right else None


def _balances(connection: sa.Connection) -> Iterator[str]:
    moved = sa.func.coalesce(sa.func.sum(entries.c.amount_usu), 0)
    rows = connection.execute(
        sa.select(accounts.c.name, accounts.c.balance_usu, moved)
        .join(entries, entries.c.account_id == accounts.c.id, isouter=True)
        .group_by(accounts.c.id, accounts.c.name, accounts.c.balance_usu)
    )
    for name, balance_usu, moved_usu in rows:
        if balance_usu != int(moved_usu):
            yield f"account {name} has {su_text(balance_usu)} SU, its entries make {su_text(int(moved_usu))}"


def _refunds(connection: sa.Connection) -> Iterator[str]:
    refund = transactions.alias()
    given = sa.func.coalesce(sa.func.sum(refund.c.amount_usu), 0)
    rows = connection.execute(
        sa.select(transactions.c.id, transactions.c.amount_usu, transactions.c.refunded_usu, given)
        .join(refund, refund.c.refers_to == transactions.c.id, isouter=True)
        .group_by(transactions.c.id, transactions.c.amount_usu, transactions.c.refunded_usu)
    )
    for number, amount_usu, refunded_usu, given_usu in rows:
        if refunded_usu != int(given_usu) or not 0 <= refunded_usu <= amount_usu:
            yield f"transaction {number}: {su_text(int(given_usu))} SU given back of {su_text(amount_usu)}"


def _claims(connection: sa.Connection) -> Iterator[str]:
    of_profile = sa.or_(claims.c.claim.like("profile:%"), claims.c.claim.like(f"{RELEASED}%"))
    profile = sa.and_(claims.c.transaction_id == transactions.c.id, of_profile)
    rows = connection.scalars(
        sa.select(transactions.c.id)
        .join(claims, profile, isouter=True)
        .where(transactions.c.kind == "charge")
        .group_by(transactions.c.id)
        .having(sa.func.count(claims.c.claim) != 1)
    )
    yield from (f"transaction {number} charges neither a profile nor a step without one" for number in rows)


def _released(connection: sa.Connection) -> Iterator[str]:
    rows = connection.scalars(
        sa.select(transactions.c.id)
        .join(claims, claims.c.transaction_id == transactions.c.id)
        .where(claims.c.claim.like(f"{RELEASED}%"), transactions.c.refunded_usu != transactions.c.amount_usu)
    )
    yield from (f"transaction {number} was released and not given back" for number in rows)
