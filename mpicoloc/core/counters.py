"""The events that a rank counts over its whole run: their names in Linux perf, and the kernel's numbers.

The C core's table is generated from this one (`config.c_table`). This module imports next to nothing, because
`config` checks names of events on every rank of a job, before the job starts.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from mpicoloc.core.record import NamedTuple


class Event(NamedTuple):
    """One event: its name, its type and number as C expressions of linux/perf_event.h, and what it counts.

    `is_hardware`: the event needs a PMU, is counted by default, and is a feature for slowdown models.
    """

    name: str
    type: str
    config: str
    meaning: str
    is_hardware: bool = True


def _hardware(name: str, number: str, meaning: str) -> Event:
    return Event(name, "PERF_TYPE_HARDWARE", f"PERF_COUNT_HW_{number}", meaning)


def _read_misses(name: str, cache: str, meaning: str) -> Event:
    what = f"PERF_COUNT_HW_CACHE_{cache}", "PERF_COUNT_HW_CACHE_OP_READ", "PERF_COUNT_HW_CACHE_RESULT_MISS"
    return Event(name, "PERF_TYPE_HW_CACHE", f"({what[0]} | {what[1]} << 8 | {what[2]} << 16)", meaning)


def _software(name: str, number: str, meaning: str) -> Event:
    return Event(name, "PERF_TYPE_SOFTWARE", f"PERF_COUNT_SW_{number}", meaning, is_hardware=False)


# The most useful events come first, because the first ones that are opened get the processor's counters.
EVENTS: tuple[Event, ...] = (
    _hardware("instructions", "INSTRUCTIONS", "instructions that were retired"),
    _hardware("cycles", "CPU_CYCLES", "processor cycles"),
    _hardware("cache-misses", "CACHE_MISSES", "accesses that missed the last cache (AMD: the second)"),
    _hardware("cache-references", "CACHE_REFERENCES", "accesses that came to that cache"),
    _hardware("branches", "BRANCH_INSTRUCTIONS", "branches that were retired"),
    _hardware("branch-misses", "BRANCH_MISSES", "branches that were predicted wrongly"),
    _read_misses("LLC-load-misses", "LL", "loads that missed the last cache"),
    _read_misses("L1-dcache-load-misses", "L1D", "loads that missed the first data cache"),
    _read_misses("dTLB-load-misses", "DTLB", "loads whose page was not in the TLB"),
    _hardware("stalled-cycles-backend", "STALLED_CYCLES_BACKEND", "cycles of waiting for memory or units"),
    _software("page-faults", "PAGE_FAULTS", "page faults"),
    _software("minor-faults", "PAGE_FAULTS_MIN", "page faults without a disk"),
    _software("major-faults", "PAGE_FAULTS_MAJ", "page faults that read from a disk"),
)  # fmt: skip
"""All events. Software events work without a PMU; the table of ranks has them in any case."""

LEAST_THREADS_FRAC = 0.9
"""Part of a process's time that must be of threads that were counted: earlier ones than MPI_Init are not."""


NAMES = tuple(event.name for event in EVENTS)


def is_choice(text: str) -> bool:
    """Whether a text is a value of ``--counters``: ``on``, ``off``, or events separated by commas."""
    return text in ("on", "off") or set(NAMES).issuperset(text.split(","))


def c_rows() -> list[str]:
    """Rows of the table for C, X(name, type, number, whether it is counted by default)."""
    return [f'X("{e.name}", {e.type}, {e.config}, {int(e.is_hardware)})' for e in EVENTS]
