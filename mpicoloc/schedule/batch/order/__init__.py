"""Orders of the queue: which job begins next. One a file."""

from __future__ import annotations

from mpicoloc.errors import UsageError
from mpicoloc.schedule.batch.order import conservative, easy, fcfs
from mpicoloc.schedule.batch.order.priority import Priority
from mpicoloc.schedule.batch.view import Order

ORDERS: dict[str, Order] = {
    "fcfs": fcfs.next_job,
    "easy": easy.next_job,
    "conservative": conservative.next_job,
    "priority": Priority(),
}
"""Orders by name."""


def named(name: str) -> Order:
    """The order of a name.

    Raises
    ------
    UsageError
        If there is none.
    """
    if name not in ORDERS:
        raise UsageError(f"order {name!r} is unknown: give one of {', '.join(ORDERS)}")
    return ORDERS[name]
