"""Exact sums over long tables: by function, call site, message size, region, event."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Array, Table

_WORD_BYTES = 8
_OF_CALLS = ("n", "n_timed", "sent_bytes", "recv_bytes", "time_ns")


def groups(*columns: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Group rows that are equal in all of these columns.

    Shapes: `order` (n_rows,) sorts rows by group, `start` (n_groups,) has the position in `order` at which
    each group begins.
    """
    group = np.zeros(len(columns[0]), np.intp)
    for column in columns:
        for word in _words(column):
            # Skip words that are the same in all rows, as most words of texts are.
            if len(word) and (word != word[0]).any():
                values, place = np.unique(word, return_inverse=True)
                group = np.unique(group * len(values) + place, return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    start = np.flatnonzero(np.diff(group[order], prepend=-1))
    return order, start


def _words(column: Array) -> list[Array]:
    """Texts as columns of 64-bit integers. The integers have the same order and compare much faster."""
    if column.dtype.kind != "S":
        return [column]
    size = -(-max(column.dtype.itemsize, 1) // _WORD_BYTES) * _WORD_BYTES
    padded = np.ascontiguousarray(column.astype(f"S{size}"))
    return list(padded.view(">u8").reshape(len(column), size // _WORD_BYTES).T.astype(np.uint64))


def by_function(sites: Table) -> Table:
    """Call sites by MPI function, as rows of `call_sites`."""
    return _added(sites, (sites["call"],), _OF_CALLS, ("max_ns",), by="time_ns")


def by_site(sites: Table) -> Table:
    """Call sites by function and place in the program, over all ranks and threads; `i_site` 0: overflow."""
    keys = (sites["call"], sites["i_site"] == 0, sites["i_module"], sites["offset"])
    return _added(sites, keys, _OF_CALLS, ("max_ns",), by="time_ns")


def by_size(peers: Table) -> Table:
    """Messages by size class, over all pairs of ranks."""
    sent = peers[peers["n"] > 0]
    return _added(sent, (sent["size_class"],), ("n", "bytes"))


def by_region(regions: Table) -> Table:
    """Regions by name, over all ranks and threads."""
    return _added(regions, (regions["name"],), ("n", "time_ns", "mpi_ns"), by="time_ns")


def by_event(counters: Table) -> Table:
    """Counts by event, over all ranks, largest first; NaN if an event was never counted on some rank."""
    return _added(counters, (counters["event"],), ("value", "enabled_s", "running_s", "cpu_s"), by="value")


def _added(
    table: Table, keys: Sequence[Array], names: Sequence[str], most: Sequence[str] = (), by: str = ""
) -> Table:
    """One row for each group: sums of columns `names`, maxima of `most`; sorted by `by`, descending."""
    order, start = groups(*keys)
    found = table[order[start]]
    for add, columns in ((np.add, names), (np.maximum, most)):
        for name in columns if len(start) else ():
            # Keeps the column's type, whereas numpy.bincount would convert integers to floats.
            found[name] = add.reduceat(table[name][order], start)
    return found[np.argsort(-found[by].astype(float), kind="stable")] if by else found
