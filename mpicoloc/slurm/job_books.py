"""What the steps of one job pay together: no CPU second of it twice."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from mpicoloc.core.step_record import StepRecord
from mpicoloc.ledger import ledger_job
from mpicoloc.ledger.ledger_job import JobCharge


@dataclass(frozen=True)
class Others:
    """CPU seconds of a step that others of its job pay.

    Those of a script: `by_step`, by its steps, and `by_hand`, by numbers of transactions. `overlap_cpu_s` are
    those in which the steps had more CPUs together than the job.
    """

    by_step: Mapping[str, float]
    by_hand: Mapping[str, float]
    overlap_cpu_s: float

    @property
    def cpu_s(self) -> float:
        """All of them."""
        return sum(self.by_step.values()) + sum(self.by_hand.values()) + self.overlap_cpu_s


@dataclass
class Load:
    """How many CPUs the steps of a job had together, over the job's own time, which stands still with it.

    ``n_cpus[i]`` of them from ``at_s[i]`` on.
    """

    at_s: list[float] = field(default_factory=list)
    n_cpus: list[int] = field(default_factory=list)

    def given_cpu_s(self, record: StepRecord, *, is_added: bool) -> float:
        """CPU seconds that a step had besides those here: at no time are they more CPUs than the job's."""
        if record.job_ran_s is None:
            return record.cpu_s
        most = math.inf if record.job_n_cpus is None else max(record.job_n_cpus, record.n_cpus)
        first, end = self._cut(record.job_ran_s - record.ran_s), self._cut(record.job_ran_s)
        given_cpu_s = 0.0
        for i in range(first, end):
            more = min(self.n_cpus[i] + record.n_cpus, most) - min(self.n_cpus[i], most)
            given_cpu_s += more * (self.at_s[i + 1] - self.at_s[i])
            if is_added:
                self.n_cpus[i] += record.n_cpus
        return given_cpu_s

    def _cut(self, at_s: float) -> int:
        """Index of the piece that begins then."""
        i = bisect.bisect_left(self.at_s, at_s)
        if i == len(self.at_s) or self.at_s[i] != at_s:
            self.at_s.insert(i, at_s)
            self.n_cpus.insert(i, self.n_cpus[i - 1] if i else 0)
        return i


@dataclass
class JobBooks:
    """What was charged of one run of a job.

    `n_turns` is of `ledger_job.JobCharges`, `by_hand` are charges of the job's number by hand of which no
    step is known; `paid_cpu_s` of each step but scripts; `open_cpu_s` were given to those, and nobody pays
    them, as a charge was given back that others overlap.
    """

    n_turns: int
    by_hand: list[JobCharge] = field(default_factory=list)
    paid_cpu_s: dict[str, float] = field(default_factory=dict)
    open_cpu_s: float = 0.0
    load: Load = field(default_factory=Load)

    def pays(self, record: StepRecord, cpu_s: float | None) -> None:
        """Take in the charge of a step; None: by hand, for all that it had."""
        if record.is_script or record.step in self.paid_cpu_s:
            return
        self.paid_cpu_s[record.step] = record.cpu_s if cpu_s is None else cpu_s
        given_cpu_s = self.load.given_cpu_s(record, is_added=True)
        if cpu_s is not None and record.job_ran_s is not None:
            self.open_cpu_s += given_cpu_s - cpu_s

    def others(self, record: StepRecord) -> Others:
        """What is left out of the charge of a step."""
        if record.is_script:
            by_step = {step: round(cpu_s, 3) for step, cpu_s in self.paid_cpu_s.items()}
            return Others(by_step, self._by_hand_cpu_s(record), 0.0)
        own_cpu_s = self.load.given_cpu_s(record, is_added=False)
        if record.job_ran_s is not None:
            own_cpu_s = min(max(own_cpu_s + self.open_cpu_s, 0.0), record.cpu_s)
        return Others({}, {}, round(record.cpu_s - own_cpu_s, 3))

    def _by_hand_cpu_s(self, script: StepRecord) -> dict[str, float]:
        """CPU seconds of a script's job that were charged by hand, no more than it had from then on."""
        end_s = script.step_start_unix_s + script.ran_s
        return {
            str(paid.transaction): round(
                min(paid.cpu_s, script.n_cpus * max(end_s - paid.start_unix_s, 0.0)), 3
            )
            for paid in self.by_hand
            if ledger_job.is_within(paid.start_unix_s, script)
        }
