"""`mpicoloc ledger collect`: charge the steps of a spool by Slurm's records, at what their profiles tell."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mpicoloc import config
from mpicoloc.core import messages, service_units
from mpicoloc.core.progress import steps
from mpicoloc.core.step_record import SCRIPTS, StepRecord, step_record_of
from mpicoloc.core.tables import printable
from mpicoloc.errors import EnvironmentFault, MpicolocError, Refused, UsageError
from mpicoloc.ledger import charges, ledger_job, ledger_spool
from mpicoloc.ledger.ledger import Charge, Ledger, Overtaken, Stamp, is_name
from mpicoloc.ledger.ledger_spool import Standing
from mpicoloc.profile import signature
from mpicoloc.profile.signature import KeyFile
from mpicoloc.slurm import step_price
from mpicoloc.slurm.job_books import JobBooks
from mpicoloc.slurm.spool import Step, look
from mpicoloc.slurm.step_price import BY_HAND, Terms

Result = dict[str, Any]
_WAITS, _KNOWN = "waits", "known"
_NEW = ("charged", "would be charged")
_STATUS = (*_NEW, "already charged", "late", "refused")


@dataclass(frozen=True)
class _Books:
    """Where it is charged, and what this call did so far.

    `jobs` are those looked at, by their runs: in a dry run all, else the last; `held` are starts of jobs of
    which a step is still to be charged, so that the script cannot know yet what is left for it.
    """

    ledger: Ledger
    stamp: Stamp
    is_dry: bool
    jobs: dict[str, JobBooks] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)


@dataclass
class _Answer:
    """What is told in the end."""

    n_known: int
    n_waiting: int = 0
    worst: int = 0
    charges: list[Result] = field(default_factory=list)

    def add(self, became: Result | str, code: int, *, quiet: bool) -> None:
        """What became of one more step."""
        self.worst = max(self.worst, code)
        self.n_known += became == _KNOWN
        self.n_waiting += became == _WAITS
        if not isinstance(became, str):
            self.charges.append(became)
            _tell(became, quiet=quiet)

    def sum(self, terms: Terms) -> str:
        """All of it in a line."""
        by_status = {name: [one for one in self.charges if one["status"] == name] for name in _STATUS}
        told = []
        for name, found in by_status.items():
            amount = (
                f", {service_units.su_text(sum(one['price_usu'] for one in found))} SU"
                if name in _NEW
                else ""
            )
            if found or name in ("charged", "refused"):
                told.append(f"{len(found)} {name}{amount}")
        waits = (
            f" (a step without a good profile until its record is {terms.grace_s:g} s old, --grace-s; "
            "a script until all steps of its job are charged)"
        )
        told += [f"{self.n_waiting} waiting{waits if self.n_waiting else ''}", f"{self.n_known} known before"]
        return "; ".join(told)


def collect(args: argparse.Namespace, ledger: Ledger, stamp: Stamp) -> int:
    """Charge every step of the spool that the ledger does not know, and print what became of each.

    One that cannot be charged keeps none of another job from it; the answer is the highest exit code of all.
    """
    terms = _terms(args, ledger, stamp)
    found = look(args.spool, ledger)
    books = _Books(ledger, stamp, args.dry_run)
    answer = _Answer(found.n_known)
    try:
        # Else the lines printed are the progress.
        for step in steps(found.steps, "charging", unit="steps") if args.json else found.steps:
            answer.add(*_collect(step, terms, books), quiet=args.json)
    finally:
        # Also when the ledger fails half way.
        if args.json:
            names = ("n_known", "n_waiting", "charges")
            print(json.dumps({name: getattr(answer, name) for name in names}, indent=2, allow_nan=False))
        else:
            messages.note(answer.sum(terms))
    return answer.worst


def _terms(args: argparse.Namespace, ledger: Ledger, stamp: Stamp) -> Terms:
    path = args.key_file or config.get("sign_key_file")
    if path is None:
        raise UsageError(
            "--key-file is missing: what is in a spool is charged only if the site has signed it"
        )
    key, grace_s = KeyFile(str(path)), charges.seconds("--grace-s", args.grace_s)
    accounts = frozenset(account.name for account in ledger.accounts() if account.name[0] != "@")
    tariff = charges.tariff_of(args)
    return Terms(key, signature.key_id(key), tariff, args.by, accounts, grace_s, stamp.at_unix_s)


def _collect(step: Step, terms: Terms, books: _Books) -> tuple[Result | str, int]:
    """What became of one step, or would where nothing is posted, and its exit code."""
    if step.is_charged:
        return _late(step, ledger_spool.standing(books.ledger, files=[os.path.basename(step.record)])), 0
    if step.is_script and step.start in books.held:
        return _WAITS, 0
    if not step.has_profile and step_price.is_young(step, terms):
        books.held.add(step.start)
        return _WAITS, 0
    while True:
        try:
            return _settled(step, terms, books)
        except Overtaken:
            # As often as another call charges steps of this job.
            books.jobs.clear()


def _settled(step: Step, terms: Terms, books: _Books) -> tuple[Result | str, int]:
    """As of `_collect`, of a step that does not wait for others."""
    sealed = None
    try:
        sealed = step_price.record_of(step, terms)
        job = _job(step, sealed.record, terms, books)
        script = _script_of(sealed.record, books.ledger)
        if script is not None:
            return _covered(step, script, books), 0
        account = _account(sealed.record, terms)
        charge = step_price.charge(step, sealed, job, terms, books.ledger)
        if charge is not None:
            step_price.check_by_hand(charge, sealed.record, job)
    except MpicolocError as error:
        result, code = charges.refused(step.file, None, error)
        if sealed or isinstance(error, EnvironmentFault):
            books.held.add(step.start)
    else:
        if charge is None:
            books.held.add(step.start)
            return _WAITS, 0
        result, code = _post(step, (account, charge), sealed.record, books)
    # Not before the record was checked does it tell anything.
    known = (sealed.record.name, _payer(sealed.record, terms)) if sealed else (None, None)
    return result | dict(zip(("job", "account"), known, strict=True)), code


def _post(step: Step, case: tuple[str, Charge], record: StepRecord, books: _Books) -> tuple[Result, int]:
    """Charge a step to an account, or only tell what it would pay."""
    account, charge = case
    file = str(charge.facts["file"])
    if books.is_dry:
        result, code = charges.entry(file, charge, "would be charged", None), 0
    else:
        result, code = charges.post(books.ledger, account, (file, charge), books.stamp)
    if code:
        books.held.add(step.start)
        return result, code
    if result["status"] == "already charged":  # by another call, meanwhile
        books.jobs.clear()
    else:
        job = books.jobs[record.run_of("")]
        job.pays(record, charge.facts["n_cores"] * charge.facts["wall_s"])
        job.n_turns += 1
    return result | {"reason": charge.facts["lacks"]}, code


def _late(step: Step, found: list[Standing]) -> Result | str:
    """A profile that came after its step was charged; no news where the site has given some of that back."""
    for paid in found:
        number, file = paid.posting.transaction, str(paid.facts.get("file"))
        is_own = os.path.basename(file) == os.path.basename(step.record)
        if paid.posting.amount_usu and not paid.refunded_usu:
            reason = (
                f"it came after its step was charged {'without it' if is_own else 'with the script'}, as "
                f"transaction {number}: after `mpicoloc ledger refund {number} --release` it is charged by it"
            )
            told = {"reason": reason, "job": step.job, "account": paid.posting.account}
            return charges.entry(step.profile, None, "late", paid.posting) | told
    return _KNOWN


def _script_of(record: StepRecord, ledger: Ledger) -> Standing | None:
    """The charge of the script of a step's job, if it has paid for the step's time."""
    if record.is_script:
        return None
    scripts = ledger_spool.standing(ledger, runs=[record.run_of(step) for step in SCRIPTS])
    paid = (one for one in scripts if record.step not in one.facts.get("others_cpu_s", {}))
    return next(paid, None)


def _covered(step: Step, script: Standing, books: _Books) -> Result | str:
    """A step that its job's script has paid for, as it was charged before; from now on its name tells so."""
    if not books.is_dry:
        ledger_spool.cover(books.ledger, script.facts["run"], os.path.basename(step.record))
    return _late(step, [script]) if step.has_profile else _KNOWN


def _payer(record: StepRecord, terms: Terms) -> str | None:
    return record.account if terms.by == "account" else record.user


def _account(record: StepRecord, terms: Terms) -> str:
    """The account that pays; looked up before the profile is read, as that takes longer."""
    name = _payer(record, terms)
    if name is None:
        raise Refused(f"job {record.job} had no account in Slurm: {BY_HAND}")
    if name not in terms.accounts:
        # Where Slurm does not check accounts, a user may write what no shell should be given.
        remedy = (
            f"`mpicoloc ledger open {name}` makes it"
            if is_name(name)
            else f"no account has that name: {BY_HAND}"
        )
        raise Refused(f"there is no account {printable(name)[:80]!r} for job {record.job}: {remedy}")
    return name


def _job(step: Step, record: StepRecord, terms: Terms, books: _Books) -> JobBooks:
    """What was charged of the job of a step so far."""
    run = record.run_of("")
    if run not in books.jobs:
        if not books.is_dry:
            books.jobs.clear()
        paid = ledger_job.of_number(books.ledger, str(record.job))
        known, found = set[int](), JobBooks(paid.n_turns)
        for other, cpu_s, number in _charged(step, record, terms, books.ledger):
            known.add(number)
            if other.run_of("") == run:
                found.pays(other, cpu_s)
        found.by_hand += [one for one in paid.charges if one.record is None and one.transaction not in known]
        books.jobs[run] = found
    return books.jobs[run]


def _charged(
    step: Step, record: StepRecord, terms: Terms, ledger: Ledger
) -> Iterator[tuple[StepRecord, float | None, int]]:
    """Slurm's records of what was charged of this start of a job; CPU s, None by hand; the transactions.

    Oldest charge first: one by hand is taken to pay for what no earlier one does.
    """
    start = f"{record.job}.{int(record.job_submit_unix_s)}"
    for name, paid in ledger_spool.of_start(ledger, start).items():
        with contextlib.suppress(MpicolocError):
            if "slurm" in paid.facts:
                cpu_s = float(paid.facts["n_cores"]) * float(paid.facts["wall_s"])
                yield step_record_of(paid.facts["slurm"]), cpu_s, paid.posting.transaction
            else:  # charged by hand
                other = Step(step.folder, os.path.splitext(name)[0], True, True, False)
                yield step_price.record_of(other, terms).record, None, paid.posting.transaction


def _tell(result: Result, *, quiet: bool) -> None:
    """One line of what became of a step."""
    file, reason = printable(result["file"]), printable(result["reason"] or "")
    if result["status"] not in ("late", "would be charged"):
        charges.tell_one(result["account"], result, quiet=quiet)
    elif quiet:
        return
    elif result["status"] == "late":
        messages.note(f"{file}: {reason}")
    else:
        amount = service_units.su_text(result["price_usu"])
        why = f"; no discount, as {reason}" if reason else ""
        print(f"{file}: would be charged, {amount} SU to account {result['account']}{why}")
