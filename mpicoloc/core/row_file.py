"""Rows of a user's CSV or JSON file."""

from __future__ import annotations

import csv
import difflib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TextIO, TypeAlias

from mpicoloc.core.slowdown import LEAST_SLOWDOWN
from mpicoloc.errors import DataError, UsageError

MAX_BYTES = 1 << 30
_CLOSE = 0.65
"""Least `difflib` ratio at which an unknown column is taken for a misspelt one."""
MOST_SLOWDOWN = 20.0
"""A larger slowdown than this is refused if it has no interval, because it may be a percentage."""
_PLAIN_DEGRADATION = 0.9
"""If all values of a file are below 1 and one is below this, they are degradations, not slowdowns near 1."""
_LEAST_PERCENT, _PLAIN_PERCENT = 2.0, 10.0
"""Values of a file are taken for percentages if all are at least the first number, one is at least the
second, and none has an interval."""


def number_of(path: str, i: int, name: str, told: object) -> float:
    """The number in column `name` of row `i` of a file; NaN if the cell is empty.

    Raises `DataError` if it is not a finite number.
    """
    if told is None or told == "":
        return math.nan
    try:
        if isinstance(told, bool) or not isinstance(told, str | int | float):
            raise ValueError
        if math.isinf(number := float(told)):
            raise ValueError
    except (ValueError, OverflowError):
        remedy = ": write a point, not a comma" if isinstance(told, str) and "," in told else ""
        raise DataError(f"{path}: row {i}: {name} must be a finite number, got {told!r}{remedy}") from None
    return number


Cell: TypeAlias = tuple[int, str, float, float, float]
"""Row, column, slowdown, and both ends of its interval (NaN: none)."""


def check_slowdowns(path: str, cells: Sequence[Cell], *, has_intervals: bool = True) -> None:
    """Raise `DataError` if the slowdowns of a file are degradations or percentages.

    `has_intervals`: files of this kind have columns for the ends of intervals. Files of other kinds hold
    means of few measurements, and noise may put all of these below 1.
    """
    values = [value for _, _, value, _, _ in cells if not math.isnan(value)]
    are_degradations = has_intervals and max(values, default=1.0) < 1 and min(values) < _PLAIN_DEGRADATION
    are_percentages = min(values, default=1.0) >= _LEAST_PERCENT and max(values) >= _PLAIN_PERCENT
    are_percentages &= all(math.isnan(low + high) for *_, low, high in cells)
    for i, name, value, low, high in cells:
        if value < LEAST_SLOWDOWN or are_degradations:
            remedy = "for a degradation D = 1 - T_solo/T_co write 1 / (1 - D), for a job that is not slowed 1"
        elif are_percentages or (value > MOST_SLOWDOWN and math.isnan(low + high)):
            remedy = "for P percent longer write 1 + P / 100"
            remedy += "; a slowdown that large needs the ends of its interval" if has_intervals else ""
        else:
            continue
        raise DataError(f"{path}: row {i}: {name} must be T_co/T_solo, got {value:g}: {remedy}")


def table_rows(path: str, key: str, known: set[str], needed: set[str]) -> Sequence[Mapping[str, Any]]:
    """Rows of a CSV or JSON file, as mappings by column or key.

    Raises `UsageError` if the file cannot be read. Raises `DataError` if it is malformed, or a row lacks a
    column of `needed`.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = _json_rows(path, key, file) if path.endswith(".json") else _csv_rows(file)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error, json.JSONDecodeError, RecursionError) as error:
        kind = "JSON" if path.endswith(".json") else "CSV"
        raise DataError(f"{path} is not {kind}: {error}") from None
    columns = list(rows[0]) if rows else []
    # Skip names with digits: like level_2_low, they belong to a series of names that are all similar.
    for name in (one for one in columns if isinstance(one, str) and one not in known):
        if any(letter.isdigit() for letter in name):
            continue
        if meant := difflib.get_close_matches(name, known.difference(columns), 1, _CLOSE):
            raise DataError(f"{path}: column {name!r} is not known: did you mean {meant[0]}?")
    for i, row in enumerate(rows, 1):
        missing = sorted(name for name in needed if row.get(name) in (None, ""))
        if missing:
            found = ", ".join(map(str, columns))[:200]
            raise DataError(
                f"{path}: row {i} has no {missing[0]}: known columns are {', '.join(sorted(known))}, "
                f"but the file has {found}"
            )
    return rows


def _csv_rows(file: TextIO) -> list[dict[str, str]]:
    """Rows of a CSV file. Spreadsheets separate columns by semicolons or tabs where commas are decimal."""
    header = file.readline()
    separator = next((one for one in ",;\t" if one in header), ",")
    return list(csv.DictReader(itertools.chain((header,), file), delimiter=separator))


def _json_rows(path: str, key: str, file: TextIO) -> list[dict[str, Any]]:
    text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise DataError(f"{path} has more than {MAX_BYTES:,} bytes, too many for a list of {key}")
    told = json.loads(text)
    rows = told.get(key) if isinstance(told, dict) else told
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f'{path}: needs a list of objects, or {{"{key}": [...]}}')
    return rows
