"""From the ranks' threads: collectives, the groups they ran on, and the parts that ranks gave each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpicoloc.core.tables import Table, table

Lanes = Sequence[tuple[int, np.void]]


def _joined(name: str, pieces: Sequence[dict[str, Any]]) -> Table:
    tables = [table(name, piece) for piece in pieces]
    return np.concatenate(tables) if tables else table(name)


def collectives(lanes: Lanes, called: Callable[[int], bytes]) -> Table:
    """Collectives that have a row of their own; the others are in a counter of their rank."""
    pieces = []
    names = ("group", "to_group", "root", "own_rank", "size_class", "item_bytes", "n", "bytes", "own_bytes")
    for rank, lane in lanes:
        rows = lane["collectives"][1:]
        rows = rows[rows["n"] > 0]
        if len(rows):
            piece = {name: rows[name] for name in names}
            calls = np.array([called(int(call)) for call in rows["call"]])
            pieces.append({"rank": np.full(len(rows), rank), "call": calls, **piece})
    return _joined("collectives", pieces)


def parts(lanes: Lanes) -> Table:
    """Bytes that ranks gave each other in collectives with a part for each."""
    pieces = []
    for rank, lane in lanes:
        rows = lane["parts"]
        rows = rows[rows["n"] > 0]
        if len(rows):
            dst = np.where(rows["key"] == 0, -1, rows["peer"])
            pieces.append(
                {"src": np.full(len(rows), rank), "dst": dst, "n": rows["n"], "bytes": rows["bytes"]}
            )
    return _joined("parts", pieces)


def groups(segments: Sequence[np.void]) -> Table:
    """Runs of ranks of each group that has had room, in the order of its members."""
    pieces = []
    for segment in segments:
        members = segment["members"][: int(segment["n_members"])]
        for group, first, n_runs in members[(members["n_runs"] > 0) & (members["group"] != 0)]:
            runs = segment["runs"][int(first) : int(first) + int(n_runs)]
            piece = {name: runs[name] for name in ("first", "stride", "n")}
            pieces.append({"group": np.full(len(runs), group, dtype=np.uint64), **piece})
    return _once(_joined("groups", pieces))


def _once(runs: Table) -> Table:
    """A group is told by its first rank, but two threads of it may have told it."""
    kept = np.ones(len(runs), dtype=bool)
    # Without an index NumPy would import numpy.ma, for 10 ms at the end of every job.
    for group in np.unique(runs["group"], return_index=True)[0]:
        rows = np.flatnonzero(runs["group"] == group)
        half = len(rows) // 2
        if len(rows) % 2 == 0 and np.array_equal(runs[rows[:half]], runs[rows[half:]]):
            kept[rows[half:]] = False
    return runs[kept]
