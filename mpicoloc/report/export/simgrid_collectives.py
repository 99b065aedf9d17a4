"""The collectives of a recording as actions of SimGrid, which knows those of all ranks only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.tables import text
from mpicoloc.errors import DataError
from mpicoloc.network.traffic import call_bytes
from mpicoloc.profile.recording.calls import Recording

Ints = NDArray[np.int64]
BYTE = 6
"""SimGrid's number of MPI_BYTE."""
_KNOWN = re.compile(
    r"MPI_I?(barrier|bcast|reduce|allreduce|alltoall[vw]?|gatherv?|scatterv?|allgatherv?"
    r"|reduce_scatter(_block)?)(_c)?",
    re.IGNORECASE,
)
_OTHERS = re.compile(
    r"MPI_I?((ex)?scan|neighbor_.*|.*(reduce|gather|scatter|alltoall|bcast|barrier).*_init)(_c)?",
    re.IGNORECASE,
)


class Collectives:
    """Which calls of a recording are collectives of all ranks, and the action of each.

    Attributes
    ----------
    notes : list of str
        What is left out, in words.

    Raises
    ------
    DataError
        If the ranks did not call the same ones in the same order, or one call before another had ended.
    """

    def __init__(self, recording: Recording) -> None:
        self.notes: list[str] = []
        kinds = [_KNOWN.fullmatch(name) for name in recording.names]
        partial = _of_parts(recording)
        self._names = [
            found[1].lower() if found and name not in partial else ""
            for name, found in zip(recording.names, kinds, strict=True)
        ]
        left_out = sorted({name for name in recording.names if name in partial or _OTHERS.fullmatch(name)})
        if left_out:
            self.notes.append(f"left out (not of all ranks, or unknown to SimGrid): {', '.join(left_out)}")
        self._roots = _roots(recording)
        rows = [self._rows(recording, rank) for rank in range(recording.n_ranks)]
        self._align(rows, recording)

    def _rows(self, recording: Recording, rank: int) -> Ints:
        """Number, function and bytes of each collective of a rank."""
        found, last_ns = [], 0
        for i, (begin_ns, end_ns, n_bytes, _, call) in enumerate(recording.in_order(rank)):
            if begin_ns < last_ns:
                raise DataError(_THREADS.format(rank))
            last_ns = end_ns
            if self._names[call]:
                found.append((i, call, n_bytes))
        return np.array(found, np.int64).reshape(-1, 3)

    def _align(self, rows: list[Ints], recording: Recording) -> None:
        n = min(map(len, rows))
        if n < max(map(len, rows)) and not (recording.is_cut or recording.profile.partial):
            raise DataError(_TROUBLE)
        # Of a trace that keeps the last calls, those that some rank has forgotten are first; of a job that
        # was killed, those that some rank never began are last.
        rows = [row[len(row) - n :] if recording.is_cut else row[:n] for row in rows]
        self._number = [row[:, 0] for row in rows]
        self._calls = rows[0][:, 1]
        if any((row[:, 1] != self._calls).any() for row in rows):
            raise DataError(_TROUBLE)
        self._bytes = np.stack([row[:, 2] for row in rows], axis=1)
        self._call_names = recording.names

    def of(self, rank: int) -> Mapping[int, str]:
        """Action of each collective of a rank, by the number of its call among the rank's."""
        return {
            int(number): self._action(int(call), self._bytes[i], rank)
            for i, (number, call) in enumerate(zip(self._number[rank], self._calls, strict=True))
        }

    def _action(self, call: int, n_bytes: Ints, rank: int) -> str:
        name = self._names[call]
        root = self._roots.get(self._call_names[call], -1)
        return _ACTIONS[re.sub(r"_block$|(?<=[rl])[vw]$", "", name)](n_bytes, root, rank)


_TROUBLE = (
    "the ranks do not call the same collectives in the same order: some are of parts of the ranks, which "
    "SimGrid's format does not know; export paraver or otf2"
)
_THREADS = "threads of rank {} call MPI at once, which SimGrid's format does not have; export paraver or otf2"


def _of_parts(recording: Recording) -> set[str]:
    """Functions that were called on less than all ranks."""
    groups, collectives = (recording.profile.tables[name] for name in ("groups", "collectives"))
    names, which = np.unique(groups["group"], return_inverse=True)
    n = np.bincount(which.ravel(), groups["n"], len(names)) if len(names) else np.zeros(0)
    whole = set(names[n == recording.n_ranks].tolist())
    return {text(row["call"]) for row in collectives if int(row["group"]) not in whole}


def _roots(recording: Recording) -> dict[str, int]:
    """Root of each function that always had the same."""
    found: dict[str, set[int]] = {}
    for row in recording.profile.tables["collectives"]:
        found.setdefault(text(row["call"]), set()).add(int(row["root"]))
    return {name: roots.pop() for name, roots in found.items() if len(roots) == 1}


def _barrier(n_bytes: Ints, root: int, rank: int) -> str:
    return "barrier"


def _bcast(n_bytes: Ints, root: int, rank: int) -> str:
    return f"bcast {n_bytes.max()} {max(root, 0)} {BYTE}"


def _reduce(n_bytes: Ints, root: int, rank: int) -> str:
    size, root = call_bytes.reduced(n_bytes, root)
    return f"reduce {size} 0 {root} {BYTE}"


def _allreduce(n_bytes: Ints, root: int, rank: int) -> str:
    return f"allreduce {n_bytes[rank] // 2} 0 {BYTE}"


def _alltoall(n_bytes: Ints, root: int, rank: int) -> str:
    """Parts of one size: of those of alltoallv only the sum is known."""
    part = call_bytes.exchanged_block_bytes(n_bytes)
    return f"alltoall {part} {part} {BYTE} {BYTE}"


def _gather(n_bytes: Ints, root: int, rank: int) -> str:
    parts, root = call_bytes.rooted_blocks(n_bytes, root)
    if _are_even(parts):
        return f"gather {parts[0]} {parts[0]} {root} {BYTE} {BYTE}"
    return f"gatherv {parts[rank]} {_words(parts)} {root} {BYTE} {BYTE}"


def _scatter(n_bytes: Ints, root: int, rank: int) -> str:
    parts, root = call_bytes.rooted_blocks(n_bytes, root)
    if _are_even(parts):
        return f"scatter {parts[0]} {parts[0]} {root} {BYTE} {BYTE}"
    return f"scatterv {_words(parts)} {parts[rank]} {root} {BYTE} {BYTE}"


def _allgather(n_bytes: Ints, root: int, rank: int) -> str:
    parts = call_bytes.own_blocks(n_bytes)
    if _are_even(parts):
        return f"allgather {parts[0]} {parts[0]} {BYTE} {BYTE}"
    return f"allgatherv {parts[rank]} {_words(parts)} {BYTE} {BYTE}"


def _reduce_scatter(n_bytes: Ints, root: int, rank: int) -> str:
    return f"reducescatter {_words(call_bytes.own_blocks(n_bytes))} 0 {BYTE}"


def _are_even(parts: Ints) -> bool:
    """Whether one number says it for all ranks, of which there may be thousands."""
    return bool((parts == parts[0]).all())


def _words(parts: Ints) -> str:
    return " ".join(map(str, parts.tolist()))


_ACTIONS: Mapping[str, Callable[[Ints, int, int], str]] = {
    "barrier": _barrier, "bcast": _bcast, "reduce": _reduce, "allreduce": _allreduce, "alltoall": _alltoall,
    "gather": _gather, "scatter": _scatter, "allgather": _allgather, "reduce_scatter": _reduce_scatter,
}  # fmt: skip
