"""Sizes of a collective's buffers, from the bytes that each rank gave to its call and took from it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def rooted_blocks(n_bytes: Ints, root: int) -> tuple[Ints, int]:
    """Parts of a gather or scatter, whose root has the whole and its own part; and the root.

    Shapes: `n_bytes` (n_ranks,).
    """
    root = root if root >= 0 else int(n_bytes.argmax())
    parts = n_bytes.copy()
    parts[root] = 0
    parts[root] = max(0, (int(n_bytes[root]) - int(parts.sum())) // 2)
    return parts, root


def own_blocks(n_bytes: Ints) -> Ints:
    """Parts of an allgather or reduce_scatter, of which each rank has the whole and its own."""
    whole = int(n_bytes.sum()) // (len(n_bytes) + 1)
    return np.maximum(n_bytes - whole, 0)


def reduced(n_bytes: Ints, root: int) -> tuple[int, int]:
    """Buffer of a reduction, which its root has twice, as what it gives and what it takes; and the root."""
    root = root if root >= 0 else int(n_bytes.argmax())
    others = np.delete(n_bytes, root)
    return (int(others.max()) if len(others) else int(n_bytes[root]) // 2), root


def exchanged_block_bytes(n_bytes: Ints) -> int:
    """Part of an all-to-all whose parts are taken as equal."""
    return int(n_bytes.sum()) // (2 * len(n_bytes) ** 2)
