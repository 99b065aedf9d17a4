"""Allocations: which nodes a job gets. One a file."""

from __future__ import annotations

from mpicoloc.batch.allocation import best_fit, exclusive, first_available, first_contiguous, virtual_blocks
from mpicoloc.batch.view import Allocation
from mpicoloc.errors import UsageError

ALLOCATIONS: dict[str, Allocation] = {
    module.ALLOCATION.name: module.ALLOCATION
    for module in (first_available, first_contiguous, exclusive, virtual_blocks, best_fit)
}
"""Allocations by name."""


def named(name: str) -> Allocation:
    """The allocation of a name.

    Raises `UsageError` if there is none.
    """
    if name not in ALLOCATIONS:
        raise UsageError(f"allocation {name!r} is unknown: give one of {', '.join(ALLOCATIONS)}")
    return ALLOCATIONS[name]
