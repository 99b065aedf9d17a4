"""Trees that predict all pairs of many jobs at once, as a product of two matrices.

A node splits on a feature of the target or on one of the co-runner. So the leaves that a target may reach,
whoever is beside it, follow from the target alone, and those of a co-runner from it alone. A pair ends in the
one leaf of each tree that both may reach: prediction [i, j] = sum over leaves of
(target i may reach it) * (value of the leaf) * (co-runner j may reach it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
LEAF = -1
_BLOCK_BYTES = 1 << 26
"""Of one matrix of reachable leaves; larger ones are made in blocks of jobs."""


@dataclass(frozen=True)
class Trees:
    """Binary trees below each other, their nodes numbered through; a child comes after its parent.

    Parameters
    ----------
    roots : ndarray, shape (n_trees,)
        Node that each tree begins with.
    feature : ndarray, shape (n_nodes,)
        Of F of the target, then F of the co-runner; `LEAF`: none.
    threshold : ndarray, shape (n_nodes,)
        A value up to it goes to `left`.
    left, right : ndarray, shape (n_nodes,)
        Children; 0 for leaves.
    missing_left : ndarray of bool, shape (n_nodes,)
        Where a missing value goes.
    value : ndarray, shape (n_nodes,)
        Of leaves: what they add to the sum.
    base : ndarray, shape ()
        What the sum begins with.
    """

    roots: Ints
    feature: Ints
    threshold: Array
    left: Ints
    right: Ints
    missing_left: NDArray[np.bool_]
    value: Array
    base: Array

    def pairs(self, targets: Array, co_runners: Array) -> Array:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m); NaN is missing.

        The product is one of single precision: right to 1e-6 of what leaves differ by, in half the time.
        """
        n_features = targets.shape[1]
        is_leaf = self.feature == LEAF
        # A pair ends in one leaf of each tree, so what all leaves have in common need not be rounded.
        common = self.value[is_leaf].mean()
        values = (self.value[is_leaf] - common).astype(np.float32)
        of_target = ~is_leaf & (self.feature < n_features)
        of_other = ~is_leaf & (self.feature >= n_features)
        column = np.where(of_other, self.feature - n_features, self.feature)
        result = np.empty((len(targets), len(co_runners)))
        for those in self._blocks(len(co_runners)):
            others = self._reach(co_runners[those], column, of_other)[is_leaf].astype(np.float32)
            for these in self._blocks(len(targets)):
                mine = self._reach(targets[these], column, of_target)[is_leaf]
                result[these, those] = (mine * values[:, None]).T @ others
        return result + (self.base + len(self.roots) * common)

    def _blocks(self, n: int) -> Iterator[slice]:
        step = max(1, _BLOCK_BYTES // (4 * max(len(self.feature), 1)))
        return (slice(i, i + step) for i in range(0, n, step))

    def _reach(self, features: Array, column: Ints, decides: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Nodes (rows) that jobs may come to; a node that does not decide lets both ways open."""
        # Trees were grown on single precision; thresholds lie between such numbers.
        values = np.ascontiguousarray(features.astype(np.float32).astype(float).T)
        reach = np.zeros((len(self.feature), len(features)), bool)
        reach[self.roots] = True
        nodes = self.roots
        while len(nodes := nodes[self.feature[nodes] != LEAF]):
            left, right, free = self.left[nodes], self.right[nodes], ~decides[nodes, None]
            value = values[column[nodes]]
            is_left = value <= self.threshold[nodes, None]
            is_left |= np.isnan(value) & self.missing_left[nodes, None]
            reach[left] = reach[nodes] & (is_left | free)
            reach[right] = reach[nodes] & (~is_left | free)
            nodes = np.concatenate([left, right])
        return reach

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are no trees on `n_inputs` features; empty: they are."""
        n = len(self.feature)
        if any(
            getattr(self, name).shape != (n,)
            for name in ("threshold", "left", "right", "missing_left", "value")
        ):
            return "its arrays differ in length"
        inner = np.flatnonzero(self.feature != LEAF)
        # An infinite threshold parts what is missing from what is not.
        if self.base.shape or np.isnan(self.threshold).any():
            return "a number that is none"
        if not (np.isfinite(self.value).all() and np.isfinite(self.base)):
            return "a number that is none"
        if not len(self.roots) or self.roots.ndim != 1 or self.roots.min() < 0 or self.roots.max() >= n:
            return "a tree without nodes"
        if len(inner) and not (self.feature[inner].min() >= 0 and self.feature[inner].max() < n_inputs):
            return "a node on a feature that is not there"
        children = np.concatenate([self.left[inner], self.right[inner]])
        parents = np.concatenate([inner, inner])
        starts = np.concatenate([children, self.roots])
        # Each node has one way to it and lies after its parent, so that every walk ends.
        if (
            len(starts) != n
            or len(np.unique(starts)) != n
            or not ((parents < children) & (children < n)).all()
        ):
            return "nodes that are no trees"
        return ""
