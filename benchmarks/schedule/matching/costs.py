"""Queues that differ in structure: what one way of matching finds hard is easy for another."""

import numpy as np


def independent(n, rng):
    """Every pair for itself, run times alike."""
    return rng.uniform(50, 150, n), 1 + rng.exponential(0.6, (n, n))


def product(n, rng):
    """Sensitivity times pressure; run times scatter over two orders of magnitude."""
    return np.exp(rng.normal(5, 1, n)), 1 + np.outer(rng.gamma(2, 0.6, n), rng.random(n))


def programs(n, rng):
    """Many jobs of each of 32 programs, with ties between all of one."""
    kind = rng.integers(0, 32, n)
    slowdown = 1 + rng.exponential(0.6, (32, 32))
    return np.exp(rng.normal(5, 1, 32))[kind], slowdown[np.ix_(kind, kind)]


def groups(n, rng):
    """Nine kinds of jobs that only go well with their own; of those in odd number one has to leave."""
    kind = rng.integers(0, 9, n)
    place = rng.random((9, 2))[kind] * 10 + rng.random((n, 2)) * 0.05
    return np.full(n, 100.0), 1 + np.linalg.norm(place[:, None] - place, axis=2)


def integers(n, rng):
    """Few values: nearly all edges tie."""
    return rng.integers(1, 10, n) * 60.0, 1 + rng.integers(0, 4, (n, n)) / 4


STRUCTURES = {made.__name__: made for made in (independent, product, programs, groups, integers)}
