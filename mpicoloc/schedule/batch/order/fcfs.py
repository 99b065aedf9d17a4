"""First come, first served."""

from __future__ import annotations

from mpicoloc.schedule.batch.view import View


def next_job(view: View) -> int | None:
    """The first job of the queue, if it finds nodes; nobody overtakes."""
    return 0 if view.can_start(0) else None
