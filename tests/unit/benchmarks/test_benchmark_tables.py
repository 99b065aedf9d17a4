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
    columns = tables.read("calls")["tables"][0]["columns"]
    cells = ["MPI_Comm_rank", "1.5", *["-1,234 [-2.5, 4.0]"] * (len(columns) - 3), "-"]
    lines = [columns, ["---"] * len(columns), cells]
    printed = (
        "round 1\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n| other |\n| --- |\n| 1 |\n"
    )
    assert tables.take("calls", printed, "a machine", "2030-01-02") == 1
    found = json.loads((results / "calls.json").read_text())
    assert found["tables"][0]["rows"] == [
        ["MPI_Comm_rank", 1.5, *[[-1234.0, -2.5, 4.0]] * (len(columns) - 3), None]
    ]
    assert (found["machine"], found["date"]) == ("a machine", "2030-01-02")
    assert "-1,234 [-2.5, 4.0]" in tables.section("calls") and "*a machine, 2030-01-02.*" in tables.section(
        "calls"
    )


def test_a_table_with_other_columns_changes_nothing(tables, results):
    before = (results / "calls.json").read_text()
    assert tables.take("calls", "| a |\n| --- |\n| 1 |\n", "a machine", "2030-01-02") == 0
    assert (results / "calls.json").read_text() == before
