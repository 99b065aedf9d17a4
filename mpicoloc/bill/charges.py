"""`mpicoloc ledger charge`: charges profiles by the site's tariff."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from mpicoloc import config, messages
from mpicoloc.bill.ledger import (
    Charge,
    Ledger,
    Overtaken,
    Posting,
    Stamp,
    claims,
    is_given_back,
    transactions,
    turn_claims,
)
from mpicoloc.bill.price import Bill, Tariff, bill, billing_per_cpu, tariff
from mpicoloc.core import units
from mpicoloc.core.batch_system import StepRecord, step_record_of
from mpicoloc.core.plain_values import plain
from mpicoloc.core.progress import steps
from mpicoloc.errors import DataError, MpicolocError, Refused, printable
from mpicoloc.profile import signature
from mpicoloc.profile.signature import Snapshot

_INNER = re.compile(r"-(nested|spawn)-\d+")
_EARLY_S = 1.0
"""Tolerance for times from Slurm, which gives whole seconds, s."""
_SAME_S = 1e-3
"""Starts of a job closer than this are of the same run, s. Edited copies of a profile have the same start."""
_N_FIRST, _N_MOST = 8, 500
"""Number of claims in the first query and in the largest one. Databases limit the length of statements."""


@dataclass(frozen=True)
class JobCharge:
    """A charge of a job that was not refunded in full.

    `job_id`, `start_unix_s` (0: unknown) and `digest` come from the profile. `record` is Slurm's record of
    the step, or None if the job was charged by hand.
    """

    transaction: int
    job_id: str
    start_unix_s: float
    digest: str
    cpu_s: float
    record: StepRecord | None


def job_number(job_id: str) -> str:
    """The batch system's number of the job, without suffixes of inner jobs."""
    return _INNER.split(job_id)[0]


def charges_of_job(ledger: Ledger, number: str) -> tuple[int, list[JobCharge]]:
    """Charges with a turn for this job number: their number, and those not refunded in full, oldest first.

    A charge that depends on these charges is posted only if no other charge was posted in the meantime
    (`Charge.turn`).
    """
    n_turns, n_asked, found = 0, _N_FIRST, list[JobCharge]()
    with ledger.database.reading() as connection:
        while True:
            asked = turn_claims(number, range(n_turns, n_turns + n_asked))
            rows = connection.execute(
                sa.select(transactions)
                .join(claims, claims.c.transaction_id == transactions.c.id)
                .where(claims.c.claim.in_(asked))
                .order_by(transactions.c.id)
            ).all()
            found += [_job_charge(row) for row in rows if not is_given_back(connection, row)]
            n_turns += len(rows)
            if len(rows) < n_asked:
                return n_turns, found
            n_asked = min(8 * n_asked, _N_MOST)


def _job_charge(row: Any) -> JobCharge:
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
    """Whether a charge by Slurm's record has paid for the run of a profile that is charged by hand."""
    record, start_s = by_record.record, by_hand.start_unix_s
    if record is None or by_hand.digest == by_record.digest:  # the claim on `Charge.digest` covers this case
        return False
    if not start_s or is_same_run(by_hand, by_record):
        return True
    # If a step has a profile of its own, that identifies the run better than times, as steps may overlap.
    has_own = by_record.start_unix_s > 0 and by_hand.job_id == by_record.job_id
    return (record.is_script or not has_own) and is_within(start_s, record)


def is_same_run(by_hand: JobCharge, by_record: JobCharge) -> bool:
    """Whether both profiles have the same job and the same start, and so come from the same run."""
    is_known = by_hand.start_unix_s > 0 and by_hand.job_id == by_record.job_id
    return is_known and abs(by_hand.start_unix_s - by_record.start_unix_s) < _SAME_S


def is_within(start_unix_s: float, record: StepRecord) -> bool:
    """Whether a start time lies within a step, or within the job of a script."""
    began_s = record.step_start_unix_s
    return began_s - _EARLY_S <= start_unix_s <= began_s + record.ran_s + _EARLY_S


@dataclass(frozen=True)
class Terms:
    """Account and price terms, as the ledger's keeper sets them.

    None stands for the profile's own cores or time, for no charge for memory, or for any job.
    """

    account: str
    tariff: Tariff
    n_cores: int | None
    memory_bytes: int | None
    wall_s: float | None
    job_id: str | None


def post_all(
    ledger: Ledger, files: Sequence[str], terms: Terms, stamp: Stamp, *, key_file: str | None, is_json: bool
) -> int:
    """Charge every profile and print each outcome immediately. Returns the highest exit code.

    A profile that cannot be charged does not stop the others.
    """
    found = [read(file) for file in steps(files, "reading", unit="profiles")]
    # Read the key after the files, so that the processes that parse them do not have it in memory.
    key = None if key_file is None else signature.read_key(key_file)
    results: list[dict[str, Any]] = []
    worst = 0
    try:
        cases = list(zip(files, found, strict=True))
        # Without --json the printed lines show the progress.
        for file, taken in steps(cases, "charging", unit="profiles") if is_json else cases:
            result, code = _post_profile(ledger, file, taken, terms, key, stamp)
            results.append(result)
            worst = max(worst, code)
            print_outcome(terms.account, result, quiet=is_json)
    finally:
        # Print even if the ledger fails half way.
        if is_json and results:
            print(json.dumps({"account": terms.account, "charges": results}, indent=2, allow_nan=False))
    return worst


def read(file: str) -> Snapshot | MpicolocError:
    """The profile, without its content and large tables; or the error that reading it raised."""
    try:
        taken = signature.snapshot(file)
    except MpicolocError as error:
        return error
    nodes = {"nodes": taken.profile.tables["nodes"]}
    return replace(taken, content=b"", profile=replace(taken.profile, tables=nodes))


def _charge(file: str, taken: Snapshot, terms: Terms, key: bytes | None) -> Charge:
    job = taken.profile.job
    n_cores = job.n_cores if terms.n_cores is None else terms.n_cores
    wall_s = job.wall_s if terms.wall_s is None else terms.wall_s
    if n_cores < 0 or wall_s < 0:
        raise DataError(f"cannot charge {n_cores} cores for {wall_s} s: neither number may be negative")
    per_cpu = billing_per_cpu(taken.profile, n_cores, terms.memory_bytes)
    tariff = terms.tariff.weighted(per_cpu)
    prices = bill(taken.profile.interference.slowdown, n_cores=n_cores, wall_s=wall_s, tariff=tariff)
    facts = {
        "file": file,
        "job": printable(job.id),
        "key_id": None if key is None else signature.key_id(key),
        "digest": taken.digest,
        "partial": taken.profile.partial,
        "start_unix_s": job.start_unix_s or None,
        **facts_of(prices),
        "billing_per_cpu": per_cpu,
    }
    usu = units.usu_of_su(prices.charged_su)
    return Charge(taken.digest, printable(job.id), job.start_unix_s, usu, facts)


def facts_of(prices: Bill) -> dict[str, Any]:
    """Inputs and results of a price, for the ledger's facts."""
    return {
        "n_cores": prices.n_cores,
        "wall_s": prices.wall_s,
        "slowdown": plain(prices.slowdown),
        "rate_su": prices.tariff.rate_su,
        "pricing": prices.tariff.pricing,
        "runtime_su": prices.runtime.value,
        "fair_su": plain(prices.fair),
    }


def _check(taken: Snapshot, terms: Terms, key: bytes | None) -> None:
    """Refuse a profile that has a bad signature, or is not of the job that the ledger's keeper names."""
    if key is not None:
        verify(taken, key)
    job_id = taken.profile.job.id
    if terms.job_id not in (None, job_id):
        raise Refused(f"it is the profile of job {printable(job_id)}, not of job {terms.job_id}")


def verify(taken: Snapshot, key: signature.Key) -> None:
    """Refuse a profile that is unsigned, changed, or signed with another key."""
    verdict = signature.verify(taken, key)
    if not verdict.is_good:
        raise Refused(verdict.reason)


def tariff_of(args: argparse.Namespace) -> Tariff:
    """The site's tariff, from the flags, else from the options.

    The profile's tariff is ignored, because the job's user chose it.
    """
    given = {key: getattr(args, key) for key in ("price.rate_su", "price.pricing")}
    config.flags_to_env(given)
    rate, name = (config.get(key) if text is None else text for key, text in given.items())
    return tariff(float(rate or 0.0), str(name))


def _post_profile(
    ledger: Ledger,
    file: str,
    taken: Snapshot | MpicolocError,
    terms: Terms,
    key: bytes | None,
    stamp: Stamp,
) -> tuple[dict[str, Any], int]:
    """Charge one profile. Returns the outcome and the exit code; errors of the ledger itself are raised."""
    charge = None
    try:
        if isinstance(taken, MpicolocError):
            raise taken
        charge = _charge(file, taken, terms, key)
        _check(taken, terms, key)
    except MpicolocError as error:
        return refused(file, charge, error)
    while True:
        try:
            return post(ledger, terms.account, file, _in_turn(ledger, charge), stamp)
        except Refused as error:
            return refused(file, charge, error)
        except Overtaken:  # another call has charged this job: retry
            continue


def _in_turn(ledger: Ledger, charge: Charge) -> Charge:
    """Give a charge by hand the turn that follows all existing charges of its job.

    Raises `Refused` if Slurm's record has been charged for the same run.
    """
    number = job_number(charge.job_id)
    n_turns, before = charges_of_job(ledger, number)
    new = JobCharge(0, charge.job_id, charge.start_unix_s, charge.digest, 0.0, None)
    is_known = any(paid.digest == charge.digest for paid in before)
    for paid in () if is_known else before:
        if paid.record is not None and is_paid(new, paid):
            raise Refused(
                f"step {paid.record.name} was charged by Slurm's record as transaction {paid.transaction}, "
                "which has paid for this run: refund that transaction first"
            )
    return replace(charge, turn=(number, n_turns))


def post(ledger: Ledger, account: str, file: str, charge: Charge, stamp: Stamp) -> tuple[dict[str, Any], int]:
    """Post one charge. Returns its result and exit code."""
    try:
        posting = ledger.charge(account, charge, stamp)
    except Refused as error:
        return refused(file, charge, error)
    return entry(file, charge, "charged" if posting.is_new else "already charged", posting), 0


def refused(file: str, charge: Charge | None, error: MpicolocError) -> tuple[dict[str, Any], int]:
    """The result of a profile that was not charged, and its exit code."""
    return entry(file, charge, "refused", None) | {"reason": str(error)}, error.exit_code


def entry(file: str, charge: Charge | None, status: str, posting: Posting | None) -> dict[str, Any]:
    """One result. `price_usu` is the price by this call; `amount_su` is the amount charged now or earlier."""
    result = {
        "file": file,
        "job": None if charge is None else charge.job_id,
        "status": status,
        "reason": None,
        "transaction": None if posting is None else posting.transaction,
        "price_usu": None if charge is None else charge.amount_usu,
    }
    for name in ("amount", "balance"):
        usu = None if posting is None else getattr(posting, f"{name}_usu")
        result |= {f"{name}_su": None if usu is None else usu / 10**units.PLACES, f"{name}_usu": usu}
    return result


def print_outcome(account: str, result: dict[str, Any], *, quiet: bool) -> None:
    """Print the outcome for a profile in one line."""
    file = printable(result["file"])
    try:
        if result["status"] == "refused":
            messages.trouble(f"{file} not charged: {result['reason']}")
        elif not quiet:
            amount, balance = (units.su_text(result[name]) for name in ("amount_usu", "balance_usu"))
            why = f"; no discount, as {printable(result['reason'])}" if result["reason"] else ""
            print(
                f"{file}: {result['status']}, {amount} SU, transaction {result['transaction']}; "
                f"account {account} has {balance} SU{why}",
                flush=True,
            )
    except BrokenPipeError:
        # The reader of stdout has gone. Continue without output, so that the other profiles get charged.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
