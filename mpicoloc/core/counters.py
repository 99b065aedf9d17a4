"""Events that a rank can count over its whole run: their names in perf, and the kernel's types and numbers.

`config.c_table` generates the C core's table from this one. This module imports next to nothing, because
`config` checks event names on every rank before the job starts.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from mpicoloc.core.record import NamedTuple


class Event(NamedTuple):
    """One event: its name, its type and number as C expressions of linux/perf_event.h, and its meaning.

    `is_usual`: the event is counted by default and has a meaning. `is_hardware`: it needs a PMU and is a
    feature for slowdown models.
    """

    name: str
    type: str
    config: str
    meaning: str
    is_usual: bool = True
    is_hardware: bool = True


def _hardware(name: str, number: str, meaning: str = "") -> Event:
    return Event(name, "PERF_TYPE_HARDWARE", f"PERF_COUNT_HW_{number}", meaning, bool(meaning))


_OPERATIONS = {"load": "READ", "store": "WRITE", "prefetch": "PREFETCH"}
_CACHES = {
    "L1-dcache": ("L1D", ("load", "store", "prefetch")),
    "L1-icache": ("L1I", ("load", "prefetch")),
    "LLC": ("LL", ("load", "store", "prefetch")),
    "dTLB": ("DTLB", ("load", "store", "prefetch")),
    "iTLB": ("ITLB", ("load",)),
    "branch": ("BPU", ("load",)),
    "node": ("NODE", ("load", "store", "prefetch")),
}
"""For each cache, by its name in perf: the kernel's name, and the operations that perf counts."""


def _of_cache(cache: str, operation: str, result: str, meaning: str = "") -> Event:
    """A cache event, whose name in perf consists of the cache, the operation and the result."""
    ending = "-misses" if result == "MISS" else "es" if operation == "prefetch" else "s"
    parts = _CACHES[cache][0], f"OP_{_OPERATIONS[operation]}", f"RESULT_{result}"
    config = " | ".join(f"PERF_COUNT_HW_CACHE_{part} << {8 * i}" for i, part in enumerate(parts))
    return Event(f"{cache}-{operation}{ending}", "PERF_TYPE_HW_CACHE", config, meaning, bool(meaning))


def _software(name: str, number: str, meaning: str) -> Event:
    what = f"PERF_COUNT_SW_{number}"
    return Event(name, "PERF_TYPE_SOFTWARE", what, meaning, is_usual=False, is_hardware=False)


# The most useful events come first, because hardware counters go to the events that are opened first.
_USUAL: tuple[Event, ...] = (
    _hardware("instructions", "INSTRUCTIONS", "instructions that were retired"),
    _hardware("cycles", "CPU_CYCLES", "processor cycles"),
    _hardware("cache-misses", "CACHE_MISSES", "accesses that missed the last cache (AMD: the second)"),
    _hardware("cache-references", "CACHE_REFERENCES", "accesses that came to that cache"),
    _hardware("branches", "BRANCH_INSTRUCTIONS", "branches that were retired"),
    _hardware("branch-misses", "BRANCH_MISSES", "branches that were predicted wrongly"),
    _of_cache("LLC", "load", "MISS", "loads that missed the last cache"),
    _of_cache("L1-dcache", "load", "MISS", "loads that missed the first data cache"),
    _of_cache("dTLB", "load", "MISS", "loads whose page was not in the TLB"),
    _hardware("stalled-cycles-backend", "STALLED_CYCLES_BACKEND", "cycles of waiting for memory or units"),
)  # fmt: skip
_MORE = (
    _hardware("stalled-cycles-frontend", "STALLED_CYCLES_FRONTEND"),
    *(_of_cache(cache, operation, result) for cache, (_, operations) in _CACHES.items()
      for operation in operations for result in ("ACCESS", "MISS")),
    _software("page-faults", "PAGE_FAULTS", "page faults"),
    _software("minor-faults", "PAGE_FAULTS_MIN", "page faults without a disk"),
    _software("major-faults", "PAGE_FAULTS_MAJ", "page faults that read from a disk"),
)  # fmt: skip
EVENTS = (*_USUAL, *(event for event in _MORE if event.name not in {usual.name for usual in _USUAL}))
"""All named events. Software events work without a PMU; the table `ranks` always has their counts."""

MOST = 16
"""Most events that a rank can count (MC_N_PMU of mpicoloc.h)."""
LEAST_THREADS_FRAC = 0.9
"""Threads created before MPI_Init are not counted, so counts are used only if the counted threads have at
least this fraction of the process's time."""

NAMES = tuple(event.name for event in EVENTS)
SOFTWARE = frozenset(event.name for event in EVENTS if not event.is_hardware)
CHOICES = "on", "off", f"up to {MOST} events as perf names them, like LLC-loads,r01c2"
"""The values that `is_choice` accepts, in words."""
_HEX = frozenset("0123456789abcdefABCDEF")


def _is_raw(word: str) -> bool:
    """Whether a word is a raw event code of perf: r and up to 16 hexadecimal digits."""
    return word[:1] == "r" and 1 < len(word) <= 17 and _HEX.issuperset(word[1:])


def is_choice(text: str) -> bool:
    """Whether a text is a value of ``--counters``: ``on``, ``off``, or events separated by commas."""
    words = text.split(",")
    return text in ("on", "off") or (len(words) <= MOST and all(w in NAMES or _is_raw(w) for w in words))


def c_rows() -> list[str]:
    """Rows of the table for C: X(name, type, number, whether the event is counted by default)."""
    return [f'X("{e.name}", {e.type}, {e.config}, {int(e.is_usual)})' for e in EVENTS]
