"""The actions of `mpicoloc ledger`. Each posts to the ledger or reads it, and prints as text or as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import operator
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from mpicoloc import config
from mpicoloc.bill.ledger import (
    CHARGES,
    GRANTS,
    RELEASED,
    Account,
    Ledger,
    Line,
    Posting,
    accounts,
    check_name,
    claims,
    entries,
    open_ledger,
    stamp_now,
    transactions,
)
from mpicoloc.core.units import PLACES, su_text
from mpicoloc.errors import UsageError
from mpicoloc.show.table import Column, console, listing, write

SITES_SIDE = {"open": (GRANTS, -1), "grant": (GRANTS, -1), "charge": (CHARGES, 1), "refund": (CHARGES, -1)}
"""The site's account for each kind of transaction, and the sign of the amount there."""


def audit(ledger: Ledger) -> list[str]:
    """Errors in the ledger, one line each; empty if no unit was lost or created."""
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
            yield f"transaction {number} refunds to account {name} what it did not pay in {refers_to}"


def _other_side(kind: str, amount_usu: int, entered: list[tuple[Any, ...]]) -> str | None:
    """The user's account, if the entries match the kind and amount of the transaction; else None."""
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
            yield (
                f"account {name} has {su_text(balance_usu)} SU, but its entries sum to "
                f"{su_text(int(moved_usu))}"
            )


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


_WITHOUT = {"none": ", no profile", "refused": ", profile refused"}


def open_account(args: argparse.Namespace) -> int:
    """Open an account, and create the ledger if there is none."""
    check_name(args.account)
    ledger = ledger_of(args, create=True)
    posting = ledger.open_account(args.account, args.grant, args.overdraft, stamp_now())
    return _show_posting(posting, f"account {args.account} opened", args.json)


def grant(args: argparse.Namespace) -> int:
    """Add units to an account."""
    posting = ledger_of(args).grant(args.account, args.su, stamp_now(), args.reference, args.note)
    if posting.amount_usu != args.su:
        raise UsageError(
            f"reference {args.reference!r} belongs to a grant of {su_text(posting.amount_usu)} SU, "
            f"transaction {posting.transaction}, not of {su_text(args.su)} SU: give another reference"
        )
    return _show_posting(posting, f"{su_text(posting.amount_usu)} SU granted to {args.account}", args.json)


def charge(args: argparse.Namespace) -> int:
    """Charge profiles to an account."""
    from mpicoloc.bill import charges

    ledger, stamp = ledger_of(args), stamp_now()
    terms = charges.Terms(
        args.account, charges.tariff_of(args), args.cores, args.memory, args.wall_s, args.job_id
    )
    return charges.post_all(ledger, args.files, terms, stamp, key_file=args.key_file, is_json=args.json)


def refund(args: argparse.Namespace) -> int:
    """Refund a charge or a part of it."""
    posting = ledger_of(args).refund(
        args.transaction, args.su, stamp_now(), args.reference, args.note, release=args.release
    )
    text = f"{su_text(posting.amount_usu)} SU of transaction {args.transaction} given back"
    after = ", its profile may be charged again" if args.release else ""
    return _show_posting(posting, f"{text} to {posting.account}{after}", args.json)


def ledger_of(args: argparse.Namespace, *, create: bool = False) -> Ledger:
    """The ledger named by the flag or the option, else the user's own."""
    return open_ledger(args.ledger or config.get("ledger"), create=create)


def _show_posting(posting: Posting, words: str, as_json: bool) -> int:
    """Print the posting of one call."""
    if as_json:
        return _print(_plain(posting))
    before = "" if posting.is_new else " (had been done before)"
    print(
        f"{words}{before}: transaction {posting.transaction}, "
        f"account {posting.account} has {su_text(posting.balance_usu)} SU"
    )
    return 0


def _print(value: Any) -> int:
    print(json.dumps(value, indent=2, allow_nan=False))
    return 0


def _plain(row: Posting | Account | Line) -> dict[str, Any]:
    """Plain values. Each amount is given in micro-SU, which is exact, and in SU."""
    values = dataclasses.asdict(row)
    in_su = {
        name.removesuffix("_usu") + "_su": value / 10**PLACES
        for name, value in values.items()
        if name.endswith("_usu")
    }
    return values | in_su


def _when(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _of_user(name: str) -> Any:
    """A function that returns a field which the site's own accounts lack."""
    return lambda account: None if account.name.startswith("@") else getattr(account, name)


_ACCOUNT_COLUMNS = (
    Column("account", "name"),
    Column("balance, SU", "balance_usu", su_text),
    Column("lowest, SU", _of_user("floor_usu"), su_text, left_out=2, missing=""),
    Column("opened", _of_user("opened_unix_s"), _when, left_out=1, missing=""),
)


def list_accounts(args: argparse.Namespace) -> int:
    """Show all accounts; their sum is 0."""
    accounts = ledger_of(args).accounts()
    total_usu = sum(account.balance_usu for account in accounts)
    if args.json:
        return _print({"accounts": [_plain(account) for account in accounts], "sum_usu": total_usu})
    table = listing(_ACCOUNT_COLUMNS, accounts)
    table.add_section()
    table.add_row("sum", su_text(total_usu), "", "")
    console().print(table)
    return 0


def _what(line: Line) -> str:
    words = line.kind
    if "job" in line.facts:
        words += f" job {line.facts['job']}{_WITHOUT.get(str(line.facts.get('profile')), '')}"
    if line.refers_to is not None:
        words += f" of {line.refers_to}"
    return f"{words}: {line.note}" if line.note else words


def _signed(amount_usu: int) -> str:
    return su_text(amount_usu) if amount_usu < 0 else f"+{su_text(amount_usu)}"


_LINE_COLUMNS = (
    Column("transaction"),
    Column("time (UTC)", "at_unix_s", _when, left_out=1),
    Column("what", _what, is_name=True),
    Column("amount, SU", "amount_usu", _signed),
    Column("balance, SU", "balance_usu", su_text, left_out=2),
)


def statement(args: argparse.Namespace) -> int:
    """Show all amounts that an account received and paid."""
    lines = ledger_of(args).statement(args.account)
    if args.json:
        balance_usu = lines[-1].balance_usu if lines else 0
        values = {"account": args.account, "balance_usu": balance_usu, "balance_su": balance_usu / 10**PLACES}
        return _print({**values, "lines": [_plain(line) for line in lines]})
    console().print(listing(_LINE_COLUMNS, lines))
    return 0


def check_books(args: argparse.Namespace) -> int:
    """Print the errors in the books; returns 1 if there are any."""
    wrong = audit(ledger_of(args))
    if args.json:
        _print({"is_right": not wrong, "wrong": list(wrong)})
    else:
        write("\n".join(wrong or ["the books are right: no unit was lost or made"]) + "\n")
    return 1 if wrong else 0
