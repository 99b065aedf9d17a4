"""Bubbles' benchmark: who runs where, and how productions are compared with curves."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def bubbles():
    before = list(sys.path)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import bubbles

    yield bubbles
    sys.path[:] = before


@pytest.fixture
def mpirun(tmp_path):
    """A launcher that calls itself Open MPI, in a folder without its compiler."""
    path = tmp_path / "mpirun.openmpi"
    path.write_text("#!/bin/sh\necho mpirun Open MPI 4.1.4\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("n_ranks", [1, 2, 5])
def test_target_and_co_runner_have_a_processor_for_each_rank(bubbles, mpirun, monkeypatch, n_ranks):
    monkeypatch.setattr(bubbles.programs.os, "sched_getaffinity", lambda pid: set(range(3, 15)))
    target, co_runner = bubbles.launchers(mpirun, n_ranks)
    assert len(target.cores) == len(co_runner.cores) == target.n_ranks == n_ranks
    assert not set(target.cores) & set(co_runner.cores)
    assert target.command(bubbles.programs.Program("a", ("a",))) == [
        mpirun, "--bind-to", "none", "-n", str(n_ranks), "a"]  # fmt: skip


def test_too_few_processors_are_refused(bubbles, mpirun, monkeypatch):
    monkeypatch.setattr(bubbles.programs.os, "sched_getaffinity", lambda pid: {0, 1, 2})
    with pytest.raises(SystemExit, match="needs 4 processors"):
        bubbles.launchers(mpirun, 2)


def test_without_compiler_a_binary_that_was_put_there_serves(bubbles, mpirun, tmp_path):
    launcher, binary = bubbles.programs.Launcher(mpirun, (0,)), tmp_path / "heat2d"
    with pytest.raises(FileNotFoundError):
        launcher.compile(ROOT / "examples" / "heat2d.c", binary)
    binary.touch()
    assert launcher.compile(ROOT / "examples" / "heat2d.c", binary) == str(binary)


def curve(levels, slowdown):
    return {"levels": levels, "slowdown": slowdown, "low": slowdown, "high": slowdown}


def test_productions_are_compared_at_the_levels_that_both_have(bubbles):
    production = curve([0.0, 2.0, 4.0, 7.5], [1.0, 1.1, 1.8, 9.0])
    assert bubbles.difference(production, curve([0.0, 2, 3, 4], [1.0, 1.0, 5.0, 2.0])) == pytest.approx(0.1)


def test_the_table_has_difference_overhead_and_reasons(bubbles):
    line = {"overhead_frac": 0.0151, "score": {"reason": "the probe ran in 2 shutters, 6 needed"}}
    found = {
        "production": {
            "lmp": {**line, **curve([0.0, 2.0], [1.0, 1.1]), "score": {"value": 3.2}},
            "heat2d": {**line, **curve([0.0, 2.0], [1.0, 1.3])},
            "hog": {**line, "reason": "no bubble ran"},
        },
        "curve": {"lmp": curve([0.0, 2.0], [1.0, 1.0])},
    }
    lmp, heat2d, hog, mean = bubbles.production_lines(found)
    assert "score 3.20; overhead 1.51 %; mean difference to its curve 10.0 %" in lmp
    assert "the probe ran in 2 shutters" in heat2d and "difference" not in heat2d
    assert hog.endswith("no curve: no bubble ran")
    assert mean == "1 productions: mean difference 10.0 %"


def bullies_and_victims(names):
    """Programs a and b press, and slow all others: by 40 % as predicted, by 20 % in truth."""
    estimate = {"low": 0.0, "high": 0.0, "n": 9}
    return {
        "score": {name: {**estimate, "score": 8.0 * (name in "ab")} for name in names},
        "curve": {name: curve([0.0, 8.0], [1.0, 1.0 if name in "ab" else 1.4]) for name in names},
        "pair": {
            f"{a}+{b}": {"value": 1.2 if a not in "ab" and b in "ab" else 1.0, "low": 0.9, "high": 1.1}
            for a in names for b in names if a != b
        },
    }  # fmt: skip


def test_the_best_placement_is_that_of_the_predictions_and_its_gain_that_of_the_pairs(bubbles):
    found = bullies_and_victims("abcd")
    [(_, best, worst)] = bubbles.placements(found)
    assert set(best) == {"a+b", "b+a", "c+d", "d+c"} and not set(worst) & set(best)
    line, mean = bubbles.placement_lines(found)
    assert line.endswith("gain predicted 0.200, measured +0.100")
    assert mean == "1 mixes: gain predicted 0.200, measured +0.100 +-0.071"


def test_pairs_that_several_mixes_share_count_once_in_the_error(bubbles):
    found = bullies_and_victims("abcde")
    weights = dict.fromkeys(found["pair"], 0)
    for _, best, worst in bubbles.placements(found):
        for name, sign in [(name, 1) for name in worst] + [(name, -1) for name in best]:
            weights[name] += sign
    assert min(weights.values()) < -1  # a beside b is best in three of five mixes
    half = 0.1 * sum(weight**2 for weight in weights.values()) ** 0.5 / 20
    assert list(bubbles.placement_lines(found))[-1].endswith(f"+-{half:.3f}")
