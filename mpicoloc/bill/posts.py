"""What a post does to the ledger's rows; each function is part of one database transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from mpicoloc.bill.db import CHARGES, FAR_USU, GRANTS, NAME_LENGTH, accounts, claims, entries, transactions
from mpicoloc.core.service_units import su_text
from mpicoloc.errors import Refused, UsageError

if TYPE_CHECKING:
    from mpicoloc.bill.ledger import Stamp

RELEASED = "released:"
"""What a claim on a profile is called when the profile was released."""
SPOOLED = "spool:"
"""What a claim on a file of a spool begins with; that file needs no further look while the claim stands."""


def hashed(text: str) -> str:
    """A text of any length and content, as a name."""
    # Names of files may have any bytes.
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def content_claim(digest: str) -> str:
    """The claim on what is charged, by its content."""
    return f"profile:{digest}"


def run_claim(run: str) -> str:
    """The claim on a run, by its name."""
    return f"job:{hashed(run)}"


def turn_claims(job: str, numbers: Iterable[int]) -> list[str]:
    """The claims to be these charges of a job, counted from 0; they stay, whatever is refunded."""
    name = hashed(job)
    return [f"turn:{name}:{number}" for number in numbers]


def spool_claim(name: str) -> str:
    """The claim on a file of a spool."""
    claim = f"{SPOOLED}{name}"
    return claim if len(claim) <= NAME_LENGTH and claim.isascii() else f"{SPOOLED}#{hashed(name)}"


def account(connection: sa.Connection, name: str) -> Any:
    """The row of an account."""
    row = connection.execute(sa.select(accounts).where(accounts.c.name == name)).first()
    if row is None:
        raise UsageError(f"no account {name!r}; `mpicoloc ledger list` shows all")
    return row


def users_account(connection: sa.Connection, name: str) -> Any:
    """An account that units can be given to or charged to, which the site's own are not."""
    if name in (GRANTS, CHARGES):
        raise UsageError(
            f"account {name} is the site's own, the other side of each post: name a user's account"
        )
    return account(connection, name)


def transaction(connection: sa.Connection, number: int, *, keep_others_off: bool = False) -> Any:
    """The row of a transaction."""
    wanted = sa.select(transactions).where(transactions.c.id == number)
    # So "what is left" is not refused for nothing; databases that leave it out are as right.
    row = connection.execute(wanted.with_for_update() if keep_others_off else wanted).first()
    if row is None:
        raise UsageError(f"no transaction {number}; `mpicoloc ledger statement NAME` shows their numbers")
    return row


def claimed(connection: sa.Connection, wanted: Sequence[str]) -> list[int]:
    """Transactions that hold one of the claims."""
    return sorted(set(holders(connection, wanted).values()))


def holders(connection: sa.Connection, wanted: Sequence[str]) -> dict[str, int]:
    """Those of the claims that are held, with their transactions."""
    rows = connection.execute(sa.select(claims).where(claims.c.claim.in_(wanted)))
    return {row.claim: row.transaction_id for row in rows}


def claim(connection: sa.Connection, number: int, wanted: Sequence[str]) -> None:
    """Let a transaction hold these claims."""
    if wanted:
        connection.execute(claims.insert(), [{"claim": one, "transaction_id": number} for one in wanted])


def payer(connection: sa.Connection, transaction: int) -> str:
    """The account that a transaction concerns, which is none of the site's."""
    return str(connection.scalar(
        sa.select(accounts.c.name).join(entries, entries.c.account_id == accounts.c.id)
        .where(entries.c.transaction_id == transaction, accounts.c.name.not_in((GRANTS, CHARGES)))
    ))  # fmt: skip


def take_back(connection: sa.Connection, charge: Any, amount_usu: int | None, release: bool) -> int:
    """Note on the charge how much of it is refunded, looking and changing in one step."""
    given = int(charge.amount_usu - charge.refunded_usu) if amount_usu is None else amount_usu
    after = transactions.c.refunded_usu + given
    changed = connection.execute(
        transactions.update()
        .where(transactions.c.id == charge.id, after <= transactions.c.amount_usu)
        .values(refunded_usu=after)
    )
    now = transaction(connection, charge.id)
    left_usu = int(now.amount_usu - now.refunded_usu)
    n_freed = 0 if left_usu else _free(connection, charge.id, release)
    if changed.rowcount != 1 or not (given or n_freed):
        raise Refused(f"transaction {charge.id}: {su_text(left_usu)} SU of it are left to refund")
    return given


def _free(connection: sa.Connection, number: int, release: bool) -> int:
    """Let the job of a charge, and its profile if it is released, be charged again; how many claims fell."""
    of_charge = claims.c.transaction_id == number
    job = claims.delete().where(of_charge, claims.c.claim.like("job:%"))
    n_freed = connection.execute(job).rowcount
    if release:
        # The row stays under another name: the audit misses none.
        profile = claims.update().where(of_charge, claims.c.claim.like("profile:%"))
        n_freed += connection.execute(profile.values(claim=f"{RELEASED}{number}")).rowcount
        connection.execute(claims.delete().where(of_charge, claims.c.claim.like(f"{SPOOLED}%")))
    return n_freed


def post(
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
) -> int:
    """Move an amount from the first account to the second, and write down that; the transaction's number."""
    if way[0] == way[1]:
        raise UsageError(f"account {way[0]} cannot pay itself: name another one")
    row = {"kind": kind, "amount_usu": amount_usu, "refunded_usu": 0, "refers_to": refers_to, "note": note}
    row |= {"at_unix_s": stamp.at_unix_s, "posted_by": stamp.by, "facts": json.dumps(dict(facts or {}))}
    inserted = connection.execute(transactions.insert().values(**row)).inserted_primary_key
    number = int(inserted[0]) if inserted is not None else 0
    claim(connection, number, claimed)
    moves = [(account(connection, way[0]), -amount_usu), (account(connection, way[1]), amount_usu)]
    # In one order for everybody, or two posts could wait for each other.
    for moved, moved_usu in sorted(moves, key=lambda move: move[0].id):
        _move(connection, moved, moved_usu)
        row = {"transaction_id": number, "account_id": moved.id, "amount_usu": moved_usu}
        connection.execute(entries.insert().values(**row))
    return number


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
