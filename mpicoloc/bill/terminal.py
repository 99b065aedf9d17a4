"""The books for a terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.markup import escape

from mpicoloc.bill.ledger import Account, Line, Posting
from mpicoloc.core.service_units import PLACES, su_text
from mpicoloc.core.tables import printable
from mpicoloc.show.listing import Listing
from mpicoloc.show.output import console, write

_WITHOUT = {"none": ", no profile", "refused": ", profile refused"}
_COLUMNS = ("transaction", "time (UTC)", "what", "amount, SU", "balance, SU")


def plain(row: Posting | Account | Line) -> dict[str, Any]:
    """Plain values; each amount in whole micro-SU, which are exact, and in SU."""
    values = dataclasses.asdict(row)
    in_su = {
        name.removesuffix("_usu") + "_su": value / 10**PLACES
        for name, value in values.items()
        if name.endswith("_usu")
    }
    return values | in_su


def _print(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))
    sys.stdout.flush()


def show_posting(posting: Posting, words: str, as_json: bool) -> None:
    """What became of one call."""
    if as_json:
        _print(plain(posting))
        return
    before = "" if posting.is_new else " (had been done before)"
    print(f"{words}{before}: transaction {posting.transaction}, "
          f"account {posting.account} has {su_text(posting.balance_usu)} SU")  # fmt: skip


def show_accounts(accounts: Sequence[Account], as_json: bool) -> None:
    """All accounts; their sum is 0."""
    total_usu = sum(account.balance_usu for account in accounts)
    if as_json:
        _print({"accounts": [plain(account) for account in accounts], "sum_usu": total_usu})
        return
    listing = Listing(
        None, ("account", "balance, SU", "lowest, SU", "opened"), lesser=("opened", "lowest, SU")
    )
    for account in accounts:
        is_sites = account.name.startswith("@")
        listing.add_row(
            escape(printable(account.name)),
            su_text(account.balance_usu),
            "" if is_sites else su_text(account.floor_usu),
            "" if is_sites else _when(account.opened_unix_s),
        )
    listing.add_section()
    listing.add_row("sum", su_text(total_usu), "", "")
    console().print(listing)


def show_statement(name: str, lines: Sequence[Line], as_json: bool) -> None:
    """All lines of one account."""
    if as_json:
        balance_usu = lines[-1].balance_usu if lines else 0
        _print({"account": name, "balance_usu": balance_usu, "balance_su": balance_usu / 10**PLACES,
                "lines": [plain(line) for line in lines]})  # fmt: skip
        return
    listing = Listing(None, _COLUMNS, names=("what",), lesser=("time (UTC)", "balance, SU"))
    for line in lines:
        amount = su_text(line.amount_usu)
        listing.add_row(
            str(line.transaction),
            _when(line.at_unix_s),
            escape(printable(_what(line))),
            amount if line.amount_usu < 0 else f"+{amount}",
            su_text(line.balance_usu),
        )
    console().print(listing)


def _what(line: Line) -> str:
    words = line.kind
    if "job" in line.facts:
        words += f" job {line.facts['job']}{_WITHOUT.get(str(line.facts.get('profile')), '')}"
    if line.refers_to is not None:
        words += f" of {line.refers_to}"
    return f"{words}: {line.note}" if line.note else words


def show_audit(wrong: Sequence[str], as_json: bool) -> None:
    """What is wrong with the books."""
    if as_json:
        _print({"is_right": not wrong, "wrong": list(wrong)})
        return
    write("\n".join(wrong or ["the books are right: no unit was lost or made"]) + "\n")


def _when(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
