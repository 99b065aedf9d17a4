"""What a ledger knows of the files of a spool: which are settled, and by which charges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mpicoloc.bill import posts
from mpicoloc.bill.db import claims
from mpicoloc.bill.ledger import Ledger, Posting, posted

_N_ASKED = 500
"""Claims in one question; databases take no statement of any length."""


@dataclass(frozen=True)
class Standing:
    """A charge that holds a claim, how much of it was given back, and how its price came about."""

    posting: Posting
    refunded_usu: int
    facts: Mapping[str, Any]


def settled(ledger: Ledger, names: Sequence[str]) -> set[str]:
    """Which of these files were charged, and not released since."""
    by_claim = {posts.spool_claim(name): name for name in names}
    wanted, found = list(by_claim), set[str]()
    # One statement for all questions, and its answers in one go: a spool has 100,000 of them.
    is_asked = claims.c.claim.in_(sa.bindparam("asked", expanding=True))
    with ledger.database.reading() as connection:
        for at in range(0, len(wanted), _N_ASKED):
            some = {"asked": wanted[at : at + _N_ASKED]}
            found.update(connection.scalars(sa.select(claims.c.claim).where(is_asked), some).all())
    return {by_claim[claim] for claim in found}


def standing(
    ledger: Ledger, *, runs: Sequence[str] = (), files: Sequence[str] = (), digests: Sequence[str] = ()
) -> list[Standing]:
    """Charges that hold the claim on one of these (`Charge.run`, `spooled`, `digest`), oldest first.

    That on a run ends when all of the charge is given back, the others when it is released.
    """
    wanted = [
        *map(posts.run_claim, runs),
        *map(posts.spool_claim, files),
        *map(posts.content_claim, digests),
    ]
    with ledger.database.reading() as connection:
        return [_standing(connection, number) for number in posts.claimed(connection, wanted)]


def charges_of_start(ledger: Ledger, start: str) -> dict[str, Standing]:
    """Charges that settle files whose names begin with this and a dot, by these names; oldest first."""
    first = f"{posts.SPOOLED}{start}."
    is_of_start = claims.c.claim.startswith(first, autoescape=True)
    if ledger.database.is_sqlite:  # whose LIKE uses no index; "/" follows "."
        is_of_start = sa.and_(claims.c.claim >= first, claims.c.claim < f"{first[:-1]}/")
    with ledger.database.reading() as connection:
        asked = sa.select(claims).where(is_of_start).order_by(claims.c.transaction_id, claims.c.claim)
        rows = connection.execute(asked).all()
        return {
            row.claim.removeprefix(posts.SPOOLED): _standing(connection, row.transaction_id) for row in rows
        }


def cover(ledger: Ledger, run: str, name: str) -> None:
    """Let the charge of a run settle one more file, as long as it holds the claim on the run."""

    def work(connection: sa.Connection) -> None:
        if not posts.claimed(connection, [posts.spool_claim(name)]):
            for number in posts.claimed(connection, [posts.run_claim(run)]):
                posts.claim(connection, number, [posts.spool_claim(name)])

    ledger.database.write(work)


def _standing(connection: sa.Connection, number: int) -> Standing:
    row = posts.transaction(connection, number)
    return Standing(posted(connection, number), row.refunded_usu, json.loads(row.facts))
