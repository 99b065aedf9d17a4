"""A fitted model as arrays says what scikit-learn says, for all pairs at once."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("sklearn", reason="the extra schedule is not installed")

from mpicoloc.pairing.fitted import LEAF, Trees, prepare
from mpicoloc.pairing.training.fitting import BASELINES, KINDS, SimilarRegressor, fit

N_FEATURES = 5
ALL = {**KINDS, **BASELINES}
VARIANTS = [
    *((name, {}) for name in ALL),
    ("support vectors", {"kernel": "poly", "degree": 4, "coef0": 0.7}),
    ("support vectors", {"kernel": "linear"}),
    ("random forest", {"bootstrap": False, "max_features": 0.4}),
    *(("network", {"activation": name, "hidden_layer_sizes": "8,4"}) for name in ("relu", "logistic")),
]


def problem(seed=0, n_jobs=30, gaps=True):
    rng = np.random.default_rng(seed)
    features = rng.lognormal(0, 1, (n_jobs, N_FEATURES))
    if gaps:
        features[rng.uniform(size=features.shape) < 0.15] = np.nan
    i, j = rng.integers(0, n_jobs, (2, 250))
    known = np.nan_to_num(features)
    slowdown = 1 + 0.2 * np.maximum(0, known[i, 0] + known[j, 1] - 1) + rng.uniform(0, 0.05, len(i))
    return features, i, j, slowdown


@pytest.mark.parametrize(("name", "changes"), VARIANTS, ids=lambda value: str(value))
def test_arrays_say_what_scikit_learn_says(name, changes):
    kind = ALL[name]
    features, i, j, slowdown = problem()
    x = prepare(features).apply(features) if kind.is_prepared else features.astype(np.float32)
    weights = np.random.default_rng(1).uniform(0.5, 1, len(i))
    estimator = fit(kind, {**kind.usual, **changes}, 0, np.hstack([x[i], x[j]]), slowdown, weights)
    arrays = kind.arrays(estimator)
    assert arrays.trouble(2 * x.shape[1]) == ""
    all_i, all_j = np.divmod(np.arange(len(x) ** 2), len(x))
    expected = estimator.predict(np.hstack([x[all_i], x[all_j]])).reshape(len(x), len(x))
    assert arrays.pairs(x, x) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert arrays.pairs(x[:3], x[5:6]) == pytest.approx(expected[:3, 5:6], rel=1e-6, abs=1e-6)


def grown(rng, n_nodes, n_inputs):
    """A random tree: leaves are split until there are enough nodes."""
    feature, left, right = [LEAF], [0], [0]
    while len(feature) < n_nodes:
        node = int(rng.choice(np.flatnonzero(np.array(feature) == LEAF)))
        feature[node], left[node], right[node] = int(rng.integers(n_inputs)), len(feature), len(feature) + 1
        feature += [LEAF] * 2
        left += [0] * 2
        right += [0] * 2
    n = len(feature)
    return Trees(
        roots=np.array([0]),
        feature=np.array(feature),
        threshold=rng.normal(size=n).astype(np.float32).astype(float),
        left=np.array(left),
        right=np.array(right),
        missing_left=rng.uniform(size=n) < 0.5,
        value=rng.normal(size=n),
        base=np.asarray(0.5),
    )


def walked(tree, row):
    node = 0
    while tree.feature[node] != LEAF:
        value = row[tree.feature[node]]
        is_left = tree.missing_left[node] if np.isnan(value) else value <= tree.threshold[node]
        node = tree.left[node] if is_left else tree.right[node]
    return tree.value[node] + 0.5


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), n_nodes=st.integers(1, 40), gap=st.floats(0, 0.5))
def test_a_pair_ends_in_the_leaf_that_a_walk_ends_in(seed, n_nodes, gap):
    rng = np.random.default_rng(seed)
    tree = grown(rng, n_nodes, 6)
    assert tree.trouble(6) == ""
    x = rng.normal(size=(7, 3)).astype(np.float32).astype(float)
    x[rng.uniform(size=x.shape) < gap] = np.nan
    expected = [[walked(tree, np.concatenate([one, other])) for other in x] for one in x]
    assert tree.pairs(x, x) == pytest.approx(np.array(expected), abs=1e-6)  # single precision


@pytest.mark.parametrize(
    "change",
    [{"left": np.array([0, 0, 0])}, {"left": np.array([7, 0, 0])}, {"right": np.array([1, 0, 0])},
     {"roots": np.array([3])}, {"roots": np.array([], int)}, {"feature": np.array([9, LEAF, LEAF])},
     {"feature": np.array([-2, LEAF, LEAF])}, {"value": np.array([0, np.nan, 0])}, {"threshold": np.zeros(2)},
     {"base": np.zeros(3)}],
    ids=str,
)  # fmt: skip
def test_what_is_no_tree_is_told_before_it_is_walked(change):
    tree = grown(np.random.default_rng(0), 3, 4)
    assert tree.trouble(4) == ""
    assert dataclasses.replace(tree, **change).trouble(4)


def test_preparation_leaves_no_gap_and_one_scale():
    features, *_ = problem()
    features[:, 2] = np.nan
    found = prepare(features)
    ready = found.apply(features)
    assert np.isfinite(ready).all()
    assert ready.mean(axis=0) == pytest.approx(np.zeros(ready.shape[1]), abs=1e-9)
    assert np.isfinite(found.apply(np.full((1, N_FEATURES), np.nan))).all()


def test_a_pair_that_met_often_counts_as_often():
    """Kriging of repeated rows is that of one row with their mean and all their weight."""
    rng = np.random.default_rng(3)
    x, y, weight = rng.normal(size=(6, 4)), 1 + rng.uniform(size=6), rng.uniform(0.5, 1, 6)
    repeated = np.repeat(np.arange(6), [1, 4, 2, 1, 1, 3])
    often = SimilarRegressor(0.7, 0.1, 0.3, 0.5).fit(x[repeated], y[repeated], weight[repeated])
    total = np.bincount(repeated, weight[repeated])
    once = SimilarRegressor(0.7, 0.1 * weight[repeated].mean() / total.mean(), 0.3, 0.5).fit(x, y, total)
    asked = rng.normal(size=(5, 4))
    assert len(often.vectors_) == 6
    assert often.predict(asked) == pytest.approx(once.predict(asked))
