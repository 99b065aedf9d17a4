"""`mpicoloc ledger collect`: charges steps by Slurm's records and the slowdowns of their profiles."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mpicoloc import messages
from mpicoloc.bill import charges as bill_charges
from mpicoloc.bill import job_charges
from mpicoloc.bill import spool as ledger_spool
from mpicoloc.bill.ledger import Charge, Ledger, Overtaken, Stamp, is_name
from mpicoloc.bill.price import Tariff
from mpicoloc.bill.spool import Standing
from mpicoloc.core import service_units
from mpicoloc.core.progress import steps
from mpicoloc.core.step_record import SCRIPTS, StepRecord, step_record_of
from mpicoloc.core.tables import printable
from mpicoloc.errors import EnvironmentFault, MpicolocError, Refused
from mpicoloc.profile import signature
from mpicoloc.profile.signature import KeyFile
from mpicoloc.slurm import step_price
from mpicoloc.slurm.charged_job import ChargedJob
from mpicoloc.slurm.spool import Step, scan
from mpicoloc.slurm.step_price import BY_HAND, Terms

Result = dict[str, Any]
_WAITS, _KNOWN = "waits", "known"
_NEW = ("charged", "would be charged")
_STATUS = (*_NEW, "already charged", "late", "refused")


@dataclass(frozen=True)
class CollectSettings:
    """What the keeper of the ledger says: the site's key, its tariff, who pays, and the age of a record, s,
    at which its step is charged without a profile.
    """

    key: KeyFile
    tariff: Tariff
    by: str
    grace_s: float


@dataclass(frozen=True)
class _Books:
    """Where charges go, and what this call did so far.

    `jobs` has the charges of jobs by their runs: of all jobs in a dry run, else of the last one. `held` has
    starts of jobs with a step that is not charged yet, so the script's share is not known.
    """

    ledger: Ledger
    stamp: Stamp
    is_dry: bool
    jobs: dict[str, ChargedJob] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)


@dataclass
class _Summary:
    """Counts for the end of the call."""

    n_known: int
    n_waiting: int = 0
    worst: int = 0
    charges: list[Result] = field(default_factory=list)

    def add(self, outcome: Result | str, code: int, *, quiet: bool) -> None:
        """Count the outcome of one more step."""
        self.worst = max(self.worst, code)
        self.n_known += outcome == _KNOWN
        self.n_waiting += outcome == _WAITS
        if not isinstance(outcome, str):
            self.charges.append(outcome)
            _print_outcome(outcome, quiet=quiet)

    def text(self, terms: Terms) -> str:
        """One line of all counts."""
        by_status = {name: [one for one in self.charges if one["status"] == name] for name in _STATUS}
        counts = []
        for name, found in by_status.items():
            amount = (
                f", {service_units.su_text(sum(one['price_usu'] for one in found))} SU"
                if name in _NEW
                else ""
            )
            if found or name in ("charged", "refused"):
                counts.append(f"{len(found)} {name}{amount}")
        waits = (
            f" (a step without a good profile until its record is {terms.grace_s:g} s old, --grace-s; "
            "a script until all steps of its job are charged)"
        )
        counts += [
            f"{self.n_waiting} waiting{waits if self.n_waiting else ''}",
            f"{self.n_known} known before",
        ]
        return "; ".join(counts)


def collect(
    spool: str, ledger: Ledger, settings: CollectSettings, stamp: Stamp, *, is_dry: bool, is_json: bool
) -> int:
    """Charge every step of the spool that the ledger does not have, and print the outcome of each.

    One step's error does not stop the steps of other jobs. Returns the highest exit code of all steps.
    """
    accounts = frozenset(account.name for account in ledger.accounts() if account.name[0] != "@")
    key_id = signature.key_id(settings.key)
    terms = Terms(
        settings.key, key_id, settings.tariff, settings.by, accounts, settings.grace_s, stamp.at_unix_s
    )
    found = scan(spool, ledger)
    books = _Books(ledger, stamp, is_dry)
    summary = _Summary(found.n_settled)
    try:
        # Without --json the printed lines show the progress.
        for step in steps(found.steps, "charging", unit="steps") if is_json else found.steps:
            summary.add(*_collect_step(step, terms, books), quiet=is_json)
    finally:
        # The summary is printed also if the ledger fails half way.
        if is_json:
            names = ("n_known", "n_waiting", "charges")
            print(json.dumps({name: getattr(summary, name) for name in names}, indent=2, allow_nan=False))
        else:
            messages.note(summary.text(terms))
    return summary.worst


def _collect_step(step: Step, terms: Terms, books: _Books) -> tuple[Result | str, int]:
    """Outcome of one step and its exit code; a dry run posts nothing."""
    if step.is_charged:
        return _late_profile(
            step, ledger_spool.standing(books.ledger, files=[os.path.basename(step.record)])
        ), 0
    if step.is_script and step.start in books.held:
        return _WAITS, 0
    if not step.has_profile and step_price.is_young(step, terms):
        books.held.add(step.start)
        return _WAITS, 0
    while True:
        try:
            return _charge_step(step, terms, books)
        except Overtaken:
            # Another call has charged a step of this job meanwhile: look again.
            books.jobs.clear()


def _charge_step(step: Step, terms: Terms, books: _Books) -> tuple[Result | str, int]:
    """As `_collect_step`, for a step that does not wait for others."""
    sealed = None
    try:
        sealed = step_price.record_of(step, terms)
        job = _charges_of_job(step, sealed.record, terms, books)
        script = _script_of(sealed.record, books.ledger)
        if script is not None:
            return _covered_by_script(step, script, books), 0
        account = _account(sealed.record, terms)
        charge = step_price.charge(step, sealed, job, terms, books.ledger)
        if charge is not None:
            step_price.check_by_hand(charge, sealed.record, job)
    except MpicolocError as error:
        result, code = bill_charges.refused(step.file, None, error)
        if sealed or isinstance(error, EnvironmentFault):
            books.held.add(step.start)
    else:
        if charge is None:
            books.held.add(step.start)
            return _WAITS, 0
        result, code = _post(step, (account, charge), sealed.record, books)
    # Nothing of an unchecked record is shown.
    known = (sealed.record.name, _payer(sealed.record, terms)) if sealed else (None, None)
    return result | dict(zip(("job", "account"), known, strict=True)), code


def _post(step: Step, case: tuple[str, Charge], record: StepRecord, books: _Books) -> tuple[Result, int]:
    """Charge a step to an account; a dry run only returns the price."""
    account, charge = case
    file = str(charge.facts["file"])
    if books.is_dry:
        result, code = bill_charges.entry(file, charge, "would be charged", None), 0
    else:
        result, code = bill_charges.post(books.ledger, account, (file, charge), books.stamp)
    if code:
        books.held.add(step.start)
        return result, code
    if result["status"] == "already charged":  # by another call, meanwhile
        books.jobs.clear()
    else:
        job = books.jobs[record.run_of("")]
        job.add_charge(record, charge.facts["n_cores"] * charge.facts["wall_s"])
        job.n_turns += 1
    return result | {"reason": charge.facts["lacks"]}, code


def _late_profile(step: Step, found: list[Standing]) -> Result | str:
    """Result for a profile that came after its step was charged; none if the site has refunded some of it."""
    for paid in found:
        number, file = paid.posting.transaction, str(paid.facts.get("file"))
        is_own = os.path.basename(file) == os.path.basename(step.record)
        if paid.posting.amount_usu and not paid.refunded_usu:
            reason = (
                f"it came after its step was charged {'without it' if is_own else 'with the script'}, as "
                f"transaction {number}: after `mpicoloc ledger refund {number} --release` it is charged by it"
            )
            late = {"reason": reason, "job": step.job, "account": paid.posting.account}
            return bill_charges.entry(step.profile, None, "late", paid.posting) | late
    return _KNOWN


def _script_of(record: StepRecord, ledger: Ledger) -> Standing | None:
    """The charge of the script of a step's job, if it has paid for the step's time."""
    if record.is_script:
        return None
    scripts = ledger_spool.standing(ledger, runs=[record.run_of(step) for step in SCRIPTS])
    paid = (one for one in scripts if record.step not in one.facts.get("others_cpu_s", {}))
    return next(paid, None)


def _covered_by_script(step: Step, script: Standing, books: _Books) -> Result | str:
    """Result for a step that its job's script has paid for; the ledger then lists the step as covered."""
    if not books.is_dry:
        ledger_spool.cover(books.ledger, script.facts["run"], os.path.basename(step.record))
    return _late_profile(step, [script]) if step.has_profile else _KNOWN


def _payer(record: StepRecord, terms: Terms) -> str | None:
    return record.account if terms.by == "account" else record.user


def _account(record: StepRecord, terms: Terms) -> str:
    """The account that pays; it is checked before the profile is read, which takes longer."""
    name = _payer(record, terms)
    if name is None:
        raise Refused(f"job {record.job} had no account in Slurm: {BY_HAND}")
    if name not in terms.accounts:
        # Without Slurm's check of accounts a user may write anything, so only a plain name goes into the
        # command.
        remedy = (
            f"`mpicoloc ledger open {name}` makes it"
            if is_name(name)
            else f"no account has that name: {BY_HAND}"
        )
        raise Refused(f"there is no account {printable(name)[:80]!r} for job {record.job}: {remedy}")
    return name


def _charges_of_job(step: Step, record: StepRecord, terms: Terms, books: _Books) -> ChargedJob:
    """Charges of a step's job so far."""
    run = record.run_of("")
    if run not in books.jobs:
        if not books.is_dry:
            books.jobs.clear()
        paid = job_charges.of_number(books.ledger, str(record.job))
        known, found = set[int](), ChargedJob(paid.n_turns)
        for other, cpu_s, number in _earlier_charges(step, record, terms, books.ledger):
            known.add(number)
            if other.run_of("") == run:
                found.add_charge(other, cpu_s)
        found.by_hand += [one for one in paid.charges if one.record is None and one.transaction not in known]
        books.jobs[run] = found
    return books.jobs[run]


def _earlier_charges(
    step: Step, record: StepRecord, terms: Terms, ledger: Ledger
) -> Iterator[tuple[StepRecord, float | None, int]]:
    """Earlier charges of this start of a job: Slurm's record, CPU s (None by hand), transaction.

    The oldest comes first: a charge by hand pays for what no earlier charge does.
    """
    start = f"{record.job}.{int(record.job_submit_unix_s)}"
    for name, paid in ledger_spool.charges_of_start(ledger, start).items():
        with contextlib.suppress(MpicolocError):
            if "slurm" in paid.facts:
                cpu_s = float(paid.facts["n_cores"]) * float(paid.facts["wall_s"])
                yield step_record_of(paid.facts["slurm"]), cpu_s, paid.posting.transaction
            else:  # charged by hand
                other = Step(step.folder, os.path.splitext(name)[0], True, True, False)
                yield step_price.record_of(other, terms).record, None, paid.posting.transaction


def _print_outcome(result: Result, *, quiet: bool) -> None:
    """Print one line for a step."""
    file, reason = printable(result["file"]), printable(result["reason"] or "")
    if result["status"] not in ("late", "would be charged"):
        bill_charges.print_outcome(result["account"], result, quiet=quiet)
    elif quiet:
        return
    elif result["status"] == "late":
        messages.note(f"{file}: {reason}")
    else:
        amount = service_units.su_text(result["price_usu"])
        why = f"; no discount, as {reason}" if reason else ""
        print(f"{file}: would be charged, {amount} SU to account {result['account']}{why}")
