"""Slowdowns of all pairs of a queue by the random forest of mpicoloc, fitted to programs made up."""

import numpy as np

from mpicoloc.core.slowdown import JobFeatures, pair_slowdowns
from mpicoloc.pairing import fitted as scores
from mpicoloc.pairing.features import FEATURES
from mpicoloc.pairing.fitted import FittedModel
from mpicoloc.pairing.training import fitting

N_PROGRAMS, N_FEATURES = 32, 24
NAMES = tuple(FEATURES)[:N_FEATURES]


def natures(n, rng):
    """Sensitivity and pressure of n jobs."""
    return np.column_stack([rng.gamma(2, 0.6, n), rng.random(n)])


def features(nature, rng):
    """Measured features of jobs: mixtures of sensitivity and pressure, and noise."""
    mixing = np.random.default_rng(0).normal(size=(2, N_FEATURES))
    return nature @ mixing + rng.normal(0, 0.3, (len(nature), N_FEATURES))


def fitted(n_trees, rng):
    """A forest of so many trees, without a search of parameters."""
    nature = natures(N_PROGRAMS, rng)
    slowdown = 1 + np.outer(nature[:, 0], nature[:, 1]).ravel()
    values = features(nature, rng)
    x = np.hstack([np.repeat(values, N_PROGRAMS, axis=0), np.tile(values, (N_PROGRAMS, 1))])
    kind = fitting.KINDS["random forest"]
    usual = {name: value for name, value in kind.usual.items() if name in kind.space}
    usual = {name: value for name, value in usual.items() if name != "statistics"}
    model = fitting.fit(kind, {**usual, "n_estimators": n_trees}, 0, x, slowdown, np.ones(len(slowdown)))
    band = scores.band(model.predict(x), slowdown, scores.LEAST)
    usual_slowdown = (slowdown.mean(), *np.quantile(slowdown, (0.025, 0.975)))
    return FittedModel(
        "random forest", NAMES, kind.arrays(model), None, band, usual_slowdown, slowdown.max(), len(x)
    )


def predictor(n, n_trees, rng):
    """A function that predicts all pairs of n jobs: run times, s, and slowdowns, shape (n, n)."""
    model = fitted(n_trees, rng)
    runtime_s = np.exp(rng.normal(5, 1, n))
    values = features(natures(n, rng), rng)
    jobs = [
        JobFeatures(f"job{i}", f"app{i}", runtime_s[i], 4, 4, dict(zip(NAMES, row.tolist(), strict=True)))
        for i, row in enumerate(values)
    ]
    return lambda: (runtime_s, pair_slowdowns(model, jobs).value)
