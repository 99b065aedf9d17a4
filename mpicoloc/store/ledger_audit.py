"""Whether a ledger's books are right: what double entry promises, looked up row by row."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from mpicoloc.core.units import su_text
from mpicoloc.store.ledger import Ledger
from mpicoloc.store.ledger_db import accounts, claims, entries, transactions


def audit(ledger: Ledger) -> list[str]:
    """What is wrong, one line each; empty: no unit was lost or made."""
    with ledger.database.reading() as connection:
        return [
            *_sum_of_all(connection),
            *_transactions(connection),
            *_balances(connection),
            *_refunds(connection),
            *_claims(connection),
        ]


def _sum_of_all(connection: sa.Connection) -> Iterator[str]:
    total = int(connection.scalar(sa.select(sa.func.sum(accounts.c.balance_usu))) or 0)
    if total:
        yield f"the balances of all accounts add up to {su_text(total)} SU, not to 0"


def _transactions(connection: sa.Connection) -> Iterator[str]:
    moved = sa.func.coalesce(sa.func.sum(entries.c.amount_usu), 0)
    came = sa.func.coalesce(sa.func.max(entries.c.amount_usu), 0)
    rows = connection.execute(
        sa.select(transactions.c.id, transactions.c.amount_usu, moved, came, sa.func.count(entries.c.id))
        .join(entries, entries.c.transaction_id == transactions.c.id, isouter=True)
        .group_by(transactions.c.id, transactions.c.amount_usu)
    )
    for number, amount_usu, moved_usu, came_usu, n in rows:
        if int(moved_usu) or n != 2 or int(came_usu) != amount_usu:
            yield f"transaction {number}: {su_text(amount_usu)} SU are not moved from one account to another"


def _balances(connection: sa.Connection) -> Iterator[str]:
    moved = sa.func.coalesce(sa.func.sum(entries.c.amount_usu), 0)
    rows = connection.execute(
        sa.select(accounts.c.name, accounts.c.balance_usu, moved)
        .join(entries, entries.c.account_id == accounts.c.id, isouter=True)
        .group_by(accounts.c.id, accounts.c.name, accounts.c.balance_usu)
    )
    for name, balance_usu, moved_usu in rows:
        if balance_usu != int(moved_usu):
            yield f"account {name} has {su_text(balance_usu)} SU, its entries say {su_text(int(moved_usu))}"


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
    profile = sa.and_(claims.c.transaction_id == transactions.c.id, claims.c.claim.like("profile:%"))
    rows = connection.scalars(
        sa.select(transactions.c.id)
        .join(claims, profile, isouter=True)
        .where(transactions.c.kind == "charge")
        .group_by(transactions.c.id)
        .having(sa.func.count(claims.c.claim) != 1)
    )
    yield from (f"transaction {number} charges no profile" for number in rows)
