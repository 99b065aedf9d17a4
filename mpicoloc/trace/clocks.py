"""Offsets of the nodes' clocks from a common clock, and their correction by messages.

Every node has its own clock; two clocks differ by an offset that changes slowly. Each message gives a bound,
because by the common clock it was not received before it was sent. Messages in both directions bound the
offset from both sides. The offset is taken as the straight line between these bounds with the largest
distance to them (Duda et al. 1987, "Estimating global time in distributed systems"). If no line satisfies all
bounds, a controlled logical clock does the rest (Rabenseifner 1997, "The controlled logical clock"): where a
message would still arrive too early, the receiver's clock is advanced, and then falls back slowly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc.core.profile import Array, Ints

DRIFT = 2e-4
"""Upper bound of the drift between the clocks of two computers, s per s."""
DECAY = 1e-5
"""After an advance, a clock runs slower by this amount, s per s, until the advance is gone."""
MAX_PASSES = 200

Messages = Mapping[tuple[int, int], tuple[Array, Array]]
"""Keys: sending and receiving node. Values: begins of the sends by the sender's clock, and ends of the
receives by the receiver's clock, ns."""


@dataclass(frozen=True)
class Clock:
    """A node's clock: at `t_ns` it is `offset_ns` ahead of the common clock; between these times, the offset
    is linear.

    From each `step_t_ns` on, all advances together are at least `step_ns`, which decays.
    """

    t_ns: tuple[int, ...]
    offset_ns: tuple[float, ...]
    step_t_ns: tuple[int, ...] = ()
    step_ns: tuple[float, ...] = ()

    @classmethod
    def same(cls) -> Clock:
        """The common clock."""
        return cls.shifted(0)

    @classmethod
    def shifted(cls, offset_ns: float) -> Clock:
        """A clock with a constant offset."""
        return cls((0,), (offset_ns,))

    @property
    def is_even(self) -> bool:
        """Whether it always runs as fast as the common clock."""
        return len(self.t_ns) == 1 and not self.step_t_ns

    def to_common(self, t_ns: Array) -> Ints:
        """Times by this clock as times by the common one, ns."""
        t = t_ns.astype(np.int64, copy=False)
        if len(self.t_ns) == 1:
            offset = round(self.offset_ns[0])
            common = t - offset if offset else t
        else:
            # Relative to the first knot, so that floats lose no precision.
            knots = np.array(self.t_ns) - self.t_ns[0]
            offsets = np.interp(t - self.t_ns[0], knots, np.array(self.offset_ns))
            common = t - np.rint(offsets).astype(np.int64)
        return common + _forward(self, t) if self.step_t_ns else common


def _forward(clock: Clock, t: Ints) -> Ints:
    """The time by which the clock is advanced at these times, ns."""
    base = clock.step_t_ns[0]
    begins = np.array(clock.step_t_ns) - base
    reach = np.maximum.accumulate(np.array(clock.step_ns) + DECAY * begins)
    last = np.searchsorted(begins, t - base, side="right") - 1
    left = reach[np.maximum(last, 0)] - DECAY * (t - base)
    return np.where(last >= 0, np.ceil(np.maximum(left, 0.0)), 0.0).astype(np.int64)


@dataclass(frozen=True)
class Alignment:
    """Corrected clocks, and how many of the `n_messages` arrive too early by the old and the new clocks.

    `worst_before_ns` and `worst_after_ns` are the largest such errors.
    """

    clocks: tuple[Clock, ...]
    n_messages: int
    n_before: int
    worst_before_ns: int
    n_after: int
    worst_after_ns: int


def align(clocks: Sequence[Clock], messages: Messages) -> Alignment:
    """Correct clocks so that no message is received before it is sent.

    Duda et al. 1987 and Rabenseifner 1997; see the module.
    """
    n_before, worst_before_ns = _early(clocks, messages)
    found = _put_forward(_lines(list(clocks), messages), messages)
    n_after, worst_after_ns = _early(found, messages)
    n_messages = sum(len(sends) for sends, _ in messages.values())
    return Alignment(tuple(found), n_messages, n_before, worst_before_ns, n_after, worst_after_ns)


def in_order(send_ns: Array, receive_ns: Array) -> tuple[Array, Array]:
    """Pair sends from one rank to another with receives there, so that each pair bounds the clocks.

    It is unknown which receive belongs to which send, but the i-th receive in order of time ended after the
    i-th send began, because as many messages were sent by then. Only the last sends may be missing; any
    receives may be missing.
    """
    n = min(len(send_ns), len(receive_ns))
    return np.sort(send_ns)[:n], np.sort(receive_ns)[:n]


def _early(clocks: Sequence[Clock], messages: Messages) -> tuple[int, int]:
    n, worst_ns = 0, 0
    for (src, dst), (sends, receives) in messages.items():
        early = clocks[src].to_common(sends) - clocks[dst].to_common(receives)
        n += int((early > 0).sum())
        worst_ns = max(worst_ns, int(early.max(initial=0)))
    return n, worst_ns


def _lines(clocks: list[Clock], messages: Messages) -> list[Clock]:
    """Fit the clocks node by node. The next node is always the one with most messages to the nodes done."""
    placed, left = [0], list(range(1, len(clocks)))
    while left:
        node = max(left, key=lambda i: sum(_n_between(messages, i, other) for other in placed))
        clocks[node] = _line(clocks, node, placed, messages)
        placed.append(node)
        left.remove(node)
    return clocks


def _n_between(messages: Messages, a: int, b: int) -> int:
    return sum(len(messages[pair][0]) for pair in ((a, b), (b, a)) if pair in messages)


def _line(clocks: Sequence[Clock], node: int, placed: Sequence[int], messages: Messages) -> Clock:
    """The node's clock as a line between the bounds of its messages.

    The clock is unchanged if one side has no bounds.
    """
    clock = clocks[node]
    highs, lows = [], []
    for other in placed:
        if (other, node) in messages:
            sends, receives = messages[other, node]
            highs.append((receives, clock.to_common(receives) - clocks[other].to_common(sends)))
        if (node, other) in messages:
            sends, receives = messages[node, other]
            lows.append((sends, clock.to_common(sends) - clocks[other].to_common(receives)))
    if not highs or not lows or len(clock.t_ns) > 1:
        return clock
    high_t, high = (np.concatenate(parts).astype(np.int64) for parts in zip(*highs, strict=True))
    low_t, low = (np.concatenate(parts).astype(np.int64) for parts in zip(*lows, strict=True))
    begin, end = int(min(high_t.min(), low_t.min())), int(max(high_t.max(), low_t.max()))
    upper = _hull((high_t - begin).astype(float), high.astype(float), 1)
    lower = _hull((low_t - begin).astype(float), low.astype(float), -1)
    slope, value = _middle(lower, upper)
    offset = clock.offset_ns[0] + value
    return Clock((begin, max(end, begin + 1)), (offset, offset + slope * (end - begin)))


def _hull(x: Array, y: Array, side: int) -> tuple[Array, Array]:
    """Points of the lower (side 1) or upper (-1) convex hull; only these can bound a line."""
    order = np.lexsort((side * y, x))
    x, y = x[order], y[order]
    first = np.flatnonzero(np.diff(x, prepend=x[0] - 1))
    x, y = x[first], y[first]
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if side * ((x[b] - x[a]) * (y[i] - y[a]) - (y[b] - y[a]) * (x[i] - x[a])) > 0:
                break
            kept.pop()
        kept.append(i)
    return x[kept], y[kept]


def _middle(lower: tuple[Array, Array], upper: tuple[Array, Array]) -> tuple[float, float]:
    """Slope and value at 0 of the line with the largest distance to the nearest bound.

    The distance is a concave function of the slope, so ternary search finds its maximum.
    """

    def room(slope: float) -> tuple[float, float]:
        top = float((upper[1] - slope * upper[0]).min())
        bottom = float((lower[1] - slope * lower[0]).max())
        return top - bottom, (top + bottom) / 2

    left, right = -DRIFT, DRIFT
    for _ in range(100):
        third = (right - left) / 3
        if room(left + third)[0] < room(right - third)[0]:
            left += third
        else:
            right -= third
    slope = (left + right) / 2
    return slope, room(slope)[1]


def _put_forward(clocks: Sequence[Clock], messages: Messages) -> list[Clock]:
    """Advance clocks repeatedly until no message is early, as an advance can make other messages early."""
    found = list(clocks)
    for _ in range(MAX_PASSES):
        needs: dict[int, list[tuple[Array, Array]]] = {}
        for (src, dst), (sends, receives) in messages.items():
            early = found[src].to_common(sends) - found[dst].to_common(receives)
            is_early = early > 0
            if is_early.any():
                t = receives[is_early].astype(np.int64)
                so_far = _forward(found[dst], t) if found[dst].step_t_ns else 0
                needs.setdefault(dst, []).append((t, early[is_early] + so_far))
        if not needs:
            break
        for node, parts in needs.items():
            found[node] = _with_steps(found[node], parts)
    return found


def _with_steps(clock: Clock, parts: list[tuple[Array, Array]]) -> Clock:
    t = np.concatenate([np.array(clock.step_t_ns, np.int64), *(part[0] for part in parts)])
    step = np.concatenate([np.array(clock.step_ns, float), *(part[1] for part in parts)])
    order = np.lexsort((-step, t))
    t, step = t[order], step[order]
    # Drop steps that do not exceed what is left of earlier steps.
    reach = step + DECAY * (t - t[0])
    before = np.maximum.accumulate(np.concatenate([[-np.inf], reach[:-1]]))
    kept = reach > before
    return replace(clock, step_t_ns=tuple(t[kept].tolist()), step_ns=tuple(step[kept].tolist()))
