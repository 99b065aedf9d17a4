"""Properties that every slowdown model must have."""

import dataclasses
import functools

import contention
import numpy as np
import pytest

from mpicoloc.bubble.model import BubbleModel
from mpicoloc.core.bubbles import ProgramPressure, SensitivityCurve, pressure_score
from mpicoloc.core.network import Topology
from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import JobFeatures, MeasuredTable, PairSlowdowns, pair_slowdowns
from mpicoloc.errors import DataError
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay.experiment import ReplayedJobs
from mpicoloc.replay.network import of_fabric
from mpicoloc.replay.programs import patterns


def job(i, **values):
    return JobFeatures(f"{i}", f"app{i % 5}", 10.0 + i, 2, 2, values)


def measured():
    rng = np.random.default_rng(3)
    pairs = {}
    for i in range(5):
        for j in range(5):
            value = rng.uniform(0.95, 2.0)
            pairs[job(i).kind, job(j).kind] = Estimate(value, value - 0.1, value + 0.2, 7, "1", "campaign")
    return MeasuredTable(pairs)


def replayed():
    """Jobs that exchange more and more, on a slimmed tree."""
    network = of_fabric(Fabric(Topology((4, 4), (1, 1), (1e9, 1e9))), "d-mod-k")
    programs = {job(i).kind: patterns.alltoall(4, 4096 << i, 2) for i in range(5)}
    return ReplayedJobs(programs, network, seed=1)


def bubbled():
    """A curve and a score of each program; some curves fall by noise."""
    rng = np.random.default_rng(5)
    levels, programs = np.arange(9.0), {}
    for i in range(5):
        value = np.concatenate([[1.0], 1 + np.cumsum(rng.uniform(-0.05, 0.2, 8)).clip(-0.1)])
        wide = np.minimum(levels, 1)
        curve = SensitivityCurve(job(i).program, levels, value, value - 0.1 * wide, value + 0.2 * wide, 9)
        score = rng.uniform(0, 8)
        found = ProgramPressure(curve.program, curve, pressure_score(score, max(score - 1, 0), score + 1, 4))
        programs[curve.program] = found
    return BubbleModel(programs)


KINDS = (
    *("elastic net", "support vectors", "random forest", "extra trees", "gradient boosting", "network"),
    *("two factors", "similar programs", "mean", "quantile", "intensity (DI)"),
)
MODELS = ("measured", "replay", "bubble", *KINDS)
OF_KINDS = (MeasuredTable, ReplayedJobs, BubbleModel)
"""Models that look at the programs of jobs, not at their features."""
WORLD = contention.World(8)
SAME = 1e-6
"""Trees add up in single precision."""


@functools.cache
def training():
    return contention.World(8).training()


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """A model of each kind; the fitted ones of a small world."""
    if request.param == "measured":
        return measured()
    if request.param == "replay":
        return replayed()
    if request.param == "bubble":
        return bubbled()
    pytest.importorskip("sklearn", reason="the extra schedule is not installed")
    from mpicoloc.pairing.training.fitting import fit_kind

    return fit_kind(training(), request.param, seed=1)


@pytest.fixture
def jobs(model):
    if isinstance(model, OF_KINDS):
        return [job(i) for i in range(12)]
    return [WORLD.job(i % 8) for i in range(12)]


def test_nobody_beside_is_no_slowdown(model, jobs):
    alone = model.predict(jobs[0], [])
    assert (alone.value, alone.low, alone.high) == (1, 1, 1)


def test_a_slowdown_is_at_least_one_and_lies_in_its_interval(model, jobs):
    for target in jobs:
        found = model.predict(target, [jobs[3]])
        assert 1 <= found.low <= found.value <= found.high
        assert found.unit == "1"
        assert found.method


def test_the_batch_says_what_each_pair_alone_says(model, jobs):
    batch = pair_slowdowns(model, jobs)
    for i, j in [(0, 1), (1, 0), (4, 4), (11, 2)]:
        one = model.predict(jobs[i], [jobs[j]])
        assert np.allclose(
            [one.value, one.low, one.high], [batch.value[i, j], batch.low[i, j], batch.high[i, j]], rtol=SAME
        )


def test_the_order_of_the_jobs_does_not_matter(model, jobs):
    order = np.random.default_rng(0).permutation(len(jobs))
    batch = pair_slowdowns(model, jobs)
    mixed = pair_slowdowns(model, [jobs[i] for i in order])
    for end in ("value", "low", "high"):
        assert np.allclose(getattr(mixed, end), getattr(batch, end)[np.ix_(order, order)], rtol=SAME)


def test_the_order_of_the_co_runners_does_not_matter(model, jobs):
    one, other = model.predict(jobs[0], jobs[1:4]), model.predict(jobs[0], jobs[3:0:-1])
    assert one.value == pytest.approx(other.value)
    assert one.high == pytest.approx(other.high)


def test_more_company_is_no_relief(model, jobs):
    pair = model.predict(jobs[0], [jobs[1]])
    assert model.predict(jobs[0], jobs[1:3]).value >= pair.value


def test_no_jobs_are_no_pairs(model):
    assert pair_slowdowns(model, []).value.shape == (0, 0)


def test_predicting_draws_nothing_from_the_global_random_state(model, jobs):
    np.random.seed(4)
    before = np.random.get_state()[1].copy()
    first = pair_slowdowns(model, jobs)
    assert np.array_equal(before, np.random.get_state()[1])
    assert np.array_equal(first.value, pair_slowdowns(model, jobs).value)


def without(job, names):
    values = {name: value for name, value in job.values.items() if name not in names}
    return dataclasses.replace(job, values=values)


def test_jobs_with_fewer_features_or_unknown_ones_have_a_slowdown_too(model, jobs):
    if isinstance(model, OF_KINDS):
        pytest.skip("does not look at features")
    odd = [
        without(jobs[0], {"ipc_mean"}),
        dataclasses.replace(jobs[1], values={**jobs[1].values, "new": 3.0}),
    ]
    found = pair_slowdowns(model, [*odd, without(jobs[2], set(jobs[2].values)), *jobs])
    assert np.isfinite(found.high).all()
    assert found.value[1, 4] == pytest.approx(pair_slowdowns(model, jobs).value[1, 1])
    # Of a job that nobody knows: what is usual, and anything may be.
    assert (found.low[2], found.high[2]) == pytest.approx((model.usual[1], model.usual[2]))


def test_a_pair_that_was_not_measured_is_named():
    with pytest.raises(DataError, match="app9 x2 beside app1 x2 was not measured"):
        measured().predict(JobFeatures("1", "app9", 1.0, 2, 2), [job(1)])


def test_a_pair_that_was_not_measured_is_asked_of_the_other_model():
    table = MeasuredTable({}, otherwise=measured())
    assert table.predict(job(0), [job(1)]) == measured().predict(job(0), [job(1)])


@pytest.mark.parametrize("values", [{"ipc": float("nan")}, {"ipc": float("inf")}])
def test_a_feature_that_is_no_number_is_refused(values):
    with pytest.raises(DataError, match="feature ipc must be finite"):
        job(0, **values)


@pytest.mark.parametrize(
    "change",
    [{"low": 0.9}, {"value": 2.5}, {"value": np.nan}, {"high": 1.1}],
)
def test_matrices_that_contradict_themselves_are_refused(change):
    ends = {"value": 1.5, "low": 1.2, "high": 2.0} | change
    with pytest.raises(DataError, match="1 <= low <= value <= high"):
        PairSlowdowns(**{name: np.full((3, 3), end) for name, end in ends.items()})
