"""What a step of a spool is charged: Slurm's CPUs and time, at the slowdown that its profile tells."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass
from typing import Any

from mpicoloc.core import service_units
from mpicoloc.core.estimate import Estimate, estimate_json
from mpicoloc.core.step_record import StepRecord
from mpicoloc.core.tables import printable
from mpicoloc.errors import DataError, MpicolocError, Refused
from mpicoloc.ledger import charges, ledger_job, ledger_spool
from mpicoloc.ledger.ledger import Charge, Ledger
from mpicoloc.ledger.ledger_job import JobCharge
from mpicoloc.pricing.price import Tariff, bill, slowdown_of_run
from mpicoloc.profile import signature
from mpicoloc.profile.signature import KeyFile, Snapshot
from mpicoloc.slurm import step_record
from mpicoloc.slurm.job_books import JobBooks
from mpicoloc.slurm.spool import PROFILE, RECORD, Step
from mpicoloc.slurm.step_record import SKEW_S, Sealed

BY_HAND = "charge it with `mpicoloc ledger charge`, and move its files out of the spool"


@dataclass(frozen=True)
class Terms:
    """What the keeper of the ledger says.

    Attributes
    ----------
    key, key_id : KeyFile, str
        The site's.
    tariff : Tariff
        What a CPU and second cost.
    by : str
        Whose account pays, that of Slurm's user or account.
    accounts : frozenset of str
        All that there are.
    grace_s : float
        So old, s, is the record of a step that is charged without a profile.
    now_unix_s : float
        When this is, s.
    """

    key: KeyFile
    key_id: str
    tariff: Tariff
    by: str
    accounts: frozenset[str]
    grace_s: float
    now_unix_s: float


@dataclass(frozen=True)
class _Told:
    """What tells how much a step was slowed down; where no profile does, `lacks` says why.

    `digest`, `partial` and `start_unix_s` are of the profile or the record, `profile` is used, none or
    refused, and `settles` is the file by which the step is known from now on.
    """

    file: str
    digest: str
    partial: bool | None
    slowdown: Estimate | None
    measured_s: float
    start_unix_s: float
    profile: str
    lacks: str | None
    settles: str


def record_of(step: Step, terms: Terms) -> Sealed:
    """Slurm's record of a step, checked.

    Raises
    ------
    Refused, DataError, EnvironmentFault
        If there is none, it is not the site's or of another step, is damaged, or cannot be read.
    """
    found = step_record.read(step.record)
    if found is None:
        raise Refused(f"Slurm's record of its step, {step.record}, is not there: {BY_HAND}")
    reason = found.reason(terms.key)
    if reason:
        raise Refused(reason)
    if found.record.profile != step.stem + PROFILE:
        raise Refused(f"{step.record} is the record of {printable(found.record.profile)}: {BY_HAND}")
    return found


def is_young(step: Step, terms: Terms) -> bool:
    """Whether a profile of the step may still come."""
    try:
        return terms.grace_s > 0 and os.stat(step.record).st_mtime + terms.grace_s > terms.now_unix_s
    except OSError:  # told when it is read
        return False


def charge(step: Step, sealed: Sealed, job: JobBooks, terms: Terms, ledger: Ledger) -> Charge | None:
    """The charge of a step; None: it may still get a good profile.

    Parameters
    ----------
    step, sealed : Step, Sealed
        The step and its record, checked.
    job : JobBooks
        What was charged of its job.
    terms, ledger : Terms, Ledger
        By what, and where.

    Raises
    ------
    UsageError, EnvironmentFault
        If the site's price function fails, or the profile cannot be read.
    """
    profile, lacks = "none", "it left no profile"
    if os.path.lexists(step.profile):
        try:
            return _charge(_by_profile(step, sealed.record, terms, ledger), sealed.record, job, terms)
        except (Refused, DataError) as error:
            # Nobody computes for nothing because of what stands in his profile.
            profile, lacks = "refused", f"its profile was refused: {error}"
    if is_young(step, terms):
        return None
    digest = hashlib.sha256(sealed.covered).hexdigest()
    settles = step.stem + (RECORD if profile == "none" else PROFILE)
    told = _Told(step.record, digest, None, None, 0.0, 0.0, profile, lacks, settles)
    return _charge(told, sealed.record, job, terms)


def _by_profile(step: Step, record: StepRecord, terms: Terms, ledger: Ledger) -> _Told:
    taken = charges.read(step.profile)
    if isinstance(taken, MpicolocError):
        raise taken
    verdict = signature.verify(taken, terms.key)
    if not verdict.is_good:
        raise Refused(verdict.reason)
    _check_run(taken, record, ledger)
    profile = taken.profile
    slowdown, measured_s = profile.interference.slowdown, profile.job.wall_s
    return _Told(
        step.profile,
        taken.digest,
        profile.partial,
        slowdown,
        measured_s,
        profile.job.start_unix_s,
        "used",
        None,
        step.stem + PROFILE,
    )


def _check_run(taken: Snapshot, record: StepRecord, ledger: Ledger) -> None:
    """Refuse a profile of another job, and one of another run that stands in the place of this one's."""
    job = taken.profile.job
    if job.id != str(record.job):
        raise Refused(f"it is the profile of job {printable(job.id)}, not of job {record.job}")
    late_s = job.start_unix_s - record.step_start_unix_s
    if job.start_unix_s and not -SKEW_S <= late_s <= record.ran_s + SKEW_S:
        raise Refused(
            f"it began {late_s:+.0f} s from the start of step {record.name}, which ran {record.ran_s:.0f} s: "
            "it is of another run"
        )
    for before in ledger_spool.standing(ledger, digests=[taken.digest]):
        run, number = before.facts.get("run", record.run), before.posting.transaction
        if run != record.run:
            raise Refused(f"it was charged for run {run}, as transaction {number}: one is a copy")


def _charge(told: _Told, record: StepRecord, job: JobBooks, terms: Terms) -> Charge:
    """Slurm's CPUs and time, less what other steps of the job pay."""
    others = job.others(record)
    charged_s = record.charged_s(others.cpu_s)
    whole = slowdown_of_run(told.slowdown, told.measured_s, charged_s)
    prices = bill(whole, n_cores=record.n_cpus, wall_s=charged_s, tariff=terms.tariff)
    facts: dict[str, Any] = {
        "file": told.file,
        "job": record.name,
        "key_id": terms.key_id,
        "digest": told.digest,
        "partial": told.partial,
        **charges.facts_of(prices),
        "start_unix_s": told.start_unix_s or None,
        "measured_s": told.measured_s,
        "measured_slowdown": estimate_json(told.slowdown),
        "profile": told.profile,
        "lacks": told.lacks,
        "slurm": asdict(record),
        "others_cpu_s": others.by_step,
        "by_hand_cpu_s": others.by_hand,
        "overlap_cpu_s": others.overlap_cpu_s,
    }
    usu = service_units.usu_of_su(prices.charged_su)
    spooled = told.settles if _names_run(told.settles, record) else ""
    return Charge(
        told.digest,
        record.name,
        record.job_start_unix_s,
        usu,
        facts,
        record.run,
        spooled,
        (str(record.job), job.n_turns),
    )


def check_by_hand(charge: Charge, record: StepRecord, job: JobBooks) -> None:
    """Refuse to charge a step that was charged by hand, from other content than that of `charge`.

    A script pays for what was not.

    Raises
    ------
    Refused
        If it was.
    """
    start_s = charge.facts["start_unix_s"] or 0.0
    step = JobCharge(0, str(record.job), start_s, charge.digest, record.cpu_s, record)
    for paid in job.by_hand:
        is_new = paid.start_unix_s and record.is_script and not ledger_job.is_same_run(paid, step)
        if ledger_job.is_paid(paid, step) and not is_new:
            raise Refused(
                f"step {record.name} was charged by hand as transaction {paid.transaction}: refund that, or "
                "move the step's files out of the spool"
            )


def _names_run(name: str, record: StepRecord) -> bool:
    """Whether no later run, after Slurm counts jobs anew, can have a file of this name."""
    return str(int(record.job_submit_unix_s)) in name.split(".")
