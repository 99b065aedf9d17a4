"""The charge of a step in a spool: Slurm's CPUs and time, at the slowdown of its profile."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass
from typing import Any

from mpicoloc.bill import charges, job_charges, spool
from mpicoloc.bill.job_charges import JobCharge
from mpicoloc.bill.ledger import Charge, Ledger
from mpicoloc.bill.price import Tariff, bill, slowdown_of_run
from mpicoloc.core import service_units
from mpicoloc.core.estimate import Estimate, estimate_json
from mpicoloc.core.step_record import StepRecord
from mpicoloc.core.tables import printable
from mpicoloc.errors import DataError, MpicolocError, Refused
from mpicoloc.profile import signature
from mpicoloc.profile.signature import KeyFile, Snapshot
from mpicoloc.slurm import step_record
from mpicoloc.slurm.charged_job import ChargedJob
from mpicoloc.slurm.spool import PROFILE, RECORD, Step
from mpicoloc.slurm.step_record import SKEW_S, Sealed

BY_HAND = "charge it with `mpicoloc ledger charge`, and move its files out of the spool"


@dataclass(frozen=True)
class Terms:
    """Settings of the ledger's keeper.

    Attributes
    ----------
    key, key_id : KeyFile, str
        The site's.
    tariff : Tariff
        Price of CPU time.
    by : str
        Whose account pays: ``user`` or ``account`` of Slurm.
    accounts : frozenset of str
        Names of all accounts.
    grace_s : float
        Age of a record, s, at which its step is charged without a profile.
    now_unix_s : float
        Time of the call, s.
    """

    key: KeyFile
    key_id: str
    tariff: Tariff
    by: str
    accounts: frozenset[str]
    grace_s: float
    now_unix_s: float


@dataclass(frozen=True)
class _Evidence:
    """Evidence of a step's slowdown; without a usable profile `lacks` says why.

    `digest`, `partial` and `start_unix_s` are of the profile or the record. `profile` is ``used``, ``none``
    or ``refused``. `settles` is the file whose name marks the step as charged.
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

    Raises `Refused`, `DataError`, `EnvironmentFault` if there is none, it is not the site's or of another
    step, is damaged, or cannot be read.
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


def charge(step: Step, sealed: Sealed, job: ChargedJob, terms: Terms, ledger: Ledger) -> Charge | None:
    """The charge of a step; None: it may still get a good profile.

    Raises `UsageError`, `EnvironmentFault` if the site's price function fails, or the profile cannot be read.
    """
    profile, lacks = "none", "it left no profile"
    if os.path.lexists(step.profile):
        try:
            return _charge(_by_profile(step, sealed.record, terms, ledger), sealed.record, job, terms)
        except (Refused, DataError) as error:
            # A bad profile must not make the job free of charge.
            profile, lacks = "refused", f"its profile was refused: {error}"
    if is_young(step, terms):
        return None
    digest = hashlib.sha256(sealed.covered).hexdigest()
    settles = step.stem + (RECORD if profile == "none" else PROFILE)
    evidence = _Evidence(step.record, digest, None, None, 0.0, 0.0, profile, lacks, settles)
    return _charge(evidence, sealed.record, job, terms)


def _by_profile(step: Step, record: StepRecord, terms: Terms, ledger: Ledger) -> _Evidence:
    taken = charges.read(step.profile)
    if isinstance(taken, MpicolocError):
        raise taken
    verdict = signature.verify(taken, terms.key)
    if not verdict.is_good:
        raise Refused(verdict.reason)
    _check_run(taken, record, ledger)
    profile = taken.profile
    slowdown, measured_s = profile.interference.slowdown, profile.job.wall_s
    return _Evidence(
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
    """Refuse the profile of another job or of another run."""
    job = taken.profile.job
    if job.id != str(record.job):
        raise Refused(f"it is the profile of job {printable(job.id)}, not of job {record.job}")
    late_s = job.start_unix_s - record.step_start_unix_s
    if job.start_unix_s and not -SKEW_S <= late_s <= record.ran_s + SKEW_S:
        raise Refused(
            f"it began {late_s:+.0f} s from the start of step {record.name}, which ran {record.ran_s:.0f} s: "
            "it is of another run"
        )
    for before in spool.standing(ledger, digests=[taken.digest]):
        run, number = before.facts.get("run", record.run), before.posting.transaction
        if run != record.run:
            raise Refused(f"it was charged for run {run}, as transaction {number}: one is a copy")


def _charge(evidence: _Evidence, record: StepRecord, job: ChargedJob, terms: Terms) -> Charge:
    """The charge for Slurm's CPUs and time, less what other steps of the job pay."""
    others = job.paid_by_others(record)
    charged_s = record.charged_s(others.cpu_s)
    whole = slowdown_of_run(evidence.slowdown, evidence.measured_s, charged_s)
    prices = bill(whole, n_cores=record.n_cpus, wall_s=charged_s, tariff=terms.tariff)
    facts: dict[str, Any] = {
        "file": evidence.file,
        "job": record.name,
        "key_id": terms.key_id,
        "digest": evidence.digest,
        "partial": evidence.partial,
        **charges.facts_of(prices),
        "start_unix_s": evidence.start_unix_s or None,
        "measured_s": evidence.measured_s,
        "measured_slowdown": estimate_json(evidence.slowdown),
        "profile": evidence.profile,
        "lacks": evidence.lacks,
        "slurm": asdict(record),
        "others_cpu_s": others.by_step,
        "by_hand_cpu_s": others.by_hand,
        "overlap_cpu_s": others.overlap_cpu_s,
    }
    usu = service_units.usu_of_su(prices.charged_su)
    spooled = evidence.settles if _names_run(evidence.settles, record) else ""
    return Charge(
        evidence.digest,
        record.name,
        record.job_start_unix_s,
        usu,
        facts,
        record.run,
        spooled,
        (str(record.job), job.n_turns),
    )


def check_by_hand(charge: Charge, record: StepRecord, job: ChargedJob) -> None:
    """Refuse to charge a step that was charged by hand, from other content than that of `charge`.

    A script pays for what was not.

    Raises `Refused` if it was.
    """
    start_s = charge.facts["start_unix_s"] or 0.0
    step = JobCharge(0, str(record.job), start_s, charge.digest, record.cpu_s, record)
    for paid in job.by_hand:
        is_new = paid.start_unix_s and record.is_script and not job_charges.is_same_run(paid, step)
        if job_charges.is_paid(paid, step) and not is_new:
            raise Refused(
                f"step {record.name} was charged by hand as transaction {paid.transaction}: refund that, or "
                "move the step's files out of the spool"
            )


def _names_run(name: str, record: StepRecord) -> bool:
    """Whether the name is unique to this run, also after Slurm's job numbers have started again."""
    return str(int(record.job_submit_unix_s)) in name.split(".")
