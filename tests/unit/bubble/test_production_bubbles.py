"""Curves from shutters in which a bubble ran: their intervals, and reasons where there is no curve."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import sample
from json_output import documented, without_meaning
from loops import Program, simulate

from mpicoloc.bubble import curves_file, shutters as bubbled_shutters
from mpicoloc.bubble.shutters import (
    MIN_PROBES,
    MIN_SOLO,
    bubbled_slowdowns,
    from_tables,
    mean_curve,
    mean_score,
    probe_score,
    why_none,
)
from mpicoloc.cli import main
from mpicoloc.core.bubbles import SensitivityCurve, pressure_score
from mpicoloc.core.profile import COUNT_WINDOWS, VERDICTS, table
from mpicoloc.measure import count
from mpicoloc.measure.count import paces
from mpicoloc.pairing.features import job_features
from mpicoloc.profile import figures, hdf5
from mpicoloc.profile.history import history, records
from mpicoloc.profile.merge import complete
from mpicoloc.show import figures as show_figures

LEVELS = (2.0, 4.0, 6.0, 8.0)
TRUTH = dict(zip(LEVELS, (1.05, 1.12, 1.3, 1.55), strict=True))


def bubbled(seed, n_shutters=80, frac=0.4, program=None, level=None):
    """Tables of a run in which bubbles slowed the job in some shutters, of these levels or random ones."""
    rng = np.random.default_rng(seed)
    run = simulate(rng, program or Program(n_shutters=n_shutters, duration_s=0.04))
    shutters, counts = run.shutters.copy(), run.counts.copy()
    if level is None:
        level = np.where(rng.random(len(shutters)) < frac, rng.choice(LEVELS, len(shutters)), 0.0)
    shutters["bubble_level"] = level
    shutters["verdict"][level > 0] = VERDICTS.index("bubbled")
    speed = {0.0: 1.0, **{one: 1 / slowdown for one, slowdown in TRUTH.items()}}
    of_shutter = {int(t0): speed[float(one)] for t0, one in zip(shutters["t0_ns"], level, strict=True)}
    factor = np.array([of_shutter[int(t0)] for t0 in counts["t0_ns"]])
    counts["n_during"] = np.round(counts["n_during"] * factor)
    return run, shutters, counts


def accuracy(tables_of):
    """Errors of the curves of 20 runs, and half the width of their intervals, which must hold the truth."""
    errors, inside, halves = [], [], []
    for seed in range(20):
        curve = bubbled_slowdowns("loops", *tables_of(seed)).curve
        assert curve.source == "production" and curve.program == "loops"
        truth = np.array([TRUTH[level] for level in curve.levels[1:].tolist()])
        errors += list(np.log(curve.slowdown[1:] / truth))
        inside += list((curve.low[1:] <= truth) & (truth <= curve.high[1:]))
        halves += list(np.log(curve.high[1:] / curve.low[1:]) / 2)
    assert np.mean(inside) >= 0.9
    return np.array(errors), np.mean(halves)


def test_the_intervals_hold_the_truth():
    errors, half = accuracy(lambda seed: bubbled(seed)[1:])
    assert abs(errors.mean()) < 0.01 and half < 0.12


def test_alone_each_shutter_is_compared_with_the_windows_before_it():
    """The program becomes slower and slower meanwhile, as its host does."""

    def slowing(seed):
        program = Program(n_shutters=60, duration_s=0.025, before_s=0.2, slowdown=(1.0, 1.0, 1.0))
        run, shutters, counts = bubbled(seed, frac=1.0, program=program)
        shutters["n_corunners"] = 0
        speed = np.interp(counts["t0_ns"], [0, run.shutters["t0_ns"][-1]], [1.0, 0.5])
        for when in COUNT_WINDOWS:
            counts[f"n_{when}"] = np.round(counts[f"n_{when}"] * speed)
        return shutters, counts

    assert abs(accuracy(slowing)[0].mean()) < 0.02


def test_what_shutters_share_with_the_windows_before_goes():
    """The host's speed differs by a third from shutter to shutter, and half of them have more company."""

    def uneven(seed):
        _, shutters, counts = bubbled(seed)
        rng = np.random.default_rng(seed)
        speed = np.exp(0.3 * rng.standard_normal(len(shutters)))
        shutters["n_corunners"] = 1 + (rng.random(len(shutters)) < 0.5)
        beside = speed / (1 + 0.2 * (shutters["n_corunners"] - 1))
        row = np.searchsorted(shutters["t0_ns"], counts["t0_ns"])
        for when in COUNT_WINDOWS:
            factor = speed if when == "during" else beside
            counts[f"n_{when}"] = np.round(counts[f"n_{when}"] * factor[row])
        return shutters, counts

    errors, half = accuracy(uneven)
    # By themselves eight shutters of a level would be known to 0.3 * 1.96 / sqrt(8) = 0.21.
    assert half < 0.15 and np.mean(np.abs(errors)) < 0.06


def test_few_shutters_of_many_levels_are_no_curve():
    level = np.zeros(40)
    level[:8] = np.arange(1, 9)
    _, shutters, counts = bubbled(1, 40, level=level % 2 * 2)
    assert bubbled_slowdowns("loops", shutters, counts).curve is None
    shutters["bubble_level"][:8] = np.arange(1, 9)
    shutters["verdict"][:8] = VERDICTS.index("bubbled")
    found = bubbled_slowdowns("loops", shutters, counts)
    assert found.curve is None and "of 8 levels, 13 needed" in found.reason


def on_two_nodes(seed):
    """Tables of a job on two nodes, with the same bubbles in its shutters on both."""
    _, *first = bubbled(seed)
    _, *second = bubbled(seed + 1000, level=first[0]["bubble_level"])
    for i, (shutters, counts) in enumerate((first, second)):
        shutters["i_node"] = counts["i_node"] = i
        shutters["common"] = 1 + np.arange(len(shutters))
    return [np.concatenate(pair) for pair in zip(first, second, strict=True)]


def test_a_shutter_of_several_nodes_is_one_sample():
    for seed in range(5):
        shutters, counts = on_two_nodes(seed)
        found = bubbled_slowdowns("loops", shutters, counts)
        n_bubbled = int((shutters["bubble_level"] > 0).sum()) // 2
        assert 0.8 * n_bubbled <= found.n_used <= n_bubbled
        truth = np.array([TRUTH[level] for level in found.curve.levels[1:].tolist()])
        assert found.curve.slowdown[1:] == pytest.approx(truth, rel=0.15)


def test_a_bubble_that_did_not_run_on_all_nodes_does_not_count():
    shutters, counts = on_two_nodes(1)
    is_missing = (shutters["i_node"] == 1) & (shutters["bubble_level"] == 4.0)
    shutters["bubble_level"][is_missing] = 0.0
    assert bubbled_slowdowns("loops", shutters, counts).curve.levels.tolist() == [0.0, 2.0, 6.0, 8.0]
    shutters["bubble_level"][shutters["i_node"] == 1] = 0.0
    found = bubbled_slowdowns("loops", shutters, counts)
    assert found.curve is None and "never on all" in found.reason


def test_alone_means_on_all_nodes():
    """One node has a co-runner: the pace before a shutter is no solo pace on the other one either."""
    shutters, counts = on_two_nodes(2)
    expected = bubbled_slowdowns("loops", shutters, counts).curve
    shutters["n_corunners"] = np.where(shutters["i_node"] == 0, 0, 1)
    found = bubbled_slowdowns("loops", shutters, counts).curve
    assert found.slowdown.tolist() == expected.slowdown.tolist()
    # Nor where the node with the co-runner was not counted.
    shutters["during_window_ns"][shutters["i_node"] == 1] = 0
    assert not paces(shutters[shutters["verdict"] == VERDICTS.index("valid")], counts).alone.any()


def test_probes_of_several_nodes_are_one_sample():
    one, other = probed(1, MIN_PROBES, 1.3, n_late=0), probed(2, MIN_PROBES, 1.3, n_late=0)
    both = np.concatenate([one, other])
    both["common"] = np.tile(1 + np.arange(MIN_PROBES), 2)
    both["i_node"] = np.repeat([0, 1], MIN_PROBES)
    levels = np.concatenate([bubble_levels(), bubble_levels()])
    levels["i_node"] = np.repeat([0, 1], 9)
    found, _ = probe_score(both, levels)
    assert found.n == MIN_PROBES and found.low <= 3.0 <= found.high
    missing = both.copy()
    missing["probe_slowdown"][-1] = 0.0
    reason = f"the probe ran in {MIN_PROBES - 1} shutters, {MIN_PROBES} needed"
    assert probe_score(missing, levels)[1] == reason
    levels["probe_slowdown"][-1] += 0.1
    assert "the nodes have different calibrations" in probe_score(both, levels)[1]


def test_the_reason_is_that_of_the_node_that_has_one():
    tables = sample.tables()
    nodes = np.concatenate([tables["nodes"], tables["nodes"]])
    nodes["hostname"] = b"n0", b"n1"
    nodes["bubble_reason"] = b"no shutter had counts yet", b"this machine is not calibrated"
    profile = complete(sample.job(), {**tables, "nodes": nodes}, rng=np.random.default_rng(0))
    assert why_none(profile) == "n1: this machine is not calibrated"


def test_a_bubble_does_not_touch_the_jobs_own_slowdown():
    run, shutters, counts = bubbled(3)
    found = count.slowdown(shutters, counts).slowdown
    untouched = run.shutters[shutters["bubble_level"] == 0]
    assert found == count.slowdown(untouched, run.counts).slowdown
    assert found.low <= run.truth <= found.high


PROBE_CURVE = 1 + np.arange(9) / 10


def bubble_levels():
    low = np.maximum(PROBE_CURVE - 0.01, 1) - 1e-9
    columns = {"probe_slowdown": PROBE_CURVE, "probe_low": low, "probe_high": PROBE_CURVE + 0.01}
    return table("bubble_levels", {"level": np.arange(9)} | columns)


def probed(seed, n_probes, slowdown, n_late=3):
    """Shutters in which the probe was slowed by so much, and some in which it had not all of its time."""
    rng = np.random.default_rng(seed)
    seen = np.zeros(n_probes + n_late)
    seen[:n_probes] = slowdown * np.exp(0.05 * rng.standard_normal(n_probes))
    verdict = np.full(len(seen), VERDICTS.index("bubbled"))
    return table("shutters", {"verdict": verdict, "probe_slowdown": seen})


@pytest.mark.parametrize(("slowdown", "level"), [(1.35, 3.5), (0.97, 0.0), (3.0, 8.0)])
def test_the_probes_slowdown_is_read_back(slowdown, level):
    errors, inside = [], []
    for seed in range(40):
        found, reason = probe_score(probed(seed, 20, slowdown), bubble_levels())
        assert not reason and found.n == 20 and found.unit == "level"
        errors.append(found.value - level)
        inside.append(found.low <= level <= found.high)
    assert abs(np.mean(errors)) < 0.15
    assert np.mean(inside) >= 0.9


def test_without_probes_or_their_curve_there_is_no_score():
    found, reason = probe_score(probed(1, MIN_PROBES - 1, 1.3), bubble_levels())
    assert found is None and f"{MIN_PROBES} needed" in reason
    found, reason = probe_score(probed(1, MIN_PROBES, 1.3), table("bubble_levels"))
    assert found is None and "lacks the slowdown of the probe beside bubbles" in reason


def test_scores_of_runs_add_up():
    one, other = (probe_score(probed(seed, 12, 1.35), bubble_levels())[0] for seed in (1, 2))
    both = mean_score([one, other])
    assert min(one.value, other.value) <= both.value <= max(one.value, other.value) and both.n == 24
    assert mean_score([one]).value == pytest.approx(one.value)
    assert 0 <= both.low <= both.value <= both.high <= 8


@pytest.mark.parametrize("end", [0.0, 8.0])
def test_a_score_at_an_end_of_the_scale_does_not_outweigh_the_others(end):
    """Its interval is cut off there, and may have no width at all."""
    both = mean_score([pressure_score(end, end, end, 10), pressure_score(3.0, 2.5, 3.5, 10)])
    assert abs(both.value - end) > 0.5 and both.low <= both.value <= both.high and both.low < both.high


def test_shutters_with_the_probe_count_neither_for_the_curve_nor_for_the_slowdown():
    _, shutters, counts = bubbled(3)
    is_probed = shutters["bubble_level"] == 8
    shutters["bubble_level"][is_probed] = 0.0
    shutters["probe_slowdown"][is_probed] = 1.3
    found = bubbled_slowdowns("loops", shutters, counts)
    assert found.curve.levels.tolist() == [0, 2, 4, 6]
    kept = shutters[~is_probed]
    assert count.slowdown(shutters, counts).slowdown == count.slowdown(kept, counts).slowdown


def test_more_shutters_of_one_level_narrow_its_interval():
    def half(n_shutters):
        curve = bubbled_slowdowns("loops", *bubbled(1, n_shutters)[1:]).curve
        return np.log(curve.high / curve.low)[1:].mean()

    assert half(320) < 0.7 * half(60)


def test_shutters_in_which_threads_waited_do_not_count():
    _, shutters, counts = bubbled(2)
    shutters["waited_frac"] = np.where(np.arange(len(shutters)) % 5 == 0, 0.5, 0.0)
    found = bubbled_slowdowns("loops", shutters, counts)
    assert found.n_used < found.n_taken == (shutters["bubble_level"] > 0).sum()


@pytest.mark.parametrize(
    ("n_shutters", "frac", "reason"),
    [
        (30, 0.0, "no bubble ran in its shutters"),
        (MIN_SOLO - 1, 0.5, f"fewer than {MIN_SOLO} without a bubble have co-runners"),
        (14, 0.3, "5 shutters with bubbles of 4 levels, 9 needed"),
    ],
)
def test_too_little_is_no_curve(n_shutters, frac, reason):
    found = bubbled_slowdowns("loops", *bubbled(5, n_shutters, frac)[1:])
    assert found.curve is None and reason in found.reason


def test_a_job_without_counts_has_no_curve():
    found = bubbled_slowdowns("loops", bubbled(4)[1], table("counts"))
    assert found.curve is None and "no shutter with a bubble has counts" in found.reason


def curve_of(slowdown, half=0.05, levels=(2.0, 4.0)):
    value = np.concatenate([[1.0], slowdown])
    ends = np.exp(np.where(value == 1.0, 0.0, half))
    columns = (np.concatenate([[0.0], levels]), value, value / ends, value * ends)
    return SensitivityCurve("loops", *columns, 6, "production")


def test_runs_of_one_program_add_up():
    one, other = curve_of([1.1, 1.3]), curve_of([1.2, 1.3])
    both = mean_curve([one, other])
    assert both.levels.tolist() == [0, 2, 4] and both.n == 12 and both.source == "production"
    assert both.slowdown[1] == pytest.approx(np.sqrt(1.1 * 1.2))
    width = np.log(both.high / both.low) / 2
    assert width[2] == pytest.approx(0.05 / np.sqrt(2))
    assert width[1] > 0.05  # they differ by more than their intervals say
    assert mean_curve([one]).high == pytest.approx(one.high)
    assert mean_curve([one, curve_of([1.5], levels=(8.0,))]).levels.tolist() == [0, 2, 4, 8]


def profile_of(command, seed, n_shutters=120):
    _, shutters, counts = bubbled(seed, n_shutters)
    tables = sample.tables(meter="count", n_shutters=n_shutters)
    is_probed = np.flatnonzero(shutters["bubble_level"])[:MIN_PROBES]
    shutters["bubble_level"][is_probed], shutters["probe_slowdown"][is_probed] = 0.0, 1.35
    tables = {**tables, "shutters": shutters, "counts": counts, "cycles": table("cycles")}
    tables["bubble_levels"] = bubble_levels()
    return complete(sample.job(command=command), tables, rng=np.random.default_rng(0))


def replace_shutters(profile, **columns):
    """The profile of the same job with these columns of its shutters."""
    shutters = profile.tables["shutters"].copy()
    for name, value in columns.items():
        shutters[name] = value
    return complete(profile.job, {**profile.tables, "shutters": shutters}, rng=np.random.default_rng(0))


def test_show_tells_the_curve(tmp_path, capsys):
    path = tmp_path / "job.h5"
    hdf5.write(profile_of("./loops 3", 1), path)
    assert main.main(["show", str(path)]) == 0
    text = capsys.readouterr().out
    assert "bubbles" in text and "beside level 8: 1." in text and "bubble score" in text and "3.5 (" in text
    assert main.main(["show", "--json", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)["bubbles"]
    assert told["levels"] == [0.0, *LEVELS] and told["n_used"] <= told["n_taken"]
    assert told["score"]["value"] == pytest.approx(3.5) and told["score"]["n"] == MIN_PROBES


def test_a_profile_has_the_curve_for_whoever_reads_it(tmp_path):
    profile = profile_of("./loops 3", 1)
    hdf5.write(profile, tmp_path / "job.h5")
    with h5py.File(tmp_path / "job.h5") as file:
        stored = file["sensitivity"][:]
    curve = from_tables(profile.tables, "loops").curve
    assert stored["level"].tolist() == [0.0, *LEVELS]
    for name in ("slowdown", "low", "high"):
        assert stored[name].tolist() == getattr(curve, name).tolist()
    hdf5.write(sample.profile(), tmp_path / "none.h5")
    with h5py.File(tmp_path / "none.h5") as file:
        assert len(file["sensitivity"]) == 0


def test_what_bubbles_cost_is_overhead():
    profile = profile_of("./loops 3", 1)
    shutters, curve = profile.tables["shutters"], from_tables(profile.tables, "loops").curve
    pressed_s = (shutters["t1_ns"] - shutters["epoch"]) * 1e-9
    lost_s = sum(
        seconds * (1 - 1 / curve.at(level).value)
        for seconds, level in zip(pressed_s, shutters["bubble_level"], strict=True)
        if level > 0
    )
    without = replace_shutters(profile, bubble_level=0.0, probe_slowdown=0.0)
    added = profile.interference.overhead_frac - without.interference.overhead_frac
    assert 0 < added == pytest.approx(lost_s / profile.job.wall_s)


def test_report_history_and_features_have_curve_and_score(tmp_path):
    profile = profile_of("./loops 3", 1)
    hdf5.write(profile, tmp_path / "job.h5")
    figure = figures.sensitivity(profile)
    assert show_figures.csv_text(figure).splitlines()[0] == "level,slowdown,low,high"
    assert [row[0] for row in figure.rows] == [0.0, *LEVELS] and "bubble of level 3.5" in figure.description
    assert show_figures._content(figure, "svg")
    assert figures.sensitivity(sample.profile()) is None
    (row,) = records(history(tmp_path))
    assert row["bubble_score"] == pytest.approx(3.5)
    assert row["bubble_slowdown_low"] <= row["bubble_slowdown"] == figure.rows[-1][1]
    values = job_features([profile]).values
    assert values["bubble_score_mean"] == row["bubble_score"]
    assert values["bubble_slowdown_mean"] == row["bubble_slowdown"]
    assert "bubble_score_mean" not in job_features([sample.profile()]).values


def test_collect_adds_up_profiles_and_writes_curves(tmp_path, capsys):
    paths = [tmp_path / f"{name}.h5" for name in ("one", "two", "none")]
    hdf5.write(profile_of("./loops 3", 1), paths[0])
    hdf5.write(profile_of("./loops 4", 2), paths[1])
    hdf5.write(sample.profile(), paths[2])
    curves = tmp_path / "curves.csv"
    words = ["bubble", "collect", "--json", "--curves", str(curves), *map(str, paths)]
    assert main.main(words) == 0
    said = capsys.readouterr()
    (told,) = json.loads(said.out)
    assert list(told) == list(documented("bubble collect")[0]) and not without_meaning(
        "bubble collect", [told]
    )
    assert told["program"] == "loops" and told["slowdown"][-1] == pytest.approx(TRUTH[8.0], rel=0.1)
    assert told["score"]["value"] == pytest.approx(3.5) and told["score"]["n"] == 2 * MIN_PROBES
    assert "none.h5: no curve" in said.err and "no bubble ran in its shutters" in said.err
    assert "no score" not in said.err, "no probe was wanted"
    assert curves_file.read(str(curves))["loops"].score.value == pytest.approx(3.5)
    hdf5.write(replace_shutters(profile_of("./loops 5", 3), probe_slowdown=0), paths[2])
    assert main.main(["bubble", "collect", *map(str, paths)]) == 0
    said = f"none.h5: no score of loops: the probe ran in 0 shutters, {MIN_PROBES} needed"
    assert said in capsys.readouterr().err
    hdf5.write(sample.profile(), paths[2])
    assert main.main(["bubble", "collect", str(paths[2])]) == 3
    assert "no profile has a curve or a score" in capsys.readouterr().err


def test_the_agents_reason_to_wait_is_known_here():
    source = Path(__file__).parents[3] / "csrc/agent/bubbles/bubbling.c"
    assert f'NOT_YET[] = "{bubbled_shutters._NOT_YET}"' in source.read_text()
