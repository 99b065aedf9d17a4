"""Files of curves and of jobs to be placed: round trips, and one line for what is wrong."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mpicoloc.bubble import curves_file
from mpicoloc.core.bubbles import JobRequest, ProgramPressure, SensitivityCurve, pressure_score
from mpicoloc.errors import DataError, UsageError

LEVELS = np.arange(9.0)
HEAD = "program,score," + ",".join(f"level_{i}" for i in range(1, 9))


def pressure(name, slope=0.1, policy=None):
    value = 1 + slope * LEVELS
    curve = SensitivityCurve(name, LEVELS, value, value - 0.01 * LEVELS, value + 0.02 * LEVELS, 40, "offline")
    return ProgramPressure(name, curve, pressure_score(3.25, 3.0, 3.5, 12), policy)


def same(one, other):
    assert (one.program, one.score, one.policy) == (other.program, other.score, other.policy)
    for name in ("levels", "slowdown", "low", "high"):
        assert np.array_equal(getattr(one.curve, name), getattr(other.curve, name))
    assert (one.curve.n, one.curve.source) == (other.curve.n, other.curve.source)


def test_what_is_written_is_read(tmp_path):
    path = str(tmp_path / "curves.csv")
    curves_file.write(path, [pressure("lu", policy="n-max"), pressure("cg, twice", 0.2)])
    found = curves_file.read(path)
    same(found["lu"], pressure("lu", policy="n-max"))
    same(found["cg, twice"], pressure("cg, twice", 0.2))


def test_columns_without_intervals_are_certain(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text(f"{HEAD}\nlu,2.5,1.1,1.2,1.3,1.4,1.5,1.6,1.7,1.8\n")
    found = curves_file.read(str(path))["lu"]
    assert found.policy is None
    assert (found.score.low, found.score.value, found.score.high) == (2.5, 2.5, 2.5)
    assert found.curve.at(0.5).value == pytest.approx(1.05)
    assert found.curve.at(8).high == 1.8


def test_a_program_is_measured_by_halves_and_both_stay(tmp_path):
    path, whole = str(tmp_path / "curves.csv"), pressure("lu")
    curves_file.update(path, "lu", score=whole.score)
    with pytest.raises(DataError, match="lu has no curve yet: measure it with `mpicoloc bubble sensitivity"):
        curves_file.read(path)
    curves_file.update(path, "lu", curve=whole.curve)
    same(curves_file.read(path)["lu"], whole)
    curves_file.update(path, "cg", curve=whole.curve)
    with pytest.raises(DataError, match="cg has no score yet"):
        curves_file.read(path)


def test_two_that_update_one_file_lose_nothing(tmp_path):
    path, whole = str(tmp_path / "curves.csv"), pressure("lu")
    names = [f"p{i}" for i in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: curves_file.update(path, name, whole.curve, whole.score), names))
    assert sorted(curves_file.read(path)) == sorted(names)


def test_a_file_that_cannot_be_updated_is_told_first(tmp_path):
    with pytest.raises(UsageError, match="would be written as CSV"):
        curves_file.check_update(str(tmp_path / "curves.json"))
    assert curves_file.check_update(str(tmp_path / "new.csv")) == {}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("lu,9,1,1,1,1,1,1,1,1", r"row 1: score of lu must be in \[0, 8\], got 9"),
        ("lu,1,x,1,1,1,1,1,1,1", "row 1: level_1 must be a finite number, got 'x'"),
        ("lu,1,-1,1,1,1,1,1,1,1", "row 1: level_1 must be T_co/T_solo, got -1"),
        ("lu,1,inf,1,1,1,1,1,1,1", "row 1: level_1 must be a finite number, got .inf"),
        (",1,1,1,1,1,1,1,1,1", "row 1 has no program"),
        ("lu,1,1,1,1,1,1,1,1,1\nlu,1,1,1,1,1,1,1,1,1", "row 2: program 'lu' appears twice"),
        ("", "lists no program"),
    ],
)
def test_a_wrong_row_is_told_in_one_line(tmp_path, row, words):
    path = tmp_path / "curves.csv"
    path.write_text(f"{HEAD}\n{row}\n" if row else f"{HEAD}\n")
    with pytest.raises(DataError, match=words) as caught:
        curves_file.read(str(path))
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_a_policy_that_nobody_knows_is_told(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text("program,score,level_8,policy\nlu,1,1.5,most\n")
    with pytest.raises(DataError, match="policy must be one of n-max, n-plus-1-max, all-max, interpolate"):
        curves_file.read(str(path))


def test_jobs_are_read_in_order(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("id,program,n_nodes\nb,lu,4\na,cg,\n")
    assert curves_file.jobs(str(path)) == [JobRequest("b", "lu", 4), JobRequest("a", "cg", 1)]


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ("a,lu,0", DataError, "n_nodes must be a whole number of at least 1, got '0'"),
        ("a,lu,1.5", DataError, "n_nodes must be a whole number"),
        ("a,lu,1\na,cg,1", DataError, "job 'a' appears twice"),
        ("a,,1", DataError, "row 1 has no program"),
        ("", UsageError, "has no job"),
    ],
)
def test_a_wrong_job_is_told(tmp_path, rows, error, words):
    path = tmp_path / "jobs.csv"
    path.write_text(f"id,program,n_nodes\n{rows}\n" if rows else "id,program,n_nodes\n")
    with pytest.raises(error, match=words):
        curves_file.jobs(str(path))
