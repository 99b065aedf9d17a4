"""`mpicoloc ledger collect`: charges steps by Slurm's records and the slowdowns in the steps' profiles."""

from __future__ import annotations

import argparse
import bisect
import contextlib
import hashlib
import json
import math
import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mpicoloc import messages
from mpicoloc.bill import charges as bill_charges, ledger as bill_ledger
from mpicoloc.bill.charges import JobCharge, is_paid, is_same_run, is_within
from mpicoloc.bill.ledger import Charge, Ledger, Overtaken, Stamp, Standing, is_name
from mpicoloc.bill.ledger_actions import ledger_of
from mpicoloc.bill.price import Tariff, bill, slowdown_of_run
from mpicoloc.core import units
from mpicoloc.core.batch_system import SCRIPTS, StepRecord, step_record_of
from mpicoloc.core.plain_values import plain
from mpicoloc.core.profile import Estimate
from mpicoloc.core.progress import steps
from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, Refused, printable
from mpicoloc.profile import signature
from mpicoloc.slurm import records
from mpicoloc.slurm.records import SKEW_S, Sealed

PROFILE, RECORD = ".h5", ".json"
BY_HAND = "charge the step with `mpicoloc ledger charge`, and move its files out of the spool"
Result = dict[str, Any]
_WAITS, _KNOWN = "waits", "known"
_NEW = ("charged", "would be charged")
_STATUS = (*_NEW, "already charged", "late", "refused")
_OF_PLUGIN = re.compile(rf"\d+\.\d+(\.(\d+|{'|'.join(SCRIPTS)}))?")
"""Names that the plugin gives to files. A record with another name counts only if its profile is beside
it."""


@dataclass(frozen=True)
class Step:
    """A step, named by its files; `is_charged` if it was charged in full before it had a profile."""

    folder: str
    stem: str
    has_profile: bool
    is_charged: bool = False

    @property
    def profile(self) -> str:
        """Path of the step's profile, which may not exist."""
        return os.path.join(self.folder, self.stem + PROFILE)

    @property
    def record(self) -> str:
        """Path of Slurm's record of the step, which may not exist."""
        return os.path.join(self.folder, self.stem + RECORD)

    @property
    def start(self) -> str:
        """The start of the step's job: the common prefix of the names of all its steps."""
        return ".".join(self.stem.split(".")[:2])

    @property
    def is_script(self) -> bool:
        """Whether the name means the job itself (its script or its allocation), not a step."""
        return self.stem.rpartition(".")[2] in SCRIPTS


def scan(folder: str, names: Sequence[str], ledger: Ledger) -> tuple[int, list[Step]]:
    """Number of settled steps in a spool, and the other steps, found by the names of their files.

    Scripts are last, because a script pays for the job's time that its steps do not pay.
    """
    profiles, records = _stems(names)
    stems = list(profiles | records)
    paid = bill_ledger.settled(ledger, [stem + PROFILE for stem in stems])
    rest = [stem for stem in stems if stem + PROFILE not in paid]
    in_full = bill_ledger.settled(ledger, [stem + RECORD for stem in rest if stem in records])
    found = [
        Step(folder, stem, stem in profiles, stem + RECORD in in_full)
        for stem in rest
        # A step that was charged in full is settled, unless its profile arrived later.
        if stem in profiles or stem + RECORD not in in_full
    ]
    return len(stems) - len(found), sorted(found, key=lambda step: (step.is_script, step.stem))


def _stems(names: Sequence[str]) -> tuple[set[str], set[str]]:
    """Names of profiles and of records, without their extensions."""
    profiles, records = (
        {name[: -len(end)] for name in names if name.endswith(end)} for end in (PROFILE, RECORD)
    )
    return profiles, {stem for stem in records if stem in profiles or _OF_PLUGIN.fullmatch(stem)}


def _names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name[0] != "."]
    except OSError as error:
        raise EnvironmentFault(
            f"cannot read the spool {folder}: {error.strerror}; give the folder that plugstack.conf names "
            "with spool=, where Slurm's plugin puts signed profiles and records of steps"
        ) from error


def _doubts(folder: str, names: Sequence[str]) -> Iterator[str]:
    """Warnings about a folder that may not be a spool, or that other users can change."""
    profiles, records = _stems(names)
    status = os.stat(folder)
    if profiles and not records:
        yield (
            f"{folder} has profiles but no record of Slurm's plugin: give the folder that plugstack.conf "
            "names with spool=, not the one with out="
        )
    taken = {stem + PROFILE for stem in profiles} | {stem + RECORD for stem in records}
    if others := sorted(set(names) - taken):
        n = "1 entry that is" if len(others) == 1 else f"{len(others):,} entries, each of which is"
        yield (
            f"ignored in {folder}: {n} neither a profile nor a record ({printable(others[0])}); "
            "subfolders are not read"
        )
    are_others_in = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    remedy = "make root its owner, with mode 755"
    if status.st_uid not in (0, os.geteuid()) or (are_others_in and not status.st_mode & stat.S_ISVTX):
        yield (
            f"other users can remove files from {folder}, and a step without a record pays nothing: {remedy}"
        )
    elif are_others_in:
        yield f"other users can add files to {folder}: {remedy}"


@dataclass
class CpuTimeline:
    """CPUs that the steps of a job use, as a function of the job's run time without suspensions.

    The steps use ``n_cpus[i]`` CPUs from ``at_s[i]`` on.
    """

    at_s: list[float] = field(default_factory=list)
    n_cpus: list[int] = field(default_factory=list)

    def given_cpu_s(self, record: StepRecord, *, is_added: bool) -> float:
        """CPU seconds that a step adds, if all steps together have at most the job's CPUs at any time."""
        if record.job_ran_s is None:
            return record.cpu_s
        most = math.inf if record.job_n_cpus is None else max(record.job_n_cpus, record.n_cpus)
        first, end = self._split_at(record.job_ran_s - record.ran_s), self._split_at(record.job_ran_s)
        given_cpu_s = 0.0
        for i in range(first, end):
            more = min(self.n_cpus[i] + record.n_cpus, most) - min(self.n_cpus[i], most)
            given_cpu_s += more * (self.at_s[i + 1] - self.at_s[i])
            if is_added:
                self.n_cpus[i] += record.n_cpus
        return given_cpu_s

    def _split_at(self, at_s: float) -> int:
        """Index of the interval that begins at this time. Inserts the interval if it does not exist."""
        i = bisect.bisect_left(self.at_s, at_s)
        if i == len(self.at_s) or self.at_s[i] != at_s:
            self.at_s.insert(i, at_s)
            self.n_cpus.insert(i, self.n_cpus[i - 1] if i else 0)
        return i


@dataclass
class ChargedJob:
    """Charges of the steps of one run of a job, so that no CPU second is charged twice.

    `n_turns` comes from `charges.charges_of_job`. `by_hand` lists charges by hand for this job number that
    belong to no known step. `paid_cpu_s` has the paid CPU seconds of each step except scripts. `unpaid_cpu_s`
    is the CPU time of these steps that nobody has paid, because a charge that overlaps other charges was
    refunded.
    """

    n_turns: int
    by_hand: list[JobCharge] = field(default_factory=list)
    paid_cpu_s: dict[str, float] = field(default_factory=dict)
    unpaid_cpu_s: float = 0.0
    load: CpuTimeline = field(default_factory=CpuTimeline)

    def add_charge(self, record: StepRecord, cpu_s: float | None) -> None:
        """Add the charge of a step; if `cpu_s` is None, all its CPU seconds were charged by hand."""
        if record.is_script or record.step in self.paid_cpu_s:
            return
        self.paid_cpu_s[record.step] = record.cpu_s if cpu_s is None else cpu_s
        given_cpu_s = self.load.given_cpu_s(record, is_added=True)
        if cpu_s is not None and record.job_ran_s is not None:
            self.unpaid_cpu_s += given_cpu_s - cpu_s

    def paid_by_others(self, record: StepRecord) -> tuple[dict[str, float], dict[str, float], float]:
        """CPU seconds that the charge of a step leaves out, because other charges of its job pay them.

        Result: for a script, CPU seconds paid by each step and by each transaction by hand; for other steps,
        CPU seconds while the steps together had more CPUs than the job.
        """
        if record.is_script:
            by_step = {step: round(cpu_s, 3) for step, cpu_s in self.paid_cpu_s.items()}
            return by_step, self._by_hand_cpu_s(record), 0.0
        own_cpu_s = self.load.given_cpu_s(record, is_added=False)
        if record.job_ran_s is not None:
            own_cpu_s = min(max(own_cpu_s + self.unpaid_cpu_s, 0.0), record.cpu_s)
        return {}, {}, round(record.cpu_s - own_cpu_s, 3)

    def _by_hand_cpu_s(self, script: StepRecord) -> dict[str, float]:
        """CPU seconds charged by hand for runs in a script.

        Each charge counts at most the CPU seconds that the script had after the start of the run.
        """
        end_s = script.step_start_unix_s + script.ran_s
        return {
            str(paid.transaction): round(
                min(paid.cpu_s, script.n_cpus * max(end_s - paid.start_unix_s, 0.0)), 3
            )
            for paid in self.by_hand
            if is_within(paid.start_unix_s, script)
        }


@dataclass(frozen=True)
class _Books:
    """Ledger, key and terms of this call, and its state so far.

    `by` is the Slurm field that names the paying account: ``user`` or ``account``. `grace_s` is the age of a
    record, s, at which its step is charged without a profile. `accounts` has the names of all accounts,
    `key_id` identifies the site's key. `jobs` maps runs to the charges of their jobs; in a dry run it has all
    jobs, otherwise only the last job. `held` has the starts of jobs that have a step which is not charged
    yet: until it is charged, the script's share is unknown.
    """

    ledger: Ledger
    key: signature.KeyFile
    tariff: Tariff
    by: str
    grace_s: float
    stamp: Stamp
    is_dry: bool
    accounts: frozenset[str]
    key_id: str
    jobs: dict[str, ChargedJob] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)

    def payer(self, record: StepRecord) -> str | None:
        """Name of the account that pays for a step."""
        return record.account if self.by == "account" else record.user


def run(args: argparse.Namespace, key: signature.KeyFile) -> int:
    """Charge every step in the spool that the ledger lacks, and print the outcome of each.

    An error in one step does not stop the steps of other jobs. Returns the highest exit code of all steps.
    """
    ledger, stamp = ledger_of(args), bill_ledger.stamp_now()
    tariff = bill_charges.tariff_of(args)
    accounts = frozenset(account.name for account in ledger.accounts() if account.name[0] != "@")
    key_id = signature.key_id(key)
    books = _Books(ledger, key, tariff, args.by, args.grace_s, stamp, args.dry_run, accounts, key_id)
    names = _names(args.spool)
    n_known, found = scan(args.spool, names, ledger)
    for doubt in _doubts(args.spool, names):
        messages.note(doubt)
    n_waiting, worst, results = 0, 0, list[Result]()
    try:
        # Without --json the printed lines show the progress.
        for step in steps(found, "charging", unit="steps") if args.json else found:
            outcome, code = _collect_step(step, books)
            worst = max(worst, code)
            n_known += outcome == _KNOWN
            n_waiting += outcome == _WAITS
            if not isinstance(outcome, str):
                results.append(outcome)
                _print_outcome(outcome, quiet=args.json)
    finally:
        # Print the summary even if the ledger fails half way.
        if args.json:
            summary = {"n_known": n_known, "n_waiting": n_waiting, "charges": results}
            print(json.dumps(summary, indent=2, allow_nan=False))
        else:
            messages.note(_summary(results, n_waiting, n_known, args.grace_s))
    return worst


def _summary(results: list[Result], n_waiting: int, n_known: int, grace_s: float) -> str:
    """All counts in one line."""
    counts = []
    for name in _STATUS:
        found = [one for one in results if one["status"] == name]
        amount = f", {units.su_text(sum(one['price_usu'] for one in found))} SU" if name in _NEW else ""
        if found or name in ("charged", "refused"):
            counts.append(f"{len(found)} {name}{amount}")
    waits = (
        f" (a step without a good profile until its record is {grace_s:g} s old, --grace-s; "
        "a script until all steps of its job are charged)"
    )
    return "; ".join([*counts, f"{n_waiting} waiting{waits if n_waiting else ''}", f"{n_known} known before"])


def _collect_step(step: Step, books: _Books) -> tuple[Result | str, int]:
    """Outcome of one step and its exit code; a dry run posts nothing."""
    if step.is_charged:
        paid = bill_ledger.standing(books.ledger, files=[os.path.basename(step.record)])
        return _late_profile(step, paid), 0
    if step.is_script and step.start in books.held:
        return _WAITS, 0
    if not step.has_profile and _is_young(step, books):
        books.held.add(step.start)
        return _WAITS, 0
    while True:
        try:
            return _try_charge(step, books)
        except Overtaken:
            # Another call has charged a step of this job meanwhile, so read the job's charges again.
            books.jobs.clear()


def _is_young(step: Step, books: _Books) -> bool:
    """Whether a profile of the step may still come."""
    grace_s = books.grace_s
    try:
        return grace_s > 0 and os.stat(step.record).st_mtime + grace_s > books.stamp.at_unix_s
    except OSError:  # reported when the record is read
        return False


def _try_charge(step: Step, books: _Books) -> tuple[Result | str, int]:
    """Outcome and exit code of a step that does not wait for others."""
    sealed = None
    try:
        sealed = _record_of(step, books.key)
        record, job = sealed.record, _charges_of_job(step, sealed.record, books)
        script = _script_of(record, books.ledger)
        if script is not None:
            return _covered_by_script(step, script, books), 0
        account = _account(record, books)
        charge = _charge(step, sealed, job, books)
        if charge is None:
            books.held.add(step.start)
            return _WAITS, 0
        _check_by_hand(charge, record, job)
    except MpicolocError as error:
        result, code = bill_charges.refused(step.profile if step.has_profile else step.record, None, error)
        if sealed or isinstance(error, EnvironmentFault):
            books.held.add(step.start)
    else:
        result, code = _post(step, account, charge, record, books)
    # Show nothing from a record that was not verified.
    known = {"job": sealed.record.name, "account": books.payer(sealed.record)} if sealed else {}
    return result | {"job": None, "account": None} | known, code


def _record_of(step: Step, key: signature.Key) -> Sealed:
    """The verified Slurm record of a step.

    Raises `Refused` if the record is missing, not signed by the site, or that of another step; `DataError` if
    it is damaged; `EnvironmentFault` if it cannot be read.
    """
    found = records.read_record(step.record)
    if found is None:
        raise Refused(f"the Slurm record of this step, {step.record}, does not exist: {BY_HAND}")
    reason = found.reason(key)
    if reason:
        raise Refused(reason)
    if found.record.profile != step.stem + PROFILE:
        raise Refused(
            f"{step.record} is the record of another profile, {printable(found.record.profile)}: {BY_HAND}"
        )
    return found


def _charge(step: Step, sealed: Sealed, job: ChargedJob, books: _Books) -> Charge | None:
    """The charge of a step; None if a good profile may still arrive.

    Raises `UsageError` if the site's price function fails, `EnvironmentFault` if the profile cannot be read.
    """
    profile, lacks = "none", "it left no profile"
    if os.path.lexists(step.profile):
        try:
            return _charge_by_profile(step, sealed.record, job, books)
        except (Refused, DataError) as error:
            # A step with a bad profile is charged in full, or users could avoid charges by damaging profiles.
            profile, lacks = "refused", f"its profile was refused: {error}"
    if _is_young(step, books):
        return None
    evidence = {
        "file": step.record,
        "digest": hashlib.sha256(sealed.covered).hexdigest(),
        "partial": None,
        "start_unix_s": None,
        "measured_s": 0.0,
        "profile": profile,
        "lacks": lacks,
    }
    settles = step.stem + (RECORD if profile == "none" else PROFILE)
    return _charge_by(evidence, None, settles, sealed.record, job, books)


def _charge_by_profile(step: Step, record: StepRecord, job: ChargedJob, books: _Books) -> Charge:
    """The charge by a step's profile, which must carry the site's signature and be from this run."""
    taken = bill_charges.read(step.profile)
    if isinstance(taken, MpicolocError):
        raise taken
    bill_charges.verify(taken, books.key)
    _check_run(taken, record, books.ledger)
    profile = taken.profile
    evidence = {
        "file": step.profile,
        "digest": taken.digest,
        "partial": profile.partial,
        "start_unix_s": profile.job.start_unix_s or None,
        "measured_s": profile.job.wall_s,
        "profile": "used",
        "lacks": None,
    }
    return _charge_by(evidence, profile.interference.slowdown, step.stem + PROFILE, record, job, books)


def _check_run(taken: signature.Snapshot, record: StepRecord, ledger: Ledger) -> None:
    """Refuse a profile from another job or another run."""
    job = taken.profile.job
    if job.id != str(record.job):
        raise Refused(f"it is the profile of job {printable(job.id)}, not of job {record.job}")
    late_s = job.start_unix_s - record.step_start_unix_s
    if job.start_unix_s and not -SKEW_S <= late_s <= record.ran_s + SKEW_S:
        raise Refused(
            f"it began {late_s:+.0f} s from the start of step {record.name}, which ran {record.ran_s:.0f} "
            "s, so it is from another run"
        )
    for before in bill_ledger.standing(ledger, digests=[taken.digest]):
        run, number = before.facts.get("run", record.run), before.posting.transaction
        if run != record.run:
            raise Refused(f"it was charged for run {run}, as transaction {number}: one profile is a copy")


def _charge_by(
    evidence: Result,
    slowdown: Estimate | None,
    settles: str,
    record: StepRecord,
    job: ChargedJob,
    books: _Books,
) -> Charge:
    """The charge for CPUs and time from Slurm's record, less what other charges of the job pay.

    `settles` is the file name that marks the step as charged.
    """
    by_step, by_hand, overlap_cpu_s = job.paid_by_others(record)
    charged_s = record.charged_s(sum(by_step.values()) + sum(by_hand.values()) + overlap_cpu_s)
    whole = slowdown_of_run(slowdown, evidence["measured_s"], charged_s)
    rates = books.tariff.weighted(record.billing_per_cpu)
    prices = bill(whole, n_cores=record.n_cpus, wall_s=charged_s, tariff=rates)
    facts = {
        **evidence,
        "job": record.name,
        "key_id": books.key_id,
        **bill_charges.facts_of(prices),
        "billing_per_cpu": record.billing_per_cpu,
        "measured_slowdown": plain(slowdown),
        "slurm": asdict(record),
        "others_cpu_s": by_step,
        "by_hand_cpu_s": by_hand,
        "overlap_cpu_s": overlap_cpu_s,
    }
    # The submit time keeps names unique after Slurm's job numbers have wrapped around.
    names_run = str(int(record.job_submit_unix_s)) in settles.split(".")
    return Charge(
        evidence["digest"],
        record.name,
        record.job_start_unix_s,
        units.usu_of_su(prices.charged_su),
        facts,
        record.run,
        settles if names_run else "",
        (str(record.job), job.n_turns),
    )


def _check_by_hand(charge: Charge, record: StepRecord, job: ChargedJob) -> None:
    """Refuse to charge a step if it was charged by hand from another profile than the profile of `charge`.

    A script is not refused if the charge by hand is for another run in the job: the script then pays for the
    rest.
    """
    start_s = charge.facts["start_unix_s"] or 0.0
    step = JobCharge(0, str(record.job), start_s, charge.digest, record.cpu_s, record)
    for paid in job.by_hand:
        is_new = paid.start_unix_s and record.is_script and not is_same_run(paid, step)
        if is_paid(paid, step) and not is_new:
            raise Refused(
                f"step {record.name} was charged by hand as transaction {paid.transaction}: refund it, or "
                "move the step's files out of the spool"
            )


def _post(step: Step, account: str, charge: Charge, record: StepRecord, books: _Books) -> tuple[Result, int]:
    """Charge a step to an account. A dry run only returns the price."""
    file = charge.facts["file"]
    if books.is_dry:
        result, code = bill_charges.entry(file, charge, "would be charged", None), 0
    else:
        result, code = bill_charges.post(books.ledger, account, file, charge, books.stamp)
    if code:
        books.held.add(step.start)
        return result, code
    if result["status"] == "already charged":  # by another call meanwhile
        books.jobs.clear()
    else:
        job = books.jobs[record.run_of("")]
        job.add_charge(record, charge.facts["n_cores"] * charge.facts["wall_s"])
        job.n_turns += 1
    return result | {"reason": charge.facts["lacks"]}, code


def _late_profile(step: Step, found: list[Standing]) -> Result | str:
    """Result for a profile that arrived after its step was charged in full and nothing was refunded yet."""
    for paid in found:
        number, file = paid.posting.transaction, str(paid.facts.get("file"))
        is_own = os.path.basename(file) == os.path.basename(step.record)
        if paid.posting.amount_usu and not paid.refunded_usu:
            reason = (
                f"it came after its step was charged {'without it' if is_own else 'with the script'}, as "
                f"transaction {number}: `mpicoloc ledger refund {number} --release` lets it be used"
            )
            job = f"{step.start.partition('.')[0]}.{step.stem.rpartition('.')[2]}"
            late = {"reason": reason, "job": job, "account": paid.posting.account}
            return bill_charges.entry(step.profile, None, "late", paid.posting) | late
    return _KNOWN


def _script_of(record: StepRecord, ledger: Ledger) -> Standing | None:
    """The charge of the script of a step's job, if that charge includes the step's time."""
    if record.is_script:
        return None
    scripts = bill_ledger.standing(ledger, runs=[record.run_of(step) for step in SCRIPTS])
    return next((one for one in scripts if record.step not in one.facts.get("others_cpu_s", {})), None)


def _covered_by_script(step: Step, script: Standing, books: _Books) -> Result | str:
    """Result for a step if its job's script has paid its time. The ledger then lists the step as covered."""
    if not books.is_dry:
        bill_ledger.cover(books.ledger, script.facts["run"], os.path.basename(step.record))
    return _late_profile(step, [script]) if step.has_profile else _KNOWN


def _account(record: StepRecord, books: _Books) -> str:
    """The account that pays. It is checked before the profile is read, because reading takes longer."""
    name = books.payer(record)
    if name is None:
        raise Refused(f"job {record.job} had no account in Slurm: {BY_HAND}")
    if name not in books.accounts:
        # If Slurm does not check accounts, users can write any text there, so only a valid name is put into
        # the command.
        remedy = f"no account has that name: {BY_HAND}"
        if is_name(name):
            remedy = f"`mpicoloc ledger open {shlex.quote(name)}` creates it"
        raise Refused(f"there is no account {printable(name)[:80]!r} for job {record.job}: {remedy}")
    return name


def _charges_of_job(step: Step, record: StepRecord, books: _Books) -> ChargedJob:
    """Charges of a step's job so far."""
    run = record.run_of("")
    if run not in books.jobs:
        if not books.is_dry:
            books.jobs.clear()
        n_turns, charges = bill_charges.charges_of_job(books.ledger, str(record.job))
        known, found = set[int](), ChargedJob(n_turns)
        for other, cpu_s, number in _earlier_charges(step, record, books):
            known.add(number)
            if other.run_of("") == run:
                found.add_charge(other, cpu_s)
        found.by_hand += [one for one in charges if one.record is None and one.transaction not in known]
        books.jobs[run] = found
    return books.jobs[run]


def _earlier_charges(
    step: Step, record: StepRecord, books: _Books
) -> Iterator[tuple[StepRecord, float | None, int]]:
    """Earlier charges of this start of a job: Slurm's record, CPU s (None if by hand), transaction.

    Oldest first, because a charge by hand counts only for CPU seconds that no earlier charge has paid.
    """
    start = f"{record.job}.{int(record.job_submit_unix_s)}"
    for name, paid in bill_ledger.charges_of_start(books.ledger, start).items():
        with contextlib.suppress(MpicolocError):
            if "slurm" in paid.facts:
                cpu_s = float(paid.facts["n_cores"]) * float(paid.facts["wall_s"])
                yield step_record_of(paid.facts["slurm"]), cpu_s, paid.posting.transaction
            else:  # charged by hand
                other = Step(step.folder, os.path.splitext(name)[0], has_profile=True)
                yield _record_of(other, books.key).record, None, paid.posting.transaction


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
        amount = units.su_text(result["price_usu"])
        why = f"; no discount, as {reason}" if reason else ""
        print(f"{file}: would be charged, {amount} SU to account {result['account']}{why}")
