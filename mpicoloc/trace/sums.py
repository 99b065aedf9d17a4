"""Long tables added up: by function, by call site, by size of messages, by region, by event. Exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Array, Table

_WORD_BYTES = 8
_OF_CALLS = ("n", "n_timed", "sent_bytes", "recv_bytes", "time_ns")


def groups(*columns: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows that are equal in all of these columns.

    Shapes: `order` (n_rows,), `start` (n_groups,).
    """
    group = np.zeros(len(columns[0]), np.intp)
    for column in columns:
        for word in _words(column):
            # Most words of texts are the same in all rows.
            if len(word) and (word != word[0]).any():
                values, place = np.unique(word, return_inverse=True)
                group = np.unique(group * len(values) + place, return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    start = np.flatnonzero(np.diff(group[order], prepend=-1))
    return order, start


def _words(column: Array) -> list[Array]:
    """Texts as whole numbers of the same order, which are compared much faster."""
    if column.dtype.kind != "S":
        return [column]
    size = -(-max(column.dtype.itemsize, 1) // _WORD_BYTES) * _WORD_BYTES
    padded = np.ascontiguousarray(column.astype(f"S{size}"))
    return list(padded.view(">u8").reshape(len(column), size // _WORD_BYTES).T.astype(np.uint64))


def by_function(sites: Table) -> Table:
    """Call sites by MPI function, as rows of `call_sites`."""
    return _added(sites, (sites["call"],), _OF_CALLS, ("max_ns",), by="time_ns")


def by_site(sites: Table) -> Table:
    """Call sites by function and place in the program, of all ranks and threads; `i_site` 0: others."""
    keys = (sites["call"], sites["i_site"] == 0, sites["i_module"], sites["offset"])
    return _added(sites, keys, _OF_CALLS, ("max_ns",), by="time_ns")


def by_size(peers: Table) -> Table:
    """Messages by size class, of all pairs of ranks."""
    sent = peers[peers["n"] > 0]
    return _added(sent, (sent["size_class"],), ("n", "bytes"))


def by_region(regions: Table) -> Table:
    """Regions by name, of all ranks and threads."""
    return _added(regions, (regions["name"],), ("n", "time_ns", "mpi_ns"), by="time_ns")


def by_event(counters: Table) -> Table:
    """Counts by event, of all ranks, the most frequent first; NaN of one that was never counted on a rank."""
    return _added(counters, (counters["event"],), ("value", "enabled_s", "running_s", "cpu_s"), by="value")


def _added(
    table: Table, keys: Sequence[Array], names: Sequence[str], most: Sequence[str] = (), by: str = ""
) -> Table:
    """One row for each group: sums of `names`, the largest of `most`; by a column, the largest first."""
    order, start = groups(*keys)
    found = table[order[start]]
    for add, columns in ((np.add, names), (np.maximum, most)):
        for name in columns if len(start) else ():
            # Of its own kind: numpy.bincount would make floats of whole numbers.
            found[name] = add.reduceat(table[name][order], start)
    return found[np.argsort(-found[by].astype(float), kind="stable")] if by else found
