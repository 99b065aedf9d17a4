"""The page of benchmarks is made of the result files, and printed tables find their way into these."""

import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import tables

    yield tables
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture
def results(tables, tmp_path, monkeypatch):
    """A copy of the result files, which a test may change."""
    folder = shutil.copytree(tables.RESULTS, tmp_path / "results")
    monkeypatch.setattr(tables, "RESULTS", folder)
    return folder


def test_the_page_is_what_the_result_files_give(tables):
    assert tables.PAGE.read_text() == tables.page(), "run python benchmarks/tables.py"


def test_every_result_is_on_the_page_with_machine_and_date(tables):
    assert {file.stem for file in tables.RESULTS.rglob("*.json")} == set(tables.there())
    for name in tables.there():
        result = tables.read(name)
        assert result["machine"] and result["date"] and result["title"]
        for table in result["tables"]:
            assert {len(row) for row in table["rows"]} == {len(table["columns"])}, name
            assert len(table["formats"]) == len(table["columns"]), name


def test_files_stay_as_they_are_when_nothing_changes(tables, results):
    before = {file: file.read_text() for file in results.rglob("*.json")}
    for name in tables.there():
        tables.write(name, tables.read(name))
    assert before == {file: file.read_text() for file in results.rglob("*.json")}


def test_a_printed_table_takes_the_place_of_the_one_with_its_columns(tables, results):
    columns = tables.read("calls")["tables"][1]["columns"]
    cells = ["MPI_Comm_rank", "1.5", *["-1,234 [-2.5, 4.0]"] * (len(columns) - 3), "-"]
    lines = [columns, ["---"] * len(columns), cells]
    printed = (
        "round 1\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n| other |\n| --- |\n| 1 |\n"
    )
    assert tables.take("calls", printed, "a machine", "2030-01-02") == 1
    found = json.loads((results / "calls.json").read_text())
    assert found["tables"][1]["rows"] == [
        ["MPI_Comm_rank", 1.5, *[[-1234.0, -2.5, 4.0]] * (len(columns) - 3), None]
    ]
    assert (found["machine"], found["date"]) == ("a machine", "2030-01-02")
    assert "-1,234 [-2.5, 4.0]" in tables.section("calls") and "*a machine, 2030-01-02.*" in tables.section(
        "calls"
    )


def test_a_unit_of_all_cells_stands_in_the_head(tables):
    table = {
        "columns": ["program", "error", "time", "width"],
        "formats": [None, "{:+.1f} %", None, "{:.1f} %"],
        "rows": [["a", 1.0, "2 s", [1.0, 0.5, 1.5]], ["b", None, "3 ms", 2.0]],
    }
    assert tables.markdown(table).splitlines() == [
        "| program | error, % | time | width |",
        "|---|---|---|---|",
        "| a | +1.0 | 2 s | 1.0 % [0.5 %, 1.5 %] |",
        "| b | - | 3 ms | 2.0 % |",
    ]


def test_all_rows_are_shown_when_their_number_changed(tables, results):
    table = tables.read("calls")["tables"][0]
    assert len(table["shown"]["rows"]) < len(table["rows"])
    lines = [table["columns"], ["---"] * 8, ["MPI_Comm_rank", *["1.5"] * 7], ["MPI_Test", *["2.5"] * 7]]
    printed = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    assert tables.take("calls", printed, "a machine", "2030-01-02") == 1
    assert "| MPI_Comm_rank | 1.5 |" in tables.section("calls")
    assert "| MPI_Test | 2.5 |" in tables.section("calls")


def test_pairs_that_are_wrong_are_on_the_page(tables, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "toggled")
    import toggled_tables

    published = tables.read("accuracy-toggled")["tables"]
    assert [one["shown"] for one in toggled_tables.selected(*published)] == [
        one["shown"] for one in published
    ]
    sums, pairs = ([one["rows"][i] for i in one["shown"]["rows"]] for one in published)
    assert {one[0] for one in sums} == {one[0] for one in published[0]["rows"]}
    wrong = [one for one in published[1]["rows"] if one[3] == "result" and one[7] == "no"]
    assert all(one in pairs for one in wrong)


def test_a_table_with_other_columns_changes_nothing(tables, results):
    before = (results / "calls.json").read_text()
    assert tables.take("calls", "| a |\n| --- |\n| 1 |\n", "a machine", "2030-01-02") == 0
    assert (results / "calls.json").read_text() == before
