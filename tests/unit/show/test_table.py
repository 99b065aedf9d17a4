import math
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from mpicoloc.core.plain_values import plain
from mpicoloc.core.profile import Estimate
from mpicoloc.show import table
from mpicoloc.show.table import Column

FOUND = Estimate(1.25, 1.2, 1.3, 4, "1", "burst")
COLUMNS = (
    Column("job", is_name=True),
    Column("slowdown", "found", ".3f"),
    Column("95 %", "found", table.interval, missing=""),
    Column("twice", lambda row: None if isinstance(row, np.void) else 2),
)


@dataclass
class Job:
    job: str
    found: Estimate | None


def lines(rows, capsys):
    Console(width=80).print(table.listing(COLUMNS, rows, "jobs", ["a [note]"]))
    return [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("kind", [Job, lambda job, found: {"job": job, "found": found}])
def test_rows_of_every_kind_are_a_line_each(kind, capsys):
    shown = lines([kind("[a]\x1b", FOUND), kind("b", None)], capsys)
    assert ["[a]?", "1.250", "1.200", "to", "1.300", "2"] in shown
    assert ["b", "-", "2"] in shown and ["a", "[note]"] in shown


@pytest.mark.parametrize(
    ("low", "high", "form", "words"),
    [
        (1.2, 1.3, ".2f", "1.20 to 1.30"),
        (1.2499, 1.2502, ".3f", "1.2499 to 1.2502"),
        (0.2499, 0.2501, ".1%", "24.99% to 25.01%"),
        (1249.9, 1250.1, ".4g", "1249.9 to 1250.1"),
        (1.25, 1.25 + 1e-12, ".3f", "-"),
        (1.25, 1.25, ".3f", "-"),
    ],
)
def test_the_ends_of_an_interval_differ_or_there_is_none(low, high, form, words):
    found = Estimate((low + high) / 2, low, high, 4, "1", "burst")
    assert table.interval(found, form) == words
    assert (" to " in table.with_interval(found, form)) == (words != "-")


def test_rows_of_a_profiles_table(capsys):
    rows = np.array([(b"c", math.nan)], [("job", "S8"), ("found", "f8")])
    assert ["c", "-", "-"] in lines(rows, capsys)


def test_plain_values_are_json():
    values = {"one": Job("a", FOUND), "many": (np.array([1.0, math.inf]), np.int64(3), math.nan)}
    estimate = {"value": 1.25, "low": 1.2, "high": 1.3, "n": 4, "method": "burst"}
    assert plain(values) == {"one": {"job": "a", "found": estimate}, "many": [[1.0, None], 3, None]}


@pytest.mark.parametrize("rows", [[{"a": 1}, {"a": 2, "b": "x"}], {"a": np.array([1, 2]), "b": [None, "x"]}])
def test_parquet_has_the_columns_of_all_rows(rows, tmp_path):
    table.write_parquet(rows, tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
