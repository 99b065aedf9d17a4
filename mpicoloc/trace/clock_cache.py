"""Corrected clocks of large traces in the user's cache, as all messages are read to find them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os

import mpicoloc
from mpicoloc.trace.clocks import Alignment, Clock
from mpicoloc.trace.trace import Trace

MIN_EVENTS = 1 << 20
"""A smaller trace is read in less than a second."""
_VERSION = 1
"""Of how clocks are corrected."""


def load(trace: Trace) -> Alignment | None:
    """What `save` kept of the same trace, by the same clocks to begin with; None if there is nothing."""
    if trace.n_events < MIN_EVENTS:
        return None
    try:
        with open(_path(trace), encoding="utf-8") as file:
            found = json.load(file)
        clocks = tuple(
            Clock(**{name: tuple(numbers) for name, numbers in clock.items()})
            for clock in found.pop("clocks")
        )
        return Alignment(clocks, **found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def save(trace: Trace, found: Alignment) -> None:
    """Keep what was found of a trace if it is large; where the user has no place for it, nothing happens."""
    if trace.n_events < MIN_EVENTS:
        return
    path = _path(trace)
    part = f"{path}.{os.getpid()}.part"
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(found), file, default=lambda number: number.item())
        os.replace(part, path)


def _path(trace: Trace) -> str:
    """Named by all that the clocks are found from: the list of blocks has the checksum of each."""
    digest = hashlib.sha256(f"{mpicoloc.__version__} {_VERSION} {sorted(trace.incomplete)}".encode())
    for file, clock in zip(trace.files, trace.clocks, strict=True):
        digest.update(file.index.tobytes())
        digest.update(repr(clock).encode())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "mpicoloc", f"clocks-{digest.hexdigest()[:32]}.json")
