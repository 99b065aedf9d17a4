import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import sample
from hypothesis import given, strategies as st
from scipy import stats

from mpicoloc.cli.main import main
from mpicoloc.core.profile import Estimate
from mpicoloc.measure.statistics import compare, compare_all, holm
from mpicoloc.profile import hdf5

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


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(p_values):
    """By its definition: all sets of tests that one is in, each judged by its smallest p-value."""
    adjusted, alpha = holm(p_values)
    indices = range(len(p_values))
    sets = [chosen for n in indices for chosen in itertools.combinations(indices, n + 1)]
    for i in indices:
        worst = max(len(chosen) * min(p_values[j] for j in chosen) for chosen in sets if i in chosen)
        assert adjusted[i] == pytest.approx(min(worst, 1.0))
    away = [i for i in indices if abs(adjusted[i] - 0.05) > 1e-12]
    assert all((adjusted[i] < 0.05) == (p_values[i] < alpha[i]) for i in away)


GROUPS = st.lists(st.lists(st.floats(1, 4), min_size=2, max_size=4), min_size=2, max_size=5)


@given(GROUPS)
def test_intervals_of_several_groups_exclude_1_where_holm_says_so_and_are_never_narrower(groups):
    first, *others = ({"x": values} for values in groups)
    for other, (row,) in zip(others, compare_all(first, others, {"x": "s"}), strict=True):
        alone = compare(first, other, {"x": "s"})[0]
        assert row.p_value >= alone.p_value and row.confidence_frac >= 0.95 - 1e-12
        assert row.low <= alone.low * (1 + 1e-9) and row.high >= alone.high * (1 - 1e-9)
        if abs(row.p_value - 0.05) > 1e-9:
            assert (row.verdict != "alike") == (row.p_value < 0.05)


def false_alarms(rng, n_groups, judge):
    """Part of experiments without any difference in which one group is said to differ."""
    n_alarms = 0
    for _ in range(500):
        groups = [{"x": np.exp(rng.normal(0, 0.05, 5)).tolist()} for _ in range(n_groups)]
        n_alarms += any(row.verdict != "alike" for row in judge(groups[0], groups[1:]))
    return n_alarms / 500


def test_more_groups_give_no_more_false_alarms():
    units = {"x": "s"}

    def corrected(first, others):
        return [row for [row] in compare_all(first, others, units)]

    def plain(first, others):
        return [compare(first, other, units)[0] for other in others]

    found, without = (false_alarms(np.random.default_rng(2), 5, judge) for judge in (corrected, plain))
    assert found <= 0.06 < 0.1 < without


def test_a_group_that_differs_is_found_among_others():
    rng = np.random.default_rng(3)
    groups = [{"x": np.exp(rng.normal(shift, 0.01, 4)).tolist()} for shift in (0, 0, 0.1, -0.1)]
    rows = [row for [row] in compare_all(groups[0], groups[1:], {"x": "s"})]
    assert [row.verdict for row in rows] == ["alike", "more", "less"]


def test_what_is_the_same_in_every_run_is_certain():
    assert one([100, 100], [100, 100, 100]).verdict == "alike"
    more = one([100, 100], [120, 120])
    assert (more.verdict, more.low, more.p_value) == ("more", pytest.approx(1.2), 0.0)


def test_one_run_of_each_is_judged_by_intervals_or_not_at_all():
    assert one([10.0], [13.0]).verdict == "no verdict"
    assert one([10.0], [13.0]).is_above(0.2) and not one([10.0], [13.0]).is_above(0.3)
    slow, fast = (Estimate(x, x * 0.98, x * 1.02, 9, "1", "m") for x in (1.3, 1.0))
    assert one([fast], [slow]).verdict == "more" and one([slow], [fast]).verdict == "less"
    near = Estimate(1.01, 0.98, 1.05, 9, "1", "m")
    assert one([fast], [near]).verdict == "alike" and not one([fast], [near]).is_above(0)


@pytest.mark.parametrize(("before", "after"), [([], [1.0]), ([None], [None]), ([0.0, 0.0], [1.0, 2.0])])
def test_what_has_no_ratio_has_none(before, after):
    assert one(before, after).ratio is None
    assert one([1.0, 2.0], [0.0, 1.0]).verdict == "no verdict"


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
    assert found["regressions"] == ["wall_s"] and rows["wall_s"]["verdict"] == "no verdict"
    assert rows["slowdown"]["verdict"] == "alike"


def test_several_kinds_of_runs_are_compared_with_the_first(runs, capsys, monkeypatch):
    old, new = runs
    words = ["compare", "--group", "old", *old, "--group", "same", *old, "--group", "new", *new]
    assert main([*words, "--regression", "wall_s=20%"]) == 1
    out, err = capsys.readouterr()
    assert err == "mpicoloc: regression: wall_s in new is 1.300 times what it was\n"
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert lines["wall_s"][-4:] == ["1.000", "alike", "1.300", "more"]
    assert max(map(len, out.splitlines()[:-3])) <= 80
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [group["name"] for group in found["groups"]] == ["old", "same", "new"]
    walls = {row["group"]: row for row in found["quantities"] if row["name"] == "wall_s"}
    assert walls["new"]["verdict"] == "more" and walls["new"]["confidence_frac"] == pytest.approx(0.975)
    # The same by --against, and one run of each.
    assert main(["compare", *old, "--against", *old, "--against", *new, "--regression", "wall_s=20%"]) == 1
    assert "wall_s in 3: new0.h5 and 2 more is 1.300" in capsys.readouterr().err
    assert main(["compare", old[0], old[1], new[0], "--regression", "wall_s=20%"]) == 1
    out, err = capsys.readouterr()
    assert "new0.h5" in out and "no verdict" in out and "wall_s in new0.h5" in err


def test_numbers_are_whole_and_different_programs_are_told(runs, capsys):
    profile = sample.profile()
    for name, command in (("a.h5", "/home/x/lmp -in in.lj"), ("b.h5", "python3 pagerank.py 5")):
        mpi = replace(profile.mpi, n_calls=71410)
        hdf5.write(replace(profile, mpi=mpi, job=replace(profile.job, command=command)), name)
    assert main(["compare", "a.h5", "b.h5"]) == 0
    out, err = capsys.readouterr()
    assert out.count("71,410") == 2 and "e+0" not in out
    assert out.splitlines()[-1] == "no verdict: one run each, give at least 3"
    assert err == "mpicoloc: these are runs of different programs: lmp, pagerank.py\n"
    assert main(["compare", "a.h5", "a.h5", "--against", "b.h5"]) == 0
    assert "different programs" in capsys.readouterr().err
    assert main(["compare", "-q", "a.h5", "b.h5"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["compare", "a.h5", "a.h5"]) == 0
    assert capsys.readouterr().err == ""


def test_a_job_that_had_no_processor_is_told_as_show_tells_it(runs, capsys):
    profile = sample.profile(shared_s=0.0)
    starved = replace(profile.interference, cpu_s=30.0, run_delay_s=90.0)
    slow = replace(profile, job=replace(profile.job, id="slow"), interference=starved)
    hdf5.write(slow, "slow.h5")
    assert main(["show", "slow.h5", "--json"]) == 0
    note = json.loads(capsys.readouterr().out)["interference"]["processor"]["note"]
    for words in (["old0.h5", "slow.h5"], ["slow.h5", "--against", "old0.h5", "old1.h5", "--json"]):
        assert main(["compare", *words]) == 0
        assert capsys.readouterr().err == f"mpicoloc: job slow: {note}; its times include these waits\n"
    assert main(["compare", "slow.h5", "--against", "slow.h5", "slow.h5"]) == 0
    line = f"mpicoloc: job slow: {note}; its times include these waits, and so do those of 2 more jobs\n"
    assert capsys.readouterr().err == line


def test_many_kinds_of_runs_are_several_tables(runs, capsys):
    old, _ = runs
    words = [word for i in range(7) for word in ("--group", f"group{i}", *old)]
    assert main(["compare", *words]) == 0
    out = capsys.readouterr().out
    assert all(f"group{i}" in out for i in range(7)) and out.count("wall_s") == 2


def test_what_was_not_measured_is_not_passed(runs, capsys):
    profile = sample.profile()
    hdf5.write(replace(profile, interference=replace(profile.interference, slowdown=None)), "none.h5")
    assert main(["compare", "old0.h5", "none.h5", "--regression", "slowdown=5%"]) == 3
    assert "no run of a later group measured this quantity" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["old0.h5"], "got 1 without --against"),
        (["--against", "new0.h5"], "--against has no runs before it"),
        (["old0.h5", "--group", "a", "new0.h5"], "put every profile after a --group"),
        (["--group", "a", "old0.h5"], "only one group, 'a'"),
        (["--group", "a", "--group", "b", "old0.h5"], "'a' has no profile"),
        (["--group", "a", "old0.h5", "--group", "a", "old0.h5"], "'a' is given twice"),
        (["old0.h5", "new0.h5", "--regression", "speed=5%"], "'speed' is not a quantity; give wall_s"),
        (["old0.h5", "new0.h5", "--regression", "wall_s"], "not NAME=LIMIT"),
        (["old0.h5", "new0.h5", "--regression", "wall_s=-5%"], "not NAME=LIMIT"),
    ],
)
def test_wrong_calls_are_one_line(runs, capsys, words, message):
    assert main(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
