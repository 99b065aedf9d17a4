"""A machine whose memory has a capacity, so that the true slowdown of every pair is known."""

from __future__ import annotations

import numpy as np

from mpicoloc.bubble.model import BubbleModel
from mpicoloc.core.bubbles import ProgramPressure, SensitivityCurve, pressure_score
from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import JobFeatures, Machine, Row, training_set

CAPACITY = 1.0
MACHINE = Machine("a processor", 8, 2.0**35)


class World:
    """Programs that differ in what they take (pressure) and in what they need (sensitivity).

    slowdown of i beside j = 1 + sensitivity_i * max(0, pressure_i + pressure_j - capacity)
    """

    def __init__(self, n_programs, seed=0, noise=0.03, n_nuisance=12):
        self.rng = np.random.default_rng(seed)
        self.noise = noise
        self.pressure = self.rng.uniform(0.1, 1.0, n_programs)
        self.sensitivity = self.rng.uniform(0.1, 1.2, n_programs)
        self.nuisance = self.rng.lognormal(0, 1, (n_programs, n_nuisance))
        self.has_pmu = self.rng.uniform(size=n_programs) < 0.7

    def job(self, i):
        """Program i: what a profile would show of it, none of it the truth itself."""
        p, s = self.pressure[i], self.sensitivity[i]
        values = {
            "cache_misses_per_s_mean": p * 4e7,
            "mpi_frac_mean": 0.6 * (1 - s / 1.3),
            "burst_s_mean": 1e-3 * np.exp(2 * s) * (1 + 0.1 * self.nuisance[i, 0]),
            "sent_bps_mean": 1e8 * p * (0.5 + s),
        }
        if self.has_pmu[i]:
            values["ipc_mean"] = 2.2 - 1.5 * p
        values |= {f"nuisance{k}_mean": x for k, x in enumerate(self.nuisance[i])}
        return JobFeatures(f"job{i}", f"app{i}", 30.0 + i, 4, 4, values)

    def true(self, i, j):
        return 1 + self.sensitivity[i] * np.maximum(0, self.pressure[i] + self.pressure[j] - CAPACITY)

    def measured(self, i, j):
        return self.true(i, j) * np.exp(self.rng.normal(0, self.noise))

    def training(self, n_rows=None):
        """Every program beside every one, or so many pairs at random."""
        n = len(self.pressure)
        pairs = self.rng.permutation([(i, j) for i in range(n) for j in range(n)])[:n_rows]
        rows = []
        for i, j in pairs:
            value = self.measured(i, j)
            slowdown = Estimate(value, value * 0.97, value * 1.03, 5, "1", "campaign")
            rows.append(Row(self.job(i), self.job(j), slowdown, "campaign"))
        return training_set(rows, MACHINE)

    def bubbles(self, n_levels=8):
        """Curves and scores, as bubbles of pressure level / n_levels would measure them, without noise."""
        levels, programs = np.arange(n_levels + 1.0), {}
        for i, pressure in enumerate(self.pressure):
            over = np.maximum(0, pressure + levels / n_levels - CAPACITY)
            value = 1 + self.sensitivity[i] * over
            curve = SensitivityCurve(f"app{i}", levels, value, value, value)
            programs[f"app{i}"] = ProgramPressure(f"app{i}", curve, pressure_score(n_levels * pressure))
        return BubbleModel(programs)
