"""Calls in pieces, and clocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import Table

Ints = NDArray[np.int64]
_LONGEST_NS = 1 << 61


@dataclass(frozen=True)
class Calls:
    """Calls of one track in their order. `call` is an index of names; `peer` -1: none, or unknown."""

    begin_ns: Ints
    end_ns: Ints
    bytes: Ints
    peer: Ints
    call: Ints

    def since(self, origin_ns: int) -> Calls:
        """The same, with times from an origin on."""
        return Calls(self.begin_ns - origin_ns, self.end_ns - origin_ns, self.bytes, self.peer, self.call)

    def rows(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Begin, end, bytes, peer and call of each."""
        columns = (self.begin_ns, self.end_ns, self.bytes, self.peer, self.call)
        return zip(*(column.tolist() for column in columns), strict=True)


def bounded(numbers: NDArray[Any]) -> Ints:
    """Numbers of any file as whole numbers of which sums do not overflow."""
    return np.minimum(numbers, np.uint64(_LONGEST_NS)).astype(np.int64)


def common(times_ns: NDArray[Any], offsets_ns: Ints) -> Ints:
    """Times of several clocks on one; what is beyond all reason is cut there."""
    return bounded(times_ns) - offsets_ns


def rank_offsets_ns(profile: Profile) -> Ints:
    """Clock of each rank's node against the first's; 0 where it is not known."""
    offsets_ns = np.zeros(profile.job.n_ranks, np.int64)
    ranks = profile.tables["ranks"]
    rows = ranks[(ranks["rank"] >= 0) & (ranks["rank"] < len(offsets_ns))]
    offsets_ns[rows["rank"]] = node_offsets_ns(profile, rows)
    return offsets_ns


def node_offsets_ns(profile: Profile, rows: Table) -> Ints:
    """Clock of the node of each of these rows against the first's; 0 where it is not known."""
    offsets_ns = np.append(np.nan_to_num(profile.tables["nodes"]["clock_offset_s"]) * 1e9, 0)
    is_known = (rows["i_node"] >= 0) & (rows["i_node"] < len(offsets_ns) - 1)
    found = offsets_ns[np.where(is_known, rows["i_node"], -1)]
    return np.rint(np.clip(found, -_LONGEST_NS, _LONGEST_NS)).astype(np.int64)
