"""`mpicoloc ledger collect`: charge what a spool of signed profiles has, by Slurm's records beside them."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mpicoloc import config
from mpicoloc.cli import charges
from mpicoloc.core import units
from mpicoloc.core.progress import steps
from mpicoloc.core.tables import printable
from mpicoloc.errors import EnvironmentFault, MpicolocError, Refused, UsageError
from mpicoloc.model.price import Tariff, bill, of_whole_run
from mpicoloc.report.bill import estimate_json
from mpicoloc.store import signature, step_record
from mpicoloc.store.ledger import Charge, Ledger, Stamp
from mpicoloc.store.signature import KeyFile, Snapshot
from mpicoloc.store.step_record import SCRIPTS, StepRecord

_SKEW_S = 60.0
"""By how much the clocks of a node and of slurmctld may differ."""
_BY_HAND = "charge it with `mpicoloc ledger charge`, and move it out of the spool"


@dataclass(frozen=True)
class Terms:
    """What the keeper of the ledger says; `by` is whose account pays, that of Slurm's user or account."""

    key: KeyFile
    key_id: str
    tariff: Tariff
    by: str
    accounts: frozenset[str]


@dataclass(frozen=True)
class _Books:
    """Where it is charged, and which profiles of the spool are paid; `same`: by start of a job."""

    ledger: Ledger
    stamp: Stamp
    is_dry: bool
    spool: str
    paid: set[str]
    same: Mapping[str, Sequence[str]]


def collect(args: argparse.Namespace, ledger: Ledger, stamp: Stamp) -> int:
    """Charge every profile of the spool that the ledger does not know, and print what became of each.

    A profile that cannot be charged keeps no other from it; the answer is the highest exit code of all.
    """
    terms = _terms(args, ledger)
    names = _names(args.spool)
    paid = ledger.spooled(names)
    # A script pays for what its steps do not, so they come first.
    new = sorted(set(names) - paid, key=lambda name: (re.search("|".join(SCRIPTS), name) is not None, name))
    books = _Books(ledger, stamp, args.dry_run, args.spool, paid, _by_start(names))
    results: list[dict[str, Any]] = []
    worst = 0
    try:
        # Else the lines printed are the progress.
        for name in steps(new, "charging", unit="profiles") if args.json else new:
            result, code = _collect(os.path.join(args.spool, name), terms, books)
            if not code:
                paid.add(name)
            results.append(result)
            worst = max(worst, code)
            _tell(result, quiet=args.json)
    finally:
        # Also when the ledger fails half way.
        if args.json:
            answer = {"n_known": len(names) - len(new), "charges": results}
            print(json.dumps(answer, indent=2, allow_nan=False))
    return worst


def _terms(args: argparse.Namespace, ledger: Ledger) -> Terms:
    path = args.key_file or config.get("sign_key_file")
    if path is None:
        raise UsageError(
            "--key-file is missing: what is in a spool is charged only if the site has signed it"
        )
    key = KeyFile(str(path))
    accounts = frozenset(account.name for account in ledger.accounts() if account.name[0] != "@")
    return Terms(key, signature.key_id(key), charges.tariff_of(args), args.by, accounts)


def _names(spool: str) -> list[str]:
    """Profiles of a spool; no file of it is opened or asked for."""
    try:
        with os.scandir(spool) as entries:
            return [entry.name for entry in entries if entry.name.endswith(".h5") and entry.name[0] != "."]
    except OSError as error:
        raise EnvironmentFault(f"cannot read the spool {spool}: {error.strerror}") from error


def _by_start(names: Iterable[str]) -> dict[str, list[str]]:
    """Names in a spool by the start of the job, with which they begin."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(".".join(name.split(".")[:2]), []).append(name)
    return found


def _collect(file: str, terms: Terms, books: _Books) -> tuple[dict[str, Any], int]:
    """What became of one profile, or would where nothing is posted, and its exit code."""
    record = charge = None
    try:
        record = _record(file, terms)
        account = _account(record, terms)
        charge = _charge(file, record, terms, _others(record, terms, books))
    except MpicolocError as error:
        result, code = charges.refused(file, charge, error)
    else:
        if books.is_dry:
            result, code = charges.entry(file, charge, "would be charged", None), 0
        else:
            result, code = charges.post(books.ledger, account, (file, charge), books.stamp)
    # Not before the record was checked does it tell anything.
    more = {"job": record.name, "account": _payer(record, terms)} if record else {"account": None}
    return result | more, code


def _record(file: str, terms: Terms) -> StepRecord:
    """Slurm's record of the step, checked."""
    path = step_record.path_of(file)
    found = step_record.read(path)
    if found is None:
        raise Refused(f"Slurm's record of its step, {path}, is not there: {_BY_HAND}")
    reason = found.reason(terms.key)
    if reason:
        raise Refused(reason)
    if found.record.profile != os.path.basename(file):
        raise Refused(f"{path} is the record of {printable(found.record.profile)}: {_BY_HAND}")
    return found.record


def _payer(record: StepRecord, terms: Terms) -> str | None:
    return record.account if terms.by == "account" else record.user


def _account(record: StepRecord, terms: Terms) -> str:
    """The account that pays; looked up before the profile is read, as that takes longer."""
    name = _payer(record, terms)
    if name is None:
        raise Refused(f"job {record.job} had no account in Slurm: {_BY_HAND}")
    if name not in terms.accounts:
        name = printable(name)
        raise Refused(
            f"there is no account {name!r} for job {record.job}: `mpicoloc ledger open {name}` makes it"
        )
    return name


def _others(record: StepRecord, terms: Terms, books: _Books) -> dict[str, float]:
    """CPU seconds that other steps of its job pay, by step: of a script those of all that were charged."""
    if not record.is_script:
        for number, facts in books.ledger.of_runs([record.run_of(step) for step in SCRIPTS]):
            if record.step not in facts.get("others_cpu_s", {}):
                raise Refused(
                    f"the script of its job, transaction {number}, has paid for its time, as it was charged "
                    f"before: after `mpicoloc ledger refund {number} --release` both are charged"
                )
        return {}
    found = {}
    start = f"{record.job}.{int(record.job_submit_unix_s)}"
    for name in books.paid.intersection(books.same.get(start, ())):
        with contextlib.suppress(MpicolocError):
            other = _record(os.path.join(books.spool, name), terms)
            if other.is_of_same_job(record) and not other.is_script:
                found[other.step] = round(other.cpu_s, 3)
    return found


def _charge(file: str, record: StepRecord, terms: Terms, others_cpu_s: dict[str, float]) -> Charge:
    """Slurm's CPUs and time at the slowdown that the profile tells, if that is one of this step."""
    taken = charges.read(file)
    if isinstance(taken, MpicolocError):
        raise taken
    verdict = signature.verify(taken, terms.key)
    if not verdict.is_good:
        raise Refused(verdict.reason)
    _check_run(taken, record)
    profile = taken.profile
    slowdown = profile.interference.slowdown
    charged_s = record.charged_s(sum(others_cpu_s.values()))
    whole = of_whole_run(slowdown, profile.job.wall_s, charged_s)
    prices = bill(whole, n_cores=record.n_cpus, wall_s=charged_s, tariff=terms.tariff)
    facts = {
        "file": file,
        "job": record.name,
        "key_id": terms.key_id,
        **charges.facts_of(taken, prices),
        "measured_s": profile.job.wall_s,
        "measured_slowdown": estimate_json(slowdown),
        "slurm": asdict(record),
        "others_cpu_s": others_cpu_s,
    }
    usu = units.usu_of_su(prices.charged_su)
    spooled = os.path.basename(file) if _names_run(file, record) else ""
    return Charge(taken.digest, record.name, record.job_start_unix_s, usu, facts, record.run, spooled)


def _check_run(taken: Snapshot, record: StepRecord) -> None:
    """Refuse a profile of another job, and one of an earlier run that stands in the place of this one's."""
    job = taken.profile.job
    if job.id != str(record.job):
        raise Refused(f"it is the profile of job {printable(job.id)}, not of job {record.job}")
    late_s = job.start_unix_s - record.step_start_unix_s
    if job.start_unix_s and not -_SKEW_S <= late_s <= record.ran_s + _SKEW_S:
        raise Refused(
            f"it began {late_s:+.0f} s from the start of step {record.name}, which ran {record.ran_s:.0f} s: "
            f"it is of another run; {_BY_HAND}"
        )


def _names_run(file: str, record: StepRecord) -> bool:
    """Whether no later run, after Slurm counts jobs anew, can have a file of this name."""
    return str(int(record.job_submit_unix_s)) in os.path.basename(file).split(".")


def _tell(result: dict[str, Any], *, quiet: bool) -> None:
    if result["status"] != "would be charged":
        charges.tell_one(result["account"], result, quiet=quiet)
    elif not quiet:
        amount = units.su_text(result["price_usu"])
        print(f"{printable(result['file'])}: would be charged, {amount} SU to account {result['account']}")
