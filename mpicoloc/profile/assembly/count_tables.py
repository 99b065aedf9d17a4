"""What the meter count saw on one node: the places in the program, and their passes at each shutter."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicoloc.core.tables import COUNT_WINDOWS, Table, table
from mpicoloc.pmpi import contract


def places_and_counts(node: np.void | None) -> dict[str, Table]:
    """The tables "places" and "counts"; empty if nothing was counted.

    A place that belongs to several sets is one row of "places".
    """
    if node is None or not node["counts"]["n_rows"]:
        return {"places": table("places"), "counts": table("counts")}
    counts = node["counts"]
    rows_of_sets, places = _places(counts)
    return {"places": places, "counts": _counts(node, rows_of_sets)}


def _places(counts: np.void) -> tuple[list[list[int]], Table]:
    """For each set the rows of its places, and the table."""
    known: dict[tuple[int, int], int] = {}
    rows_of_sets = []
    for places_of_set in counts["sets"][: int(counts["n_sets"])]:
        found = places_of_set["places"][: int(places_of_set["n"])]
        keys = [(int(place["i_path"]), int(place["offset"])) for place in found]
        rows_of_sets.append([known.setdefault(key, len(known)) for key in keys])
    paths = [contract.text(path) for path in counts["paths"]]
    columns: dict[str, list[Any]] = {
        "path": [paths[i_path] for i_path, _ in known],
        "offset": [offset for _, offset in known],
    }
    return rows_of_sets, table("places", columns)


def _counts(node: np.void, rows_of_sets: list[list[int]]) -> Table:
    begins = {int(row["epoch"]): int(row["t0"]) for row in node["shutters"][: int(node["n_shutters"])]}
    counts = node["counts"]
    rows = counts["rows"][: int(counts["n_rows"])]
    rows = rows[[int(row["epoch"]) in begins and int(row["i_set"]) < len(rows_of_sets) for row in rows]]
    rows = rows[np.argsort(rows["epoch"], kind="stable")]
    n_places = [len(rows_of_sets[int(i_set)]) for i_set in rows["i_set"]]
    passes = [row["n"][:, :n] for row, n in zip(rows, n_places, strict=True)]
    stacked = np.concatenate(passes, axis=1) if passes else np.zeros((len(COUNT_WINDOWS), 0), np.uint32)
    columns = {
        "t0_ns": np.repeat([begins[int(epoch)] for epoch in rows["epoch"]], n_places),
        "place": [row for i_set in rows["i_set"] for row in rows_of_sets[int(i_set)]],
        **{f"n_{when}": stacked[i] for i, when in enumerate(COUNT_WINDOWS)},
    }
    return table("counts", columns)
