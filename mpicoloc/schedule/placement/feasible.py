"""Whether jobs can be placed at all, and what is wrong where they cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mpicoloc.core.bubbles import JobRequest
from mpicoloc.errors import DataError, UsageError
from mpicoloc.schedule.placement.constraints import Constraints


def check(jobs: Sequence[JobRequest], n_nodes: int, n_slots: int, constraints: Constraints) -> None:
    """Refuse what no placement can keep.

    Raises
    ------
    DataError
        If the jobs do not fit.
    UsageError
        If nodes or slots are none, or constraints contradict each other or the jobs.
    """
    if n_nodes < 1 or n_slots < 1:
        raise UsageError(f"placing needs nodes and slots >= 1, got {n_nodes} and {n_slots}")
    if not jobs:
        raise UsageError("no job to place: give at least one")
    _check_room(jobs, n_nodes, n_slots)
    sizes = {job.id: job.n_nodes for job in jobs}
    _check_names(sizes, constraints)
    _check_apart(sizes, n_nodes, constraints)
    whole = set(constraints.whole)
    n_whole = sum(sizes[name] for name in whole)
    n_shared = math.ceil(sum(size for name, size in sizes.items() if name not in whole) / n_slots)
    largest = max((size for name, size in sizes.items() if name not in whole), default=0)
    if n_whole + max(n_shared, largest) > n_nodes:
        raise UsageError(
            f"whole nodes: jobs that have their nodes to themselves take {n_whole}, the others at least "
            f"{max(n_shared, largest)} more, and there are {n_nodes}: give more nodes, or share them"
        )


def _check_room(jobs: Sequence[JobRequest], n_nodes: int, n_slots: int) -> None:
    large = next((job for job in jobs if job.n_nodes > n_nodes), None)
    if large is not None:
        raise DataError(f"job {large.id!r} needs {large.n_nodes} nodes, there are {n_nodes}: give more nodes")
    n_needed = sum(job.n_nodes for job in jobs)
    if n_needed > n_nodes * n_slots:
        raise DataError(
            f"the jobs need {n_needed} slots, and {n_nodes} nodes with {n_slots} each have "
            f"{n_nodes * n_slots}: give more nodes or slots, or fewer jobs"
        )


def _check_names(sizes: dict[str, int], constraints: Constraints) -> None:
    named = [name for pair in constraints.apart for name in pair]
    named += [*constraints.at_most, *constraints.whole]
    unknown = next((name for name in named if name not in sizes), None)
    if unknown is not None:
        raise UsageError(f"constraints name job {unknown!r}, which is not among the jobs")
    for name, most in constraints.at_most.items():
        if not 1 <= most < math.inf:
            raise UsageError(f"job {name!r} may be slowed down by a factor from 1, got {most}")


def _check_apart(sizes: dict[str, int], n_nodes: int, constraints: Constraints) -> None:
    for one, other in constraints.apart:
        if one == other:
            raise UsageError(f"job {one!r} cannot be kept apart from itself")
        if sizes[one] + sizes[other] > n_nodes:
            raise UsageError(
                f"jobs {one!r} and {other!r} cannot be kept apart: they need {sizes[one]} and {sizes[other]} "
                f"nodes, and there are {n_nodes}"
            )
