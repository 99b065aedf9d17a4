"""`mpicoloc ledger charge`: from profiles to charges, by the site's tariff."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mpicoloc import config, messages
from mpicoloc.bill import job_charges
from mpicoloc.bill.job_charges import JobCharge
from mpicoloc.bill.ledger import Charge, Ledger, Overtaken, Posting, Stamp
from mpicoloc.bill.price import Bill, Tariff, bill, tariff
from mpicoloc.core import service_units
from mpicoloc.core.estimate import estimate_json
from mpicoloc.core.progress import steps
from mpicoloc.core.tables import printable
from mpicoloc.errors import DataError, MpicolocError, Refused
from mpicoloc.profile import signature
from mpicoloc.profile.signature import Snapshot


@dataclass(frozen=True)
class Terms:
    """What the keeper of the ledger says; None: as the profile says, or any."""

    tariff: Tariff
    n_cores: int | None
    wall_s: float | None
    job_id: str | None
    key: bytes | None


def post_all(
    case: tuple[Ledger, str],
    files: Sequence[str],
    terms: Terms,
    stamp: Stamp,
    *,
    key_file: str | None,
    is_json: bool,
) -> int:
    """Charge every profile and print what became of each, at once.

    A profile that cannot be charged does not stop the others.

    Result: the highest exit code of all.
    """
    ledger, account = case
    found = [read(file) for file in steps(files, "reading", unit="profiles")]
    if key_file is not None:
        # Not before: the processes that parse the files have no key in their memory.
        terms = replace(terms, key=signature.read_key(key_file))
    results: list[dict[str, Any]] = []
    worst = 0
    try:
        cases = list(zip(files, found, strict=True))
        # Else the lines printed are the progress.
        for file, taken in steps(cases, "charging", unit="profiles") if is_json else cases:
            result, code = _post(ledger, account, (file, taken), terms, stamp)
            results.append(result)
            worst = max(worst, code)
            print_outcome(account, result, quiet=is_json)
    finally:
        # Also when the ledger fails half way.
        if is_json and results:
            print(json.dumps({"account": account, "charges": results}, indent=2, allow_nan=False))
    return worst


def read(file: str) -> Snapshot | MpicolocError:
    """The profile without what takes memory, or why it is none."""
    try:
        taken = signature.snapshot(file)
    except MpicolocError as error:
        return error
    return replace(taken, content=b"", profile=replace(taken.profile, tables={}))


def _charge(file: str, taken: Snapshot, terms: Terms) -> Charge:
    job = taken.profile.job
    n_cores = job.n_cores if terms.n_cores is None else terms.n_cores
    wall_s = job.wall_s if terms.wall_s is None else terms.wall_s
    if n_cores < 0 or wall_s < 0:
        raise DataError(f"{n_cores} cores and {wall_s} s cannot be charged: neither may be negative")
    prices = bill(taken.profile.interference.slowdown, n_cores=n_cores, wall_s=wall_s, tariff=terms.tariff)
    key_id = None if terms.key is None else signature.key_id(terms.key)
    facts = {
        "file": file,
        "job": printable(job.id),
        "key_id": key_id,
        "digest": taken.digest,
        "partial": taken.profile.partial,
        "start_unix_s": job.start_unix_s or None,
        **facts_of(prices),
    }
    usu = service_units.usu_of_su(prices.charged_su)
    return Charge(taken.digest, printable(job.id), job.start_unix_s, usu, facts)


def facts_of(prices: Bill) -> dict[str, Any]:
    """What the ledger keeps of how a price came about."""
    return {
        "n_cores": prices.n_cores,
        "wall_s": prices.wall_s,
        "slowdown": estimate_json(prices.slowdown),
        "rate_su": prices.tariff.rate_su,
        "pricing": prices.tariff.pricing,
        "runtime_su": prices.runtime.value,
        "fair_su": estimate_json(prices.fair),
    }


def _check(taken: Snapshot, terms: Terms) -> None:
    """Refuse a profile that is not the one that the keeper of the ledger wants to charge."""
    if terms.key is not None:
        verdict = signature.verify(taken, terms.key)
        if not verdict.is_good:
            raise Refused(verdict.reason)
    job_id = taken.profile.job.id
    if terms.job_id not in (None, job_id):
        raise Refused(f"it is the profile of job {printable(job_id)}, not of job {terms.job_id}")


def tariff_of(rate_su: str | None, pricing: str | None) -> Tariff:
    """The site's tariff: what flags say, else the options.

    What the profile says was chosen by whoever ran the job.
    """
    given = {"price.rate_su": rate_su, "price.pricing": pricing}
    config.flags_to_env(given)
    rate, name = (config.get(key) if text is None else text for key, text in given.items())
    return tariff(float(rate or 0.0), str(name))


def _post(
    ledger: Ledger, account: str, case: tuple[str, Snapshot | MpicolocError], terms: Terms, stamp: Stamp
) -> tuple[dict[str, Any], int]:
    """What became of one profile, and its exit code. What is wrong with the ledger ends it all."""
    file, taken = case
    charge = None
    try:
        if isinstance(taken, MpicolocError):
            raise taken
        charge = _charge(file, taken, terms)
        _check(taken, terms)
    except MpicolocError as error:
        return refused(file, charge, error)
    while True:
        try:
            return post(ledger, account, (file, _in_turn(ledger, charge)), stamp)
        except Refused as error:
            return refused(file, charge, error)
        except Overtaken:  # as often as another call charges this job
            continue


def _in_turn(ledger: Ledger, charge: Charge) -> Charge:
    """The charge by hand of a job, after all those that there are of it.

    Raises `Refused` if Slurm's record has been charged for the same run.
    """
    number = job_charges.number_of(charge.job_id)
    before = job_charges.of_number(ledger, number)
    new = JobCharge(0, charge.job_id, charge.start_unix_s, charge.digest, 0.0, None)
    is_known = any(paid.digest == charge.digest for paid in before.charges)
    for paid in () if is_known else before.charges:
        if paid.record is not None and job_charges.is_paid(new, paid):
            raise Refused(
                f"step {paid.record.name} was charged by Slurm's record as transaction {paid.transaction}, "
                "which paid for this: refund that first"
            )
    return replace(charge, turn=(number, before.n_turns))


def post(ledger: Ledger, account: str, case: tuple[str, Charge], stamp: Stamp) -> tuple[dict[str, Any], int]:
    """Post one charge; as of `refused`."""
    file, charge = case
    try:
        posting = ledger.charge(account, charge, stamp)
    except Refused as error:
        return refused(file, charge, error)
    return entry(file, charge, "charged" if posting.is_new else "already charged", posting), 0


def refused(file: str, charge: Charge | None, error: MpicolocError) -> tuple[dict[str, Any], int]:
    """The result of a profile that was not charged, and its exit code."""
    return entry(file, charge, "refused", None) | {"reason": str(error)}, error.exit_code


def entry(file: str, charge: Charge | None, status: str, posting: Posting | None) -> dict[str, Any]:
    """One result; `price_su` is what this call would charge, `amount_su` what was charged, now or before."""
    amount_usu = None if posting is None else posting.amount_usu
    balance_usu = None if posting is None else posting.balance_usu
    return {
        "file": file,
        "job": None if charge is None else charge.job_id,
        "status": status,
        "reason": None,
        "transaction": None if posting is None else posting.transaction,
        "price_usu": None if charge is None else charge.amount_usu,
        "amount_su": None if amount_usu is None else amount_usu / 10**service_units.PLACES,
        "amount_usu": amount_usu,
        "balance_su": None if balance_usu is None else balance_usu / 10**service_units.PLACES,
        "balance_usu": balance_usu,
    }


def print_outcome(account: str, result: dict[str, Any], *, quiet: bool) -> None:
    """One line of what became of a profile."""
    file = printable(result["file"])
    try:
        if result["status"] == "refused":
            messages.trouble(f"{file} not charged: {result['reason']}")
        elif not quiet:
            amount, balance = (service_units.su_text(result[name]) for name in ("amount_usu", "balance_usu"))
            why = f"; no discount, as {printable(result['reason'])}" if result["reason"] else ""
            print(
                f"{file}: {result['status']}, {amount} SU, transaction {result['transaction']}; "
                f"account {account} has {balance} SU{why}",
                flush=True,
            )
    except BrokenPipeError:
        # Who was told has gone; that is no reason to leave the others uncharged.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
