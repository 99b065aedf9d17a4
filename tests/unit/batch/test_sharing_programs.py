"""Programs of a log's jobs, and slowdowns as believed and as they are."""

import numpy as np
import pytest
from test_shared_simulation import log_of

from mpicoloc.batch import draws, shared_simulation
from mpicoloc.core.slowdown import PairSlowdowns
from mpicoloc.errors import DataError, UsageError


def test_a_mix_is_parts_of_one():
    assert draws.mix("lu=3,heat2d=1", ["lu", "heat2d", "ep"]) == {"lu": 0.75, "heat2d": 0.25}
    assert draws.mix("", ["lu", "ep"]) == {"lu": 0.5, "ep": 0.5}


@pytest.mark.parametrize(
    "text", ["lu", "lu=0", "lu=x", "lu=-1", "=2", "lu=nan", "lu=inf", "cg=1", "lu=1,lu=2"]
)
def test_a_wrong_mix_is_told(text):
    with pytest.raises(UsageError, match="--mix"):
        draws.mix(text, ["lu", "ep"])


def test_runs_of_one_executable_of_a_user_are_one_program():
    n = 400
    log = log_of(range(n), [10] * n, [1] * n, user=np.arange(n) % 20, program=np.arange(n) % 4 % 2)
    found = draws.draw(log, {"a": 0.5, "b": 0.5}, np.random.default_rng(1))
    for user in range(20):
        for number in (0, 1):
            assert len(set(found.of_job[(log.user == user) & (log.program == number)].tolist())) <= 1
    assert set(found.of_job.tolist()) == {0, 1}


def test_jobs_whose_executable_is_not_told_are_drawn_one_by_one_with_the_parts_of_the_mix():
    n = 4000
    log = log_of(range(n), [10] * n, [1] * n, program=[-1] * n)
    found = draws.draw(log, {"a": 0.8, "b": 0.2}, np.random.default_rng(2))
    # Five standard deviations of a binomial.
    assert (found.of_job == 0).mean() == pytest.approx(0.8, abs=5 * (0.16 / n) ** 0.5)


def test_the_same_seed_draws_the_same():
    log = log_of(range(50), [10] * 50, [1] * 50, program=[-1] * 50)
    one, other, third = (draws.draw(log, {"a": 0.5, "b": 0.5}, np.random.default_rng(k)) for k in (1, 1, 2))
    assert one.of_job.tolist() == other.of_job.tolist() != third.of_job.tolist()


def test_a_table_tells_programs_by_executable_numbers():
    log = log_of(range(4), [10] * 4, [1] * 4, program=[7, 3, 7, 9])
    found = draws.by_table(log, {"7": "lu", "3": "ep", "*": "lu"}, "t.csv")
    assert [found.names[i] for i in found.of_job] == ["lu", "ep", "lu", "lu"]
    with pytest.raises(DataError, match=r"t\.csv: no row for executable 9 of 1 job"):
        draws.by_table(log, {"7": "lu", "3": "ep"}, "t.csv")


def test_true_slowdowns_are_drawn_from_the_intervals():
    n = 60
    value = np.full((n, n), 2.0)
    pairs = PairSlowdowns(value, np.full((n, n), 1.0), np.full((n, n), 2.0 * 1.5))
    found = shared_simulation.drawn(pairs, np.random.default_rng(3))
    assert (found.believed == 2).all()
    inside = (found.true > 2 / 1.5) & (found.true < 2 * 1.5)
    assert inside.mean() == pytest.approx(0.95, abs=0.02)
    assert found.true.min() >= 1
    assert (shared_simulation.drawn(pairs).true == 2).all()


def test_a_batch_system_without_a_model_expects_half_of_the_processors():
    told = shared_simulation.blind(shared_simulation.Slowdowns(np.ones((1, 1)), np.array([[3.0]])))
    assert (told.believed.item(), told.true.item()) == (2.0, 3.0)


@pytest.mark.parametrize("value", [0.9, np.nan, np.inf])
def test_no_slowdown_is_below_one_or_not_finite(value):
    with pytest.raises(DataError, match="slowdowns"):
        shared_simulation.Slowdowns(np.ones((1, 1)), np.array([[value]]))
