"""Invented programs with curves and scores, and an evaluation of placements without any cleverness."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mpicoloc.bubble.model import BubbleModel
from mpicoloc.core.bubbles import POLICIES, JobRequest, ProgramPressure, SensitivityCurve, pressure_score

LEVELS = np.arange(9.0)


def program(name, rng, policy=None):
    """A program with a rising curve, and a score as of the paper's Table 4."""
    rise = rng.uniform(0.02, 1.2) * (LEVELS / 8) ** rng.uniform(0.5, 2.0)
    curve = SensitivityCurve(name, LEVELS, 1 + rise, 1 + 0.9 * rise, 1 + 1.1 * rise, 30)
    score = rng.uniform(0.2, 6.6)
    return ProgramPressure(name, curve, pressure_score(score, 0.9 * score, 1.1 * score, 10), policy)


def model(seed=0, n_programs=20, policies=tuple(POLICIES), combine="capped-sum"):
    """Programs p0, p1, ... whose policies take turns."""
    rng = np.random.default_rng(seed)
    names = [f"p{i}" for i in range(n_programs)]
    programs = [program(name, rng, policies[i % len(policies)]) for i, name in enumerate(names)]
    return BubbleModel({one.program: one for one in programs}, combine)


def jobs(sizes, seed=0, n_programs=20):
    """Jobs j0, j1, ... of these numbers of nodes, of programs drawn at random."""
    rng = np.random.default_rng(seed)
    return [JobRequest(f"j{i}", f"p{rng.integers(n_programs)}", size) for i, size in enumerate(sizes)]


def even(policy, pressures, similar=0.5):
    """Level and number of nodes: Han et al. 2016, section 3.3, one job at a time."""
    top = max(pressures)
    if top == 0:
        return 0.0, 0
    n_top = sum(p > 0 and p >= top - similar for p in pressures)
    n_others = sum(0 < p < top - similar for p in pressures)
    return {
        "n-max": (top, n_top),
        "n-plus-1-max": (top, n_top + (n_others > 0)),
        "all-max": (top, len(pressures)),
        "interpolate": (sum(pressures) / len(pressures), len(pressures)),
    }[policy]


def slowdown(curve, level, n_disturbed):
    """Of a program that waits for its slowest node."""
    if n_disturbed == 0:
        return 1.0
    for (a, one), (b, other) in pairwise(zip(curve.levels, curve.slowdown, strict=True)):
        if a <= level <= b:
            return one + (other - one) * (level - a) / (b - a)
    raise AssertionError(level)


def evaluate(requests, known, slots):
    """Slowdown of each job of a placement, job in each slot (n_nodes, n_slots) or -1."""
    found = []
    for i, job in enumerate(requests):
        pressures = []
        for node in slots.tolist():
            if i in node:
                others = [known.programs[requests[j].program].score.value for j in node if j not in (i, -1)]
                pressures.append(min(sum(others), 8.0))
        assert len(pressures) == job.n_nodes
        policy = known.programs[job.program].policy
        found.append(slowdown(known.curve(job.program), *even(policy, pressures)))
    return np.array(found)
