"""`mpicoloc ledger charge`: from profiles to charges, by the site's tariff."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from mpicoloc import config
from mpicoloc.core import units
from mpicoloc.core.tables import printable
from mpicoloc.errors import DataError, Refused, UsageError
from mpicoloc.model.price import Tariff, bill, tariff
from mpicoloc.report.bill import estimate_json
from mpicoloc.store import signature
from mpicoloc.store.ledger import Charge, Ledger, Posting, Stamp


def post_all(args: argparse.Namespace, ledger: Ledger, stamp: Stamp) -> int:
    """Charge every profile and print what became of each; 1 when one was refused.

    A file that is no profile ends it before anything is charged.
    """
    found = [(file, *_charge(file, args)) for file in args.files]
    results = [
        _refused(file, charge, refusal) if refusal else _post(ledger, args.account, file, charge, stamp)
        for file, charge, refusal in found
    ]
    if args.json:
        print(json.dumps({"account": args.account, "charges": results}, indent=2, allow_nan=False))
    _tell(args.account, results, quiet=args.json)
    return 1 if any(result["status"] == "refused" for result in results) else 0


def _charge(file: str, args: argparse.Namespace) -> tuple[Charge, str]:
    """The charge of a profile, and why it is refused, if it is."""
    taken = signature.snapshot(file)
    key_id, refusal = None, ""
    if args.require_signature is not None:
        verdict = signature.verify(taken, signature.read_key(args.require_signature))
        key_id = verdict.signature.key_id if verdict.is_good and verdict.signature else None
        refusal = "" if verdict.is_good else verdict.reason
    job = taken.profile.job
    job_id = printable(job.id)
    n_cores = job.n_cores if args.cores is None else _whole("--cores", args.cores)
    wall_s = job.wall_s if args.wall_s is None else _seconds("--wall-s", args.wall_s)
    if n_cores < 0 or wall_s < 0:
        raise DataError(f"{file} says {n_cores} cores and {wall_s} s: no job has less than none")
    prices = bill(taken.profile.interference.slowdown, n_cores=n_cores, wall_s=wall_s, tariff=_tariff(args))
    facts = {
        "file": file,
        "job": job_id,
        "digest": taken.digest,
        "key_id": key_id,
        "partial": taken.profile.partial,
        "n_cores": n_cores,
        "wall_s": wall_s,
        "slowdown": estimate_json(prices.slowdown),
        "rate_su": prices.tariff.rate_su,
        "pricing": prices.tariff.pricing,
        "runtime_su": prices.runtime.value,
        "fair_su": estimate_json(prices.fair),
    }
    usu = units.usu_of_su(prices.charged_su)
    return Charge(taken.digest, job_id, job.start_unix_s, usu, facts), refusal


def _tariff(args: argparse.Namespace) -> Tariff:
    """The site's tariff. What the profile says was chosen by whoever ran the job."""
    given = {key: getattr(args, key) for key in ("price.rate_su", "price.pricing")}
    config.flags_to_env(given)
    rate_su, pricing = (config.get(key) if text is None else text for key, text in given.items())
    return tariff(float(rate_su or 0.0), str(pricing))


def _whole(flag: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 31):
        raise UsageError(f"{flag} must be a whole number above 0, got {text!r}")
    return int(text)


def _seconds(flag: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"{flag} must be a number of seconds, got {text!r}")
    return value


def _post(ledger: Ledger, account: str, file: str, charge: Charge, stamp: Stamp) -> dict[str, Any]:
    try:
        posting = ledger.charge(account, charge, stamp)
    except Refused as error:
        return _refused(file, charge, str(error))
    return _entry(file, charge, "charged" if posting.is_new else "already charged", posting)


def _refused(file: str, charge: Charge, reason: str) -> dict[str, Any]:
    return _entry(file, charge, "refused", None) | {"reason": reason}


def _entry(file: str, charge: Charge, status: str, posting: Posting | None) -> dict[str, Any]:
    """One result; `price_su` is what this call would charge, `amount_su` what was charged, now or before."""
    amount_usu = None if posting is None else posting.amount_usu
    balance_usu = None if posting is None else posting.balance_usu
    return {
        "file": file,
        "job": charge.job_id,
        "status": status,
        "reason": None,
        "transaction": None if posting is None else posting.transaction,
        "price_usu": charge.amount_usu,
        "amount_su": None if amount_usu is None else amount_usu / 10**units.PLACES,
        "amount_usu": amount_usu,
        "balance_su": None if balance_usu is None else balance_usu / 10**units.PLACES,
        "balance_usu": balance_usu,
    }


def _tell(account: str, results: Sequence[dict[str, Any]], *, quiet: bool) -> None:
    for result in results:
        if result["status"] == "refused":
            print(f"mpicoloc: {result['file']} not charged: {result['reason']}", file=sys.stderr)
        elif not quiet:
            amount, balance = (units.su_text(result[name]) for name in ("amount_usu", "balance_usu"))
            print(
                f"{result['file']}: {result['status']}, {amount} SU, transaction {result['transaction']}; "
                f"account {account} has {balance} SU"
            )
    sys.stdout.flush()
