"""What was decided for a job, as it stands at the job."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mpicoloc.core.batch_system import BatchJob

_TEXT = re.compile(
    r"mpicoloc share ([0-9]+(?:\+[0-9]+)?) on (\S+) limit ([0-9]+)"
    r"(?: after ([0-9:]+))?(?: since ([0-9]+))?(?: \{.*)?"
)


@dataclass(frozen=True)
class Assignment:
    """A leader that is to have its nodes in the queue for sharing; or a leader, and the job that joins it."""

    jobs: tuple[int, ...]
    nodes: tuple[str, ...]

    @property
    def job(self) -> int:
        """The job that is told."""
        return self.jobs[-1]

    def text(self, limit_s: float, after: Sequence[int] = (), since_s: float | None = None) -> str:
        """What stands at that job: its own time limit, the jobs that it was told to wait for, and when."""
        minutes = round(limit_s / 60) if math.isfinite(limit_s) else 0
        said = f"mpicoloc share {'+'.join(map(str, self.jobs))} on {','.join(self.nodes)} limit {minutes}"
        said += f" after {':'.join(map(str, after))}" if after else ""
        return said if since_s is None else f"{said} since {round(since_s)}"


def assignment_of(job: BatchJob) -> tuple[Assignment, float] | None:
    """What was decided for a job, and its own time limit, s; None: nothing."""
    found = _TEXT.fullmatch(job.admin_comment)
    if found is None:
        return None
    minutes = int(found[3])
    jobs = tuple(int(word) for word in found[1].split("+"))
    if jobs[-1] != job.id:
        return None
    return Assignment(jobs, tuple(found[2].split(","))), 60.0 * minutes if minutes else math.inf


def assigned_at_s(job: BatchJob) -> float:
    """When it was decided for a job, s since 1970; infinite: nothing tells."""
    found = _TEXT.fullmatch(job.admin_comment)
    return float(found[5]) if found and found[5] else math.inf


def own_limit_s(job: BatchJob) -> float:
    """Its time limit without what it was given for sharing, s; never more than it has."""
    told = assignment_of(job)
    # What stands at a job may be somebody else's doing.
    return job.limit_s if told is None else min(told[1], job.limit_s)


def waits_as_assigned(job: BatchJob) -> bool:
    """Whether it waits for no other jobs than those that it was told to wait for."""
    found = _TEXT.fullmatch(job.admin_comment)
    after = found[4] if found else None
    return not job.is_chained and set(job.waits_for) <= {
        int(word) for word in (after or "").split(":") if word
    }
