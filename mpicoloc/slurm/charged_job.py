"""Charges of the steps of one job: no CPU second is charged twice."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from mpicoloc.bill import job_charges
from mpicoloc.bill.job_charges import JobCharge
from mpicoloc.core.step_record import StepRecord


@dataclass(frozen=True)
class PaidByOthers:
    """CPU seconds of a step that others of its job pay.

    For a script: `by_step` for each of its steps, `by_hand` for each transaction. `overlap_cpu_s`: times at
    which the steps together had more CPUs than the job.
    """

    by_step: Mapping[str, float]
    by_hand: Mapping[str, float]
    overlap_cpu_s: float

    @property
    def cpu_s(self) -> float:
        """Sum of all."""
        return sum(self.by_step.values()) + sum(self.by_hand.values()) + self.overlap_cpu_s


@dataclass
class CpuTimeline:
    """Number of CPUs of all steps of a job over the job's own time, which stops while the job is suspended.

    ``n_cpus[i]`` CPUs from ``at_s[i]`` on.
    """

    at_s: list[float] = field(default_factory=list)
    n_cpus: list[int] = field(default_factory=list)

    def given_cpu_s(self, record: StepRecord, *, is_added: bool) -> float:
        """CPU seconds that a step adds to these; at no time do all steps have more CPUs than the job."""
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
        """Index of the interval that begins at this time; it is made if there is none."""
        i = bisect.bisect_left(self.at_s, at_s)
        if i == len(self.at_s) or self.at_s[i] != at_s:
            self.at_s.insert(i, at_s)
            self.n_cpus.insert(i, self.n_cpus[i - 1] if i else 0)
        return i


@dataclass
class ChargedJob:
    """Charges of one run of a job.

    `n_turns` is of `ledger_job.JobCharges`. `by_hand` has charges by hand of the job's number without a known
    step. `paid_cpu_s` is for each step but scripts. `unpaid_cpu_s` were used by those steps and nobody has
    paid them, because a charge that overlaps others was refunded.
    """

    n_turns: int
    by_hand: list[JobCharge] = field(default_factory=list)
    paid_cpu_s: dict[str, float] = field(default_factory=dict)
    unpaid_cpu_s: float = 0.0
    load: CpuTimeline = field(default_factory=CpuTimeline)

    def add_charge(self, record: StepRecord, cpu_s: float | None) -> None:
        """Add the charge of a step; `cpu_s` None: a charge by hand for all of its CPU seconds."""
        if record.is_script or record.step in self.paid_cpu_s:
            return
        self.paid_cpu_s[record.step] = record.cpu_s if cpu_s is None else cpu_s
        given_cpu_s = self.load.given_cpu_s(record, is_added=True)
        if cpu_s is not None and record.job_ran_s is not None:
            self.unpaid_cpu_s += given_cpu_s - cpu_s

    def paid_by_others(self, record: StepRecord) -> PaidByOthers:
        """CPU seconds that the charge of a step leaves out."""
        if record.is_script:
            by_step = {step: round(cpu_s, 3) for step, cpu_s in self.paid_cpu_s.items()}
            return PaidByOthers(by_step, self._by_hand_cpu_s(record), 0.0)
        own_cpu_s = self.load.given_cpu_s(record, is_added=False)
        if record.job_ran_s is not None:
            own_cpu_s = min(max(own_cpu_s + self.unpaid_cpu_s, 0.0), record.cpu_s)
        return PaidByOthers({}, {}, round(record.cpu_s - own_cpu_s, 3))

    def _by_hand_cpu_s(self, script: StepRecord) -> dict[str, float]:
        """CPU seconds of a script's job charged by hand, each at most what the job had from that run on."""
        end_s = script.step_start_unix_s + script.ran_s
        return {
            str(paid.transaction): round(
                min(paid.cpu_s, script.n_cpus * max(end_s - paid.start_unix_s, 0.0)), 3
            )
            for paid in self.by_hand
            if job_charges.is_within(paid.start_unix_s, script)
        }
