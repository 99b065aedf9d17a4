"""Messages of a trace: the one that stands in an event, and those that come as events before it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.trace.node_file import CALL, LANE_SHIFT, MESSAGE, ONE_SIDED, RECEIVED, SENT, Events

Arrays = dict[str, NDArray[Any]]
MESSAGES = ("", "sent", "received", "put", "got")
"""What the peer of an event is."""


def message_of(call: NDArray[np.uint16]) -> NDArray[np.int8]:
    """Row of `MESSAGES`."""
    kind = np.where(call & SENT, 1, np.where(call & RECEIVED, 2, 0))
    return (kind + np.where((kind > 0) & (call & ONE_SIDED != 0), 2, 0)).astype(np.int8)


def fields_of(events: Events) -> Arrays:
    """What is asked of events below, row by row."""
    kinds = events.kinds
    return {
        "t_ns": events.t_ns, "duration_ns": events.duration_ns, "bytes": events.bytes,
        "peer": kinds["peer"][events.kind], "call": kinds["call"][events.kind],
        "lane": (kinds["i_site"] >> LANE_SHIFT)[events.kind],
    }  # fmt: skip


def after(rest: Arrays, fields: Arrays) -> Arrays:
    """The rest of a block, and the next one behind it."""
    return {name: np.concatenate([rest[name], array]) for name, array in fields.items()}


def whole_calls(fields: Arrays) -> tuple[Arrays, Arrays]:
    """Lane after lane, each message with its call (`i_call`); and messages whose call comes later."""
    order = np.argsort(fields["lane"], kind="stable")
    fields = {name: array[order] for name, array in fields.items()}
    is_call = fields["call"] & MESSAGE == 0
    places = np.flatnonzero(is_call)
    next_call = np.searchsorted(places, np.arange(len(is_call)))
    has_call = next_call < len(places)
    i_call = places[next_call[has_call]]
    has_call[np.flatnonzero(has_call)] = fields["lane"][i_call] == fields["lane"][has_call]
    rest = {name: array[~has_call] for name, array in fields.items()}
    whole = {name: array[has_call] for name, array in fields.items()}
    whole["i_call"] = np.searchsorted(
        np.flatnonzero(whole["call"] & MESSAGE == 0), np.arange(int(has_call.sum()))
    )
    return whole, rest


def messages_in(fields: Arrays) -> Arrays:
    """The messages of what `whole_calls` gave first."""
    is_call = fields["call"] & MESSAGE == 0
    i_call = fields["i_call"]
    # A call's bytes are those of all of its messages; the first one stands in the call itself.
    n_bytes = fields["bytes"].astype(np.int64)
    calls = np.flatnonzero(is_call)
    others = np.bincount(i_call[~is_call], n_bytes[~is_call], len(calls)).astype(np.int64)
    n_bytes[calls] = np.maximum(n_bytes[calls] - others, 0)
    has_message = fields["call"] & (SENT | RECEIVED) != 0
    owner = calls[i_call]
    end_ns = fields["t_ns"] + fields["duration_ns"]
    return {
        "peer": fields["peer"][has_message],
        "message": message_of(fields["call"])[has_message],
        "bytes": n_bytes[has_message],
        "begin_ns": fields["t_ns"][owner][has_message],
        "end_ns": end_ns[owner][has_message],
        "call": (fields["call"] & CALL)[has_message],
    }
