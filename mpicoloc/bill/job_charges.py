"""The charges of one job by its number, by hand and by Slurm's records: no run of a step is paid by both."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mpicoloc.bill import posts
from mpicoloc.bill.db import claims, transactions
from mpicoloc.bill.ledger import Ledger
from mpicoloc.core.step_record import StepRecord, step_record_of

_INNER = re.compile(r"-(nested|spawn)-\d+")
_EARLY_S = 1.0
"""Slurm tells times in whole seconds."""
_SAME_S = 1e-3
"""Starts of one profile differ by no more: they are copied, not measured again."""
_N_FIRST, _N_MOST = 8, 500
"""Claims in the first question, and in the largest: databases take no statement of any length."""


@dataclass(frozen=True)
class JobCharge:
    """A charge of a job that was not given back whole.

    `job_id`, `start_unix_s` (0: unknown) and `digest` are the profile's; `record` is Slurm's, None: charged
    by hand.
    """

    transaction: int
    job_id: str
    start_unix_s: float
    digest: str
    cpu_s: float
    record: StepRecord | None


@dataclass(frozen=True)
class JobCharges:
    """Charges of a job, oldest first; `n_turns` took a turn (`Charge.turn`), refunded ones too."""

    n_turns: int
    charges: list[JobCharge]


def number_of(job_id: str) -> str:
    """The batch system's number of the job in which a job ran."""
    return _INNER.split(job_id)[0]


def of_number(ledger: Ledger, number: str) -> JobCharges:
    """All charges of the jobs of this number.

    A charge that rests on them is posted only if they are still all (`Charge.turn`).
    """
    n_turns, n_asked, found = 0, _N_FIRST, list[JobCharge]()
    with ledger.database.reading() as connection:
        while True:
            asked = posts.turn_claims(number, range(n_turns, n_turns + n_asked))
            rows = connection.execute(
                sa.select(transactions)
                .join(claims, claims.c.transaction_id == transactions.c.id)
                .where(claims.c.claim.in_(asked))
                .order_by(transactions.c.id)
            ).all()
            found += [_charge(row) for row in rows if _stands(connection, row)]
            n_turns += len(rows)
            if len(rows) < n_asked:
                return JobCharges(n_turns, found)
            n_asked = min(8 * n_asked, _N_MOST)


def _stands(connection: sa.Connection, row: Any) -> bool:
    """Whether a charge was not given back whole; one of 0 SU can be, too."""
    if row.refunded_usu < row.amount_usu:
        return True
    refund = sa.select(transactions.c.id).where(transactions.c.refers_to == row.id).limit(1)
    return connection.scalar(refund) is None


def _charge(row: Any) -> JobCharge:
    facts = json.loads(row.facts)
    record = step_record_of(facts["slurm"]) if "slurm" in facts else None
    return JobCharge(
        row.id,
        facts["job"] if record is None else str(record.job),
        facts.get("start_unix_s") or 0.0,
        facts["digest"],
        facts["n_cores"] * facts["wall_s"],
        record,
    )


def is_paid(by_hand: JobCharge, by_record: JobCharge) -> bool:
    """Whether a charge by Slurm's record paid for the run whose profile is charged by hand."""
    record, start_s = by_record.record, by_hand.start_unix_s
    if record is None or by_hand.digest == by_record.digest:  # `Charge.digest` sees to the same content
        return False
    if not start_s or is_same_run(by_hand, by_record):
        return True
    # Steps may run at the same time, so the start of a step's own profile tells more than the step's time.
    has_own = by_record.start_unix_s > 0 and by_hand.job_id == by_record.job_id
    return (record.is_script or not has_own) and is_within(start_s, record)


def is_same_run(by_hand: JobCharge, by_record: JobCharge) -> bool:
    """Whether both profiles are of one run, whatever else they say."""
    is_known = by_hand.start_unix_s > 0 and by_hand.job_id == by_record.job_id
    return is_known and abs(by_hand.start_unix_s - by_record.start_unix_s) < _SAME_S


def is_within(start_unix_s: float, record: StepRecord) -> bool:
    """Whether something that started then ran within a step, or within the job of a script."""
    began_s = record.step_start_unix_s
    return began_s - _EARLY_S <= start_unix_s <= began_s + record.ran_s + _EARLY_S
