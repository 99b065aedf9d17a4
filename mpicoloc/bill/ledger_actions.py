"""The actions of `mpicoloc ledger`: what each posts or reads, and prints for a terminal or as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from datetime import UTC, datetime
from typing import Any

from mpicoloc import config
from mpicoloc.bill import audit
from mpicoloc.bill.ledger import Account, Ledger, Line, Posting, check_name, open_ledger, stamp_now
from mpicoloc.core.service_units import PLACES, su_text
from mpicoloc.show.output import console, write
from mpicoloc.show.table import Column, listing

_WITHOUT = {"none": ", no profile", "refused": ", profile refused"}


def open_account(args: argparse.Namespace) -> int:
    """Open an account, and the ledger if there is none."""
    check_name(args.account)
    ledger = ledger_of(args, create=True)
    posting = ledger.open_account(args.account, args.grant, args.overdraft, stamp_now())
    return _show_posting(posting, f"account {args.account} opened", args.json)


def grant(args: argparse.Namespace) -> int:
    """Add units to an account."""
    posting = ledger_of(args).grant(args.account, args.su, stamp_now(), args.reference, args.note)
    return _show_posting(posting, f"{su_text(posting.amount_usu)} SU granted to {args.account}", args.json)


def charge(args: argparse.Namespace) -> int:
    """Charge profiles to an account."""
    from mpicoloc.bill import charges

    ledger, stamp = ledger_of(args), stamp_now()
    terms = charges.Terms(args.account, charges.tariff_of(args), args.cores, args.wall_s, args.job_id)
    return charges.post_all(ledger, args.files, terms, stamp, key_file=args.key_file, is_json=args.json)


def refund(args: argparse.Namespace) -> int:
    """Give back a charge or a part of it."""
    posting = ledger_of(args).refund(
        args.transaction, args.su, stamp_now(), args.reference, args.note, release=args.release
    )
    text = f"{su_text(posting.amount_usu)} SU of transaction {args.transaction} given back"
    after = ", its profile may be charged again" if args.release else ""
    return _show_posting(posting, f"{text} to {posting.account}{after}", args.json)


def ledger_of(args: argparse.Namespace, *, create: bool = False) -> Ledger:
    """The ledger that a call means."""
    return open_ledger(args.ledger or config.get("ledger"), create=create)


def _show_posting(posting: Posting, words: str, as_json: bool) -> int:
    """Print what became of one call."""
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
    sys.stdout.flush()
    return 0


def _plain(row: Posting | Account | Line) -> dict[str, Any]:
    """Plain values; each amount in whole micro-SU, which are exact, and in SU."""
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
    """The value of a user's account; the site's own have none."""
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
    """Show what came to an account and went from it."""
    lines = ledger_of(args).statement(args.account)
    if args.json:
        balance_usu = lines[-1].balance_usu if lines else 0
        values = {"account": args.account, "balance_usu": balance_usu, "balance_su": balance_usu / 10**PLACES}
        return _print({**values, "lines": [_plain(line) for line in lines]})
    console().print(listing(_LINE_COLUMNS, lines))
    return 0


def check_books(args: argparse.Namespace) -> int:
    """Say what is wrong with the books; 1 if something is."""
    wrong = audit.audit(ledger_of(args))
    if args.json:
        _print({"is_right": not wrong, "wrong": list(wrong)})
    else:
        write("\n".join(wrong or ["the books are right: no unit was lost or made"]) + "\n")
    return 1 if wrong else 0
