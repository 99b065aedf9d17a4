import json
from dataclasses import replace

import numpy as np
import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mpicoloc.cli.main import main
from mpicoloc.core.estimate import Estimate
from mpicoloc.model.compare import compare
from mpicoloc.store import hdf5

TIMES = st.lists(st.floats(0.1, 1e3), min_size=2, max_size=6)


def one(before, after):
    return compare({"x": before}, {"x": after}, {"x": "s"})[0]


@given(TIMES, TIMES)
def test_the_ratio_is_that_of_geometric_means_and_its_interval_agrees_with_the_p_value(before, after):
    found = one(before, after)
    assert found.ratio == pytest.approx(stats.gmean(after) / stats.gmean(before))
    assert found.low <= found.ratio * (1 + 1e-9) and found.ratio <= found.high * (1 + 1e-9)
    if np.ptp(before) > 1e-6 or np.ptp(after) > 1e-6:
        theirs = stats.ttest_ind(np.log(after), np.log(before), equal_var=False)
        assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
        assert (found.verdict == "alike") == (theirs.pvalue >= 0.05)
    turned = one(after, before)
    assert (turned.low, turned.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_intervals_hold_the_true_ratio_as_often_as_they_say():
    rng = np.random.default_rng(1)
    n_held = 0
    for _ in range(1000):
        found = one(np.exp(rng.normal(0, 0.02, 4)).tolist(), np.exp(rng.normal(0.1, 0.05, 3)).tolist())
        n_held += found.low <= np.exp(0.1) <= found.high
    assert 930 <= n_held <= 985


def test_what_is_the_same_in_every_run_is_certain():
    assert one([100, 100], [100, 100, 100]).verdict == "alike"
    more = one([100, 100], [120, 120])
    assert (more.verdict, more.low, more.p_value) == ("more", pytest.approx(1.2), 0.0)


def test_one_run_of_each_is_judged_by_intervals_or_not_at_all():
    assert one([10.0], [13.0]).verdict == "not judged"
    assert one([10.0], [13.0]).is_above(0.2) and not one([10.0], [13.0]).is_above(0.3)
    slow, fast = (Estimate(x, x * 0.98, x * 1.02, 9, "1", "m") for x in (1.3, 1.0))
    assert one([fast], [slow]).verdict == "more" and one([slow], [fast]).verdict == "less"
    near = Estimate(1.01, 0.98, 1.05, 9, "1", "m")
    assert one([fast], [near]).verdict == "alike" and not one([fast], [near]).is_above(0)


@pytest.mark.parametrize(("before", "after"), [([], [1.0]), ([None], [None]), ([0.0, 0.0], [1.0, 2.0])])
def test_what_has_no_ratio_has_none(before, after):
    assert one(before, after).ratio is None
    assert one([1.0, 2.0], [0.0, 1.0]).verdict == "not judged"


def test_from_nothing_to_something_is_growth_unless_only_some_runs_have_it():
    assert one([0.0, 0.0], [1.0, 2.0]).is_above(0.5) and one([0.0], [0.1]).is_above(0.5)
    assert not one([0.0], [0.0]).is_above(0)
    assert not one([0.0, 1.0, 1.0], [1.0, 1.0, 1.0]).is_above(0.05)


def test_chance_is_no_regression():
    assert not one([1.0, 1.5, 0.7], [1.2, 1.6, 0.9]).is_above(0.01)
    assert one([1.0, 1.01, 0.99], [1.2, 1.21, 1.22]).is_above(0.1)
    assert not one([1.0, 1.01, 0.99], [1.2, 1.21, 1.22]).is_above(0.3)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Three runs, and three that took a third longer."""
    monkeypatch.chdir(tmp_path)
    for group, factor in (("old", 1.0), ("new", 1.3)):
        for i in range(3):
            profile = sample.profile()
            job = replace(profile.job, wall_s=profile.job.wall_s * factor * (1 + 0.01 * i))
            hdf5.write(replace(profile, job=job), f"{group}{i}.h5")
    return [[f"{group}{i}.h5" for i in range(3)] for group in ("old", "new")]


def test_the_command_tells_a_regression_by_its_exit_code(runs, capsys):
    old, new = runs
    words = ["compare", *old, "--against", *new]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "1.300" in out and "more" in out and "MPI_Allreduce" in out
    assert main([*words, "--regression", "wall_s=20%", "--regression", "sent_bytes=0"]) == 1
    assert capsys.readouterr().err == "mpicoloc: regression: wall_s is 1.300 times what it was\n"
    assert main([*words, "--regression", "wall_s=0.35", "--regression", "MPI_Allreducd=1%"]) == 0
    assert "no run calls MPI_Allreducd (did you mean MPI_Allreduce?)" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["compare", old[0], new[0], "--json", "--regression", "wall_s=5%"]) == 1
    found = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in found["quantities"]}
    assert found["regressions"] == ["wall_s"] and rows["wall_s"]["verdict"] == "not judged"
    assert rows["slowdown"]["verdict"] == "alike"


def test_what_was_not_measured_is_not_passed(runs, capsys):
    profile = sample.profile()
    hdf5.write(replace(profile, interference=replace(profile.interference, slowdown=None)), "none.h5")
    assert main(["compare", "old0.h5", "none.h5", "--regression", "slowdown=5%"]) == 3
    assert "no run after has measured it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["old0.h5"], "got 1 without --against"),
        (["old0.h5", "new0.h5", "--regression", "speed=5%"], "'speed' is not compared; there are wall_s"),
        (["old0.h5", "new0.h5", "--regression", "wall_s"], "no NAME=LIMIT"),
        (["old0.h5", "new0.h5", "--regression", "wall_s=-5%"], "no NAME=LIMIT"),
    ],
)
def test_wrong_calls_are_one_line(runs, capsys, words, message):
    assert main(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
