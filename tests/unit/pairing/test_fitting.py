"""Fitting on a machine whose truth is known: which model is chosen, and whether its scores are honest."""

import dataclasses

import contention
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("sklearn", reason="the extra schedule is not installed")

from threadpoolctl import threadpool_limits

from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import Machine, Row, TrainingSet, merged, pair_slowdowns, training_set
from mpicoloc.errors import DataError
from mpicoloc.pairing.features import FEATURES
from mpicoloc.pairing.fitted import LEAST, band, cost, covering
from mpicoloc.pairing.training.fitting import (
    BASELINES,
    FEW,
    KINDS as KINDS_OF,
    MISSES,
    SAME_FOR_ALL,
    Problem,
    fit,
    fit_kind,
    fit_model,
    leave_program_out,
    predicted,
    problem,
    tuned,
)

KINDS = ("elastic net", "extra trees")


@pytest.fixture(scope="module")
def world():
    return contention.World(12, seed=2)


@pytest.fixture(scope="module")
def training(world):
    return world.training()


@pytest.fixture(scope="module")
def model(training):
    return fit_model(training, seed=3, n_trials=0, kinds=KINDS)


def test_the_best_kind_is_chosen_and_better_than_the_baselines(model):
    scores = model.card["scores"]
    assert {score["kind"] for score in scores} == {*KINDS, "mean", "quantile", "intensity (DI)"}
    costs = [score["cost"] for score in scores]
    assert costs == sorted(costs)
    assert model.kind == scores[0]["kind"] == "extra trees"
    by_kind = {score["kind"]: score["new"] for score in scores}
    assert by_kind["extra trees"]["r2"] > 0.5
    least = min(by_kind[name]["cost"] for name in SAME_FOR_ALL)
    assert by_kind["extra trees"]["cost"] <= model.card["choice"]["cost"] < least


def cheapest_of_one_number(model):
    """Of the kinds that say the same of all pairs: name and marks."""
    new = {score["kind"]: score["new"] for score in model.card["scores"]}
    name = min(SAME_FOR_ALL, key=lambda name: new[name]["cost"])
    return name, new[name]


def first_by_search(given, rows, kinds):
    """The rule of the choice, told anew."""
    return min(kinds, key=lambda name: tuned(given, {**KINDS_OF, **BASELINES}[name], rows, 0, 0).cost)


@pytest.mark.parametrize("seed", [0, 2])
def test_what_is_kept_is_chosen_by_the_rule_whose_marks_are_told(seed):
    """The rows left out that tell what `fit` is worth choose nothing: not each kind, not the kind."""
    training = contention.World(8, seed=seed, noise=0.2).training()
    given, kinds = problem(training), (*BASELINES, "elastic net", "two factors")
    model = fit_model(training, n_trials=0, kinds=kinds[3:])
    with threadpool_limits(1):
        assert model.card["scores"][0]["kind"] == first_by_search(given, np.arange(64), kinds)
        said = []
        for train, test in leave_program_out(given, np.arange(64), 10, 0):
            name = first_by_search(given, train, kinds)
            kind = {**KINDS_OF, **BASELINES}[name]
            value = predicted(given, kind, tuned(given, kind, train, 0, 0).parameters, train, test, 0)
            said.append(np.abs(value - given.slowdown[test]))
    assert model.card["choice"]["mae"] == pytest.approx(np.concatenate(said).mean())
    name, least = cheapest_of_one_number(model)
    is_luck = model.card["choice"]["cost"] >= least["cost"]
    assert model.kind == (name if is_luck else model.card["scores"][0]["kind"])


def test_of_kinds_that_nothing_tells_apart_the_simplest_is_taken():
    """Two couples that never met: without one, nothing is left to try a search on."""
    world = contention.World(4, seed=3)
    jobs = [world.job(i) for i in range(4)]
    couples = [(0, 1), (1, 0), (2, 3), (3, 2)] * 4
    slowdowns = [
        Estimate(value, value - 0.01, value + 0.01, 5, "1", "x") for value in np.linspace(1.1, 2, 16)
    ]
    rows = [Row(jobs[i], jobs[j], slowdown, "x") for (i, j), slowdown in zip(couples, slowdowns, strict=True)]
    model = fit_model(training_set(rows, contention.MACHINE), n_trials=0, kinds=("elastic net",))
    same = next(score["new"] for score in model.card["scores"] if score["kind"] == "mean")
    assert model.card["choice"] == same
    assert model.kind == cheapest_of_one_number(model)[0]


def test_knowing_nothing_is_worth_nothing(model):
    """R2 on programs left out is against the mean of the rows that were learnt from."""
    mean = next(score for score in model.card["scores"] if score["kind"] == "mean")
    assert mean["new"]["r2"] == 0
    assert mean["known"]["r2"] <= 0


def test_the_score_on_new_programs_holds_for_programs_that_are_new(model, world):
    """Programs drawn like those of the training set, that were in no fold."""
    others = contention.World(12, seed=99)
    jobs = [others.job(i) for i in range(12)]
    found = pair_slowdowns(model, jobs)
    truth = np.array([[others.true(i, j) for j in range(12)] for i in range(12)])
    mark = model.card["scores"][0]["new"]
    assert np.abs(found.value - truth).mean() < 2 * mark["mae"]
    assert ((found.low <= truth) & (truth <= found.high)).mean() > 0.85


def test_intervals_hold_programs_that_were_left_out(model):
    assert all(score["new"]["coverage"] >= 0.85 for score in model.card["scores"])


def test_a_program_left_out_is_in_nothing_that_was_learnt(training):
    given = problem(training)
    seen = set()
    for train, test in leave_program_out(given, np.arange(len(given.slowdown)), 12, 0):
        ends = [
            set(given.program[np.stack([given.target, given.co_runner])[:, rows]].ravel())
            for rows in (train, test)
        ]
        gone = ends[1] - ends[0]
        assert len(gone) == 1
        assert all({given.program[given.target[i]], given.program[given.co_runner[i]]} & gone for i in test)
        seen |= gone
    assert len(seen) == 12


@pytest.mark.parametrize("kind", ["similar programs", "two factors"])
def test_what_a_program_left_out_suffered_changes_nothing_that_is_said_of_it(training, kind):
    """Search, fit and interval: the slowdowns of the rows asked about are read by none of them."""
    given = problem(training)
    train, test = next(leave_program_out(given, np.arange(len(given.slowdown)), 12, 0))
    other = given.slowdown.copy()
    other[test] = 9.0
    changed = dataclasses.replace(given, slowdown=other)
    with threadpool_limits(1):
        found = [tuned(one, KINDS_OF[kind], train, 2, 0) for one in (given, changed)]
    assert found[0] == found[1]
    said = [predicted(one, KINDS_OF[kind], found[0].parameters, train, test, 0) for one in (given, changed)]
    assert np.array_equal(*said)


def test_of_a_new_program_its_known_companion_still_tells():
    """Targets differ and co-runners do not: beside a stranger a target suffers what it always suffers."""
    world = contention.World(8, noise=0.01)
    world.true = lambda i, j: 1 + world.sensitivity[i]
    given = problem(world.training())
    whole = np.arange(len(given.slowdown))
    parts = []
    for train, test in leave_program_out(given, whole, 8, 0):
        known = test[np.isin(given.target[test], given.target[train])]
        value = predicted(
            given, KINDS_OF["similar programs"], KINDS_OF["similar programs"].usual, train, known, 0
        )
        parts.append(np.abs(value - given.slowdown[known]).mean())
    assert np.mean(parts) < 0.25 * given.slowdown.std()


def test_the_same_seed_gives_the_same_model(training):
    one, other = (fit_model(training, seed=3, n_trials=5, kinds=("two factors",)) for _ in range(2))
    assert one.card == other.card
    jobs = training.jobs
    assert np.array_equal(pair_slowdowns(one, jobs).value, pair_slowdowns(other, jobs).value)


def test_slowdowns_below_one_count_as_one(training):
    rows = training.rows.copy()
    rows["slowdown"], rows["low"], rows["high"] = 0.9, 0.8, 1.1
    model = fit_model(dataclasses.replace(training, rows=rows), n_trials=0, kinds=("elastic net",))
    found = pair_slowdowns(model, training.jobs)
    assert (found.value == 1).all() and (found.low == 1).all()
    # Each was measured as 0.9 +- 0.15: no 1.000 (1.000 to 1.000).
    least = 0.15 / len(rows) ** 0.5
    assert (found.high >= 1 + least - 1e-9).all()
    unknown = dataclasses.replace(training.jobs[0], values={})
    assert model.predict(unknown, [unknown]).high >= 1 + least - 1e-9
    assert model.card["scores"][0]["known"]["r2"] is None
    assert model.card["scores"][0]["new"]["r2"] is None


@pytest.mark.parametrize("seed", [0, 1])
def test_eight_slowdowns_without_a_reason_give_their_mean_and_an_interval_that_holds_them(seed):
    world, rng = contention.World(4, seed=seed), np.random.default_rng(seed)
    rows = world.training(8).rows.copy()
    rows["slowdown"] = 1.3 * np.exp(rng.normal(0, 0.1, 8))
    rows["low"], rows["high"] = 0.8 * rows["slowdown"], 1.2 * rows["slowdown"]
    training = dataclasses.replace(world.training(8), rows=rows)
    model = fit_model(training, n_trials=0, kinds=("two factors", "similar programs"))
    found = pair_slowdowns(model, training.jobs)
    assert np.abs(found.value - 1.3).max() < 0.2
    asked = rows["target"], rows["co_runner"]
    assert np.mean((found.low[asked] <= rows["slowdown"]) & (rows["slowdown"] <= found.high[asked])) > 0.7


@pytest.mark.parametrize(
    ("n_rows", "n_jobs", "words"),
    [(7, 12, "7 slowdowns of .* too few"), (144, 2, "of 2 programs are too few"), (0, 12, "0 slowdowns")],
)
def test_too_little_to_learn_from_is_said(training, n_rows, n_jobs, words):
    rows = training.rows[:n_rows].copy()
    rows["target"] %= n_jobs
    rows["co_runner"] %= n_jobs
    with pytest.raises(DataError, match=words):
        fit_model(TrainingSet(training.jobs, rows, training.machine))


def test_jobs_without_features_teach_nothing(training):
    jobs = tuple(dataclasses.replace(job, values={}) for job in training.jobs)
    with pytest.raises(DataError, match="have the same features"):
        fit_model(dataclasses.replace(training, jobs=jobs))


def test_sets_of_two_machines_are_not_mixed(training):
    other = dataclasses.replace(training, machine=Machine("another processor", 8, 2.0**35))
    both = merged([training, dataclasses.replace(training, machine=None)])
    assert len(both.rows) == len(training.rows)
    assert both.jobs[both.rows["target"][-1]] == training.jobs[training.rows["target"][-1]]
    with pytest.raises(DataError, match="a processor, 8 CPUs, 32 GiB and another processor"):
        merged([training, other])


def test_an_interval_grows_with_the_slowdown_and_holds_what_it_should():
    rng = np.random.default_rng(0)
    predicted = 1 + rng.exponential(0.5, 4000)
    measured = np.maximum(1, predicted + rng.normal(0, 0.02 + 0.1 * (predicted - 1)))
    found, held = covering(predicted, measured, np.arange(4000), rng.integers(0, 20, 4000), LEAST)
    low, high = found.ends(np.array([1.0, 3.0]))
    assert high[1] - low[1] > 3 * (high[0] - low[0])
    assert 0.95 <= held <= 0.97
    assert low[0] == 1


def test_few_rows_make_a_wide_interval():
    predicted, measured = np.array([1.2, 1.5, 1.1]), np.array([1.3, 1.4, 1.1])
    low, high = band(predicted, measured, LEAST).ends(predicted)
    assert ((low <= measured) & (measured <= high)).all()


@hypothesis.given(
    st.lists(st.tuples(st.floats(1, 5), st.floats(-1, 1)), min_size=1, max_size=30), st.floats(1e-3, 0.5)
)
def test_no_prediction_is_more_certain_than_what_was_measured(rows, least):
    """Also where the rows agree, by chance or because all were cut at 1."""
    predicted, error = np.array(rows).T
    for errors in (error, np.zeros(len(rows))):
        low, high = band(predicted, predicted + errors, least).ends(predicted)
        assert (low <= np.maximum(1, predicted - least) + 1e-9).all()
        assert (high >= predicted + least - 1e-9).all()


def test_many_rows_do_not_make_an_interval_narrower_than_the_least():
    n = 400
    rows = np.zeros(n, np.int64)
    given = Problem(
        (), np.zeros((1, 0)), rows, rows, np.ones(n), np.full(n, 0.01), np.ones(n), np.zeros(1, np.int64)
    )
    assert given.least_half(np.arange(n)) == LEAST
    assert given.least_half(np.arange(4)) == pytest.approx(0.005)


def test_a_row_is_no_witness_of_itself():
    """Each row is there twice, for the program at either end: the second time must not make its own band."""
    ends = np.array([(i, j) for i in range(6) for j in range(6)])
    predicted = np.ones(36)
    measured = np.where(ends.max(axis=1) == 5, 3.0, 1.0)  # all that touches program 5 is far off
    rows = np.concatenate([np.flatnonzero((ends == fold).any(axis=1)) for fold in range(6)])
    folds = np.concatenate([np.full((ends == fold).any(axis=1).sum(), fold) for fold in range(6)])
    _, held = covering(predicted[rows], measured[rows], rows, folds, LEAST)
    assert held <= 1 - 11 / len(rows)


rows_with_weights = st.lists(st.tuples(st.floats(1, 5), st.floats(0.01, 1)), min_size=1, max_size=20)


@hypothesis.given(rows_with_weights, st.floats(1, 5))
def test_no_other_number_for_all_costs_less_than_the_cheapest(rows, other):
    measured, weights = np.array(rows).T
    same = np.zeros((len(rows), 2))
    found = fit(BASELINES["quantile"], {}, 0, same, measured, weights).predict(same)
    assert cost(found, measured, weights) <= cost(np.full(len(rows), other), measured, weights) + 1e-12


def test_the_features_that_are_named_exist():
    assert {MISSES, *FEW} <= set(FEATURES)


def test_distributed_intensity_looks_at_cache_misses_where_they_were_counted(training):
    def uncounted(job):
        rest = {name: value for name, value in job.values.items() if name != MISSES}
        return dataclasses.replace(job, values=rest)

    without = dataclasses.replace(training, jobs=tuple(map(uncounted, training.jobs)))
    looks_at = [fit_kind(one, "intensity (DI)").features for one in (training, without)]
    assert looks_at[0] == (MISSES,)
    assert set(looks_at[1]) == set(FEW) & set(without.jobs[0].values) | {"ipc_mean"}


def test_where_there_is_nothing_to_learn_one_number_for_all_is_kept(training):
    """Noise; where some kind costs less by chance, in one set of four or so, it is kept."""
    rows = training.rows.copy()
    rows["slowdown"] = 1.1 + np.abs(np.random.default_rng(3).normal(0, 0.1, len(rows)))
    rows["low"], rows["high"] = rows["slowdown"] - 0.05, rows["slowdown"] + 0.05
    model = fit_model(
        dataclasses.replace(training, rows=rows), n_trials=0, kinds=("elastic net", "similar programs")
    )
    name, least = cheapest_of_one_number(model)
    assert model.card["choice"]["cost"] >= least["cost"]
    assert model.kind == name
    found = pair_slowdowns(model, training.jobs)
    assert np.ptp(found.value) == 0
    assert ((found.low < found.value) & (found.value < found.high)).all()
