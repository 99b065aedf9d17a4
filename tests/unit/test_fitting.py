"""Fitting on a machine whose truth is known: which model is chosen, and whether its scores are honest."""

import dataclasses

import contention
import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the extra schedule is not installed")

from mpicoloc.core.machine import Machine
from mpicoloc.core.training import TrainingSet, merged
from mpicoloc.errors import DataError
from mpicoloc.model.fitting import fit_model
from mpicoloc.model.intervals import band, covering
from mpicoloc.model.slowdown import pair_slowdowns

KINDS = ("elastic net", "extra trees")


@pytest.fixture(scope="module")
def world():
    return contention.World(12, seed=2)


@pytest.fixture(scope="module")
def training(world):
    return world.training()


@pytest.fixture(scope="module")
def model(training):
    return fit_model(training, seed=3, n_trials=2, kinds=KINDS)


def test_the_best_kind_is_chosen_and_better_than_the_baselines(model):
    scores = model.card["scores"]
    assert {score["kind"] for score in scores} == {*KINDS, "mean", "one intensity"}
    assert [score["cost_new"] for score in scores] == sorted(score["cost_new"] for score in scores)
    assert model.kind == scores[0]["kind"] == "extra trees"
    by_kind = {score["kind"]: score for score in scores}
    assert by_kind["extra trees"]["r2_new"] > 0.5 > by_kind["mean"]["r2_new"]


def test_the_score_on_new_programs_holds_for_programs_that_are_new(model, world):
    """Programs drawn like those of the training set, that were in no fold."""
    others = contention.World(12, seed=99)
    jobs = [others.job(i) for i in range(12)]
    found = pair_slowdowns(model, jobs)
    truth = np.array([[others.true(i, j) for j in range(12)] for i in range(12)])
    score = model.card["scores"][0]
    assert np.abs(found.value - truth).mean() < 2 * score["mae_new"]
    assert ((found.low <= truth) & (truth <= found.high)).mean() > 0.85


def test_intervals_hold_programs_that_were_left_out(model):
    assert all(score["coverage_new"] >= 0.95 for score in model.card["scores"])


def test_the_same_seed_gives_the_same_model(training, model):
    again = fit_model(training, seed=3, n_trials=2, kinds=KINDS)
    assert again.card == model.card
    jobs = training.jobs
    assert np.array_equal(pair_slowdowns(again, jobs).value, pair_slowdowns(model, jobs).value)


def test_slowdowns_below_one_count_as_one(training):
    rows = training.rows.copy()
    rows["slowdown"], rows["low"], rows["high"] = 0.9, 0.8, 1.1
    model = fit_model(dataclasses.replace(training, rows=rows), n_trials=0, kinds=("elastic net",))
    found = pair_slowdowns(model, training.jobs)
    assert (found.value == 1).all()
    assert model.card["scores"][0]["r2"] is None


@pytest.mark.parametrize(
    ("n_rows", "n_jobs", "words"),
    [(5, 12, "5 slowdowns of .* too few"), (144, 2, "of 2 programs are too few"), (0, 12, "0 slowdowns")],
)
def test_too_little_to_learn_from_is_said(training, n_rows, n_jobs, words):
    rows = training.rows[:n_rows].copy()
    rows["target"] %= n_jobs
    rows["co_runner"] %= n_jobs
    with pytest.raises(DataError, match=words):
        fit_model(TrainingSet(training.jobs, rows, training.machine))


def test_jobs_without_features_teach_nothing(training):
    jobs = tuple(dataclasses.replace(job, values={}) for job in training.jobs)
    with pytest.raises(DataError, match="differ in no feature"):
        fit_model(dataclasses.replace(training, jobs=jobs))


def test_sets_of_two_machines_are_not_mixed(training):
    other = dataclasses.replace(training, machine=Machine("another processor", 8, 2.0**35))
    both = merged([training, dataclasses.replace(training, machine=None)])
    assert len(both.rows) == len(training.rows)
    assert both.jobs[both.rows["target"][-1]] == training.jobs[training.rows["target"][-1]]
    with pytest.raises(DataError, match="a processor, 8 CPUs, 32 GiB and of another processor"):
        merged([training, other])


def test_an_interval_grows_with_the_slowdown_and_holds_what_it_should():
    rng = np.random.default_rng(0)
    predicted = 1 + rng.exponential(0.5, 4000)
    measured = np.maximum(1, predicted + rng.normal(0, 0.02 + 0.1 * (predicted - 1)))
    found, held = covering(predicted, measured, rng.integers(0, 20, len(predicted)))
    low, high = found.ends(np.array([1.0, 3.0]))
    assert high[1] - low[1] > 3 * (high[0] - low[0])
    assert 0.95 <= held <= 0.97
    assert low[0] == 1


def test_few_rows_make_a_wide_interval():
    predicted, measured = np.array([1.2, 1.5, 1.1]), np.array([1.3, 1.4, 1.1])
    low, high = band(predicted, measured).ends(predicted)
    assert ((low <= measured) & (measured <= high)).all()
