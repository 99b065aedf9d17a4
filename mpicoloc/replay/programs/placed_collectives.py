"""Collectives of a trace where they stand in the calls of their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.replay.programs.builder import Program
from mpicoloc.replay.programs.recorded import Deeds, RankCalls

Array = NDArray[Any]


@dataclass(frozen=True)
class PlacedCollective:
    """A collective in the calls of its members; arrays in their order.

    `is_blocking` is False if the calls only begin it.
    """

    members: Array
    i_call: Array
    begin_ns: Array
    is_blocking: bool
    blocks: Sequence[Program]


def add_collectives(
    deeds: Sequence[Deeds], calls: Sequence[RankCalls], collectives: Sequence[PlacedCollective]
) -> None:
    """Enter collectives into what the ranks do.

    What is only begun is done at one instant of the recorded run in all ranks, when the last has begun it:
    before each one's next call. A rank that was in a call then does it after that call's posts and before its
    waits; if the call was a collective that all had begun, after that.
    """
    all_begun_ns: list[dict[int, int]] = [{} for _ in calls]
    for call in collectives:
        if call.is_blocking:
            last_ns = int(call.begin_ns.max())
            for rank, i, block in zip(call.members.tolist(), call.i_call.tolist(), call.blocks, strict=True):
                deeds[rank].blocks[i].append(block)
                all_begun_ns[rank][i] = last_ns
    begun = [call for call in collectives if not call.is_blocking]
    for call in sorted(begun, key=lambda call: int(call.begin_ns.max())):
        at_ns = int(call.begin_ns.max())
        for rank, i, block in zip(call.members.tolist(), call.i_call.tolist(), call.blocks, strict=True):
            _add_at(deeds[rank], calls[rank], (i, at_ns), all_begun_ns[rank], block)


def _add_at(
    deeds: Deeds, calls: RankCalls, begun: tuple[int, int], all_begun_ns: Mapping[int, int], block: Program
) -> None:
    """Enter what was begun in a call and is done at an instant."""
    i_begun, at_ns = begun
    following = max(int(np.searchsorted(calls.begin_ns, at_ns)), i_begun + 1)
    current = following - 1
    is_inside = current > i_begun and calls.end_ns[current] > at_ns
    if is_inside and current not in all_begun_ns:
        deeds.blocks_between[current].append(block)
    elif is_inside and all_begun_ns[current] >= at_ns:
        deeds.blocks_before[current].append(block)
    elif following < len(calls):
        deeds.blocks_before[following].append(block)
    else:
        deeds.blocks[current].append(block)
