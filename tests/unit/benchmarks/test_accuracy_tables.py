import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
SETUP = {"kind": "setup", "layout": "apart", "seconds": 60.0, "meter": "auto", "machine": "m"}


def profile(wall_s, slowdown, reason=None, overhead_frac=0.01):
    fair_su = wall_s / max(slowdown[0] if slowdown else 1.0, 1.0) ** 2
    estimate = slowdown and dict(zip(("value", "low", "high"), slowdown, strict=True), n=9, method="loop")
    shutters = {"n_taken": 10, "n_used": 9, "overhead_frac": overhead_frac}
    return {
        "job": {"wall_s": wall_s},
        "interference": {"slowdown": estimate, "reason": reason, "shutters": shutters},
        "price": {"runtime_su": wall_s, "fair_su": fair_su},
    }


def line(kind, target, co_runner, wall_s, data=None):
    names = [target, co_runner] if co_runner else [target]
    return {"kind": kind, "round": 0, "pair": names, "target": target, "co_runner": co_runner, "size": 7,
            "command_s": wall_s + 1.0, "wall_s": wall_s, "profile": data}  # fmt: skip


def matrix(ab):
    """a with b as told; of b, slowed by 1.5, the estimate is 1.5 too."""
    return [SETUP, line("solo", "a", None, 10.0), line("solo", "b", None, 10.0),
            line("with", "a", "b", 12.0, ab),
            line("with", "b", "a", 15.0, profile(15.0, (1.5, 1.4, 1.6)))]  # fmt: skip


@pytest.fixture
def tables(tmp_path):
    """Exit code, tables and complaints of a file of such lines."""

    def run(lines):
        file = tmp_path / "lines.jsonl"
        file.write_text("".join(json.dumps(one) + "\n" for one in lines))
        command = [sys.executable, str(BENCHMARKS / "accuracy_tables.py"), str(file)]
        return subprocess.run(command, capture_output=True, text=True)

    return run


def rows(text, heading, first):
    """Cells of the lines that begin with `first`, of the table after that text."""
    lines = text[text.index(heading) :].splitlines()
    table = [tuple(cell.strip() for cell in one.strip("|").split("|")) for one in lines if one[:1] == "|"]
    return [row for row in table if row[: len(first)] == first]


def test_figures_are_of_the_same_runs_and_have_means(tables):
    done = tables(matrix(profile(12.0, (1.32, 1.1, 1.4))))
    assert done.returncode == 0, done.stderr
    ten = rows(done.stdout, "Figure 10", ("a",))[0], rows(done.stdout, "Figure 10", ("mean",))[0]
    assert ten == (("a", "-", "+0.0 %", "+0.0 %"), ("mean", "+10.0 %", "+0.0 %", "+5.0 %"))
    eleven = rows(done.stdout, "Figure 11", ("b",))[0], rows(done.stdout, "Figure 11", ("mean",))[0]
    assert eleven == (("b", "+20.0 %", "-", "+20.0 %"), ("mean", "+20.0 %", "+50.0 %", "+35.0 %"))
    # T_co/T_solo 1.2, estimated 1.32: 1.2 / 1.32^2 and 1 / 1.2.
    assert rows(done.stdout, "Figure 12", ("a", "b")) == [("a", "b", "1.200", "0.689", "0.833")]
    assert "mean absolute error 5.0 %, worst 10.0 %" in done.stdout
    assert "2 of 2 intervals hold the truth" in done.stdout


def test_too_wide_an_interval_holds_no_truth(tables):
    done = tables(matrix(profile(12.0, (1.2, 0.5, 3.0))))
    assert "1 of 2 wider than a factor of 2" in done.stdout
    assert "1 of 2 intervals hold the truth" in done.stdout


@pytest.mark.parametrize(
    ("data", "text"),
    [(None, "no profile"), (profile(12.0, None, "too few passes", None), "too few passes")],
)
def test_cell_without_profile_or_estimate_is_told_and_spoils_no_other(tables, data, text):
    done = tables(matrix(data))
    assert done.returncode == 0, done.stderr
    cell = rows(done.stdout, "target", ("a", "b"))[0]
    assert cell[6] == "null" and text in cell
    assert rows(done.stdout, "Figure 10", ("mean",))[0] == ("mean", "-", "+0.0 %", "+0.0 %")
    assert "1 of 1 intervals hold the truth" in done.stdout


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([{**SETUP, "layout": "shared"}], "layout 'apart' and 'shared'"),
        ([{**line("solo", "a", None, 11.5), "size": 8}], "a has sizes 7 and 8"),
    ],
)
def test_two_experiments_in_one_file_are_refused_in_one_line(tables, lines, text):
    done = tables([*matrix(None), *lines])
    assert done.returncode == 1 and text in done.stderr and done.stderr.count("\n") == 1


def test_lines_without_a_setup_are_refused(tables):
    done = tables(matrix(None)[1:])
    assert done.returncode == 1 and done.stderr.count("\n") == 1


def test_long_shutters_are_the_truth_where_they_were_measured(tables):
    reference = profile(30.0, None)
    reference["interference"]["corun"] = {"value": 1.25, "low": 1.2, "high": 1.3}
    done = tables([*matrix(profile(12.0, (1.3, 1.1, 1.4))), line("long", "a", "b", 30.0, reference)])
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout, "Figure 10", ("mean",))[0] == ("mean", "+4.0 %", "-", "+4.0 %")
    assert "against long shutters: mean absolute error 4.0 %, worst 4.0 %" in done.stdout
