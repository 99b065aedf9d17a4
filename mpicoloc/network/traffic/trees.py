"""Trees of collectives, as the parent of each rank. Ranks are numbered from the root, whose parent is -1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.network.traffic.collective import low_bit

Array = NDArray[Any]


def _ranks(p: int) -> Array:
    return np.arange(p, dtype=np.int64)


def _with_root(parent: Array) -> Array:
    parent[0] = -1
    return parent


def flat(p: int) -> Array:
    """All ranks are the root's children."""
    return _with_root(np.zeros(p, dtype=np.int64))


def chain(p: int) -> Array:
    """Each rank has the next one as its child."""
    return _with_root(_ranks(p) - 1)


def binomial(p: int) -> Array:
    """Binomial tree; the parent's number is the child's without its highest bit (Open MPI's ``bmtree``)."""
    v = _ranks(p)
    high = np.int64(1) << (np.frexp(np.maximum(v, 1).astype(np.float64))[1].astype(np.int64) - 1)
    return _with_root(v - high)


def in_order_binomial(p: int) -> Array:
    """Binomial tree of neighbouring ranks; the parent's number is the child's without its lowest bit."""
    v = _ranks(p)
    return _with_root(v - low_bit(v))


def k_nomial(p: int, radix: int) -> Array:
    """The in-order binomial tree with digits of base `radix` in place of bits."""
    v = _ranks(p)
    parent = np.full(p, -1, dtype=np.int64)
    base = radix
    while base <= p * radix:
        todo = (parent < 0) & (v % base != 0)
        parent[todo] = v[todo] // base * base
        base *= radix
    return _with_root(parent)


def binary(p: int) -> Array:
    """Binary tree, numbered level by level; even and odd ranks are in different halves."""
    v = _ranks(p)
    level = np.frexp((v + 1).astype(np.float64))[1].astype(np.int64) - 1
    width = np.int64(1) << np.maximum(level - 1, 0)  # of the level above
    near = v - width
    return _with_root(np.where(near <= 2 * width - 2, near, v - 2 * width))


def in_order_binary(p: int) -> Array:
    """Binary tree whose root is the last rank and whose subtrees are ranges of ranks."""
    parent = np.full(p, -1, dtype=np.int64)
    size, first = np.array([p]), np.array([0])
    while len(size):
        top = first + size - 1
        right = np.where(size > 2, size >> 1, 0)
        left = size - right - 1
        for child, exists in ((top - 1, left > 0), (first + right - 1, right > 0)):
            parent[child[exists]] = top[exists]
        first = np.concatenate([first + right, first])
        size = np.concatenate([left, right])
        first, size = first[size > 1], size[size > 1]
    return parent


def subtree_sizes(p: int) -> Array:
    """Ranks in each subtree of the in-order binomial tree."""
    v = _ranks(p)
    sizes = np.minimum(low_bit(v), p - v)
    sizes[0] = p
    return sizes
