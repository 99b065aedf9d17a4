"""Clocks of a trace's nodes, corrected by its own messages."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

import mpicoloc
from mpicoloc.core.arrays import Array, Ints
from mpicoloc.core.progress import stage
from mpicoloc.errors import EnvironmentFault
from mpicoloc.show import outputs
from mpicoloc.trace.clocks import Alignment, Clock, align, in_order
from mpicoloc.trace.reader import MESSAGES, Trace

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
    with contextlib.suppress(OSError, EnvironmentFault):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with outputs.text_file(path) as file:
            json.dump(dataclasses.asdict(found), file, default=lambda number: number.item())


def _path(trace: Trace) -> str:
    """Named by all that the clocks are found from: the list of blocks has the checksum of each."""
    digest = hashlib.sha256(f"{mpicoloc.__version__} {_VERSION} {sorted(trace.incomplete)}".encode())
    for file, clock in zip(trace.files, trace.clocks, strict=True):
        digest.update(file.index.tobytes())
        digest.update(repr(clock).encode())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "mpicoloc", f"clocks-{digest.hexdigest()[:32]}.json")


_SENT, _RECEIVED = MESSAGES.index("sent"), MESSAGES.index("received")
Ends = Mapping[tuple[int, int], Array]
"""By sender and receiver."""
MAX_MESSAGES = 1 << 29
"""Sends and receives between nodes that are looked at to correct clocks: 4 GiB of their times."""


class _TooManyError(Exception):
    """There are more than `MAX_MESSAGES`."""


def aligned(trace: Trace) -> Trace:
    """The same trace by clocks by which no message is received before it is sent.

    All messages between nodes are read for it, 16 bytes of memory each; of a large trace the first time only.
    A trace of one node, or of more than `MAX_MESSAGES`, stays as it is.

    Result: its `alignment` tells what was corrected; a note says if some messages are early even so. Raises
    `DataError` if a file is damaged.
    """
    if len(trace.files) < 2:
        return trace
    found = load(trace)
    if found is None:
        try:
            messages = _between_nodes(trace)
        except _TooManyError:
            note = f"more than {MAX_MESSAGES:,} messages between nodes: the clocks are not corrected by them"
            return replace(trace, notes=(*trace.notes, note))
        with stage("aligning the nodes' clocks"):
            found = align(trace.clocks, messages)
        save(trace, found)
    notes = trace.notes
    if found.n_after:
        early = f"{found.n_after:,} of {found.n_messages:,} messages between nodes"
        notes += (f"{early} are received up to {found.worst_after_ns * 1e-9:.2g} s before they are sent",)
    return replace(trace, clocks=found.clocks, alignment=found, notes=notes)


def _between_nodes(trace: Trace) -> dict[tuple[int, int], tuple[Array, Array]]:
    nodes_of = _Nodes(trace)
    with stage("reading messages between nodes", trace.n_events, "events"):
        sends, receives = _ends(trace, nodes_of)
    found: dict[tuple[int, int], list[tuple[Array, Array]]] = {}
    for (src, dst), begins in sends.items():
        # Of a rank whose sends are not all known, nobody knows which one a receive can be.
        if (src, dst) in receives and src not in trace.incomplete:
            i_src, i_dst = nodes_of.of(np.array([src, dst])).tolist()
            found.setdefault((i_src, i_dst), []).append(in_order(begins, receives[src, dst]))
    return {
        nodes: (np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs]))
        for nodes, pairs in found.items()
    }


class _Nodes:
    """File of each rank; -1 of those that have none."""

    def __init__(self, trace: Trace) -> None:
        # No array as long as the highest number: that is what the file says.
        ranks = [np.unique(file.index["rank"]) for file in trace.files]
        found, first = np.unique(np.concatenate(ranks), return_index=True)
        self._ranks = found
        self._nodes = np.repeat(np.arange(len(ranks)), [len(of_file) for of_file in ranks])[first]

    def of(self, ranks: Array) -> Ints:
        """The files of these ranks."""
        if not len(self._ranks):
            return np.full(len(ranks), -1)
        place = np.minimum(np.searchsorted(self._ranks, ranks), len(self._ranks) - 1)
        return np.where(self._ranks[place] == ranks, self._nodes[place], -1)


def _ends(trace: Trace, nodes_of: _Nodes) -> tuple[Ends, Ends]:
    """Begins of sends and ends of receives of the messages between nodes, by the nodes' own clocks."""
    sends: dict[tuple[int, int], list[Array]] = {}
    receives: dict[tuple[int, int], list[Array]] = {}
    n_ends = 0
    for i in range(len(trace.files)):
        for arrays in trace.messages_of(i, Clock.same()):
            node = nodes_of.of(arrays["peer"])
            is_between = (node >= 0) & (node != i)
            if not is_between.any():
                continue
            n_ends += int(is_between.sum())
            if n_ends > MAX_MESSAGES:
                raise _TooManyError
            rank = int(arrays["rank"][0])
            for message, column in ((_SENT, "begin_ns"), (_RECEIVED, "end_ns")):
                is_chosen = is_between & (arrays["message"] == message)
                for peer in np.unique(arrays["peer"][is_chosen]).tolist():
                    values = arrays[column][is_chosen & (arrays["peer"] == peer)]
                    if message == _SENT:
                        sends.setdefault((rank, peer), []).append(values)
                    else:
                        receives.setdefault((peer, rank), []).append(values)
    joined = ({pair: np.concatenate(parts) for pair, parts in side.items()} for side in (sends, receives))
    return next(joined), next(joined)
