"""All tables as files of Arrow's columns in one folder, with units and meanings; facts in ``facts.json``."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from mpicoloc.core.progress import part
from mpicoloc.core.tables import COLUMNS, Column, Table, text
from mpicoloc.errors import DataError
from mpicoloc.profile.frames import Frames
from mpicoloc.report.export import facts, outputs
from mpicoloc.trace.trace import Trace

_N_AT_ONCE = 1 << 20


class Writer(Protocol):
    """What takes the tables of a file, and is closed at the end of a with-block."""

    def __enter__(self) -> Writer: ...

    def __exit__(self, *trouble: object) -> object: ...

    def write_table(self, table: pa.Table) -> None:
        """The next rows."""


Opener = Callable[[str, pa.Schema], Writer]
"""Path and columns to the writer of a file."""


def write(job: Frames, out: str, suffix: str, opener: Opener) -> list[str]:
    """Write a file for each table of `job` to the folder `out`.

    Parameters
    ----------
    job : Frames
    out : str
        Folder, new or empty.
    suffix : str
        Of the files' names, with its dot.
    opener : callable
        What begins a file.

    Returns
    -------
    list of str
        What is missing, in words.
    """
    profile = job.profile
    found = facts.facts(profile)
    meta = {"mpicoloc": json.dumps(found, allow_nan=False)}
    notes = []
    with outputs.folder(out) as folder:
        with outputs.text_file(os.path.join(folder, "facts.json")) as file:
            json.dump(found, file, indent=1, allow_nan=False)
            file.write("\n")
        for name, columns in COLUMNS.items():
            schema = pa.schema([_field(column) for column in columns], metadata=meta)
            with opener(os.path.join(folder, name + suffix), schema) as writer:
                _write(profile.tables[name], schema, writer)
        try:
            trace = job.trace if job.is_traced else None
        except DataError as error:
            notes.append(f"no trace{suffix}: {error}")
        else:
            if trace is not None:
                with part("writing the trace", trace.n_events, "events"):
                    _write_trace(trace, os.path.join(folder, f"trace{suffix}"), opener)
    return notes


def _write_trace(trace: Trace, path: str, opener: Opener) -> None:
    """Every call of ``--trace all``, piece by piece."""
    pieces = (pa.Table.from_pandas(frame, preserve_index=False) for frame in trace.frames())
    first = next(pieces, None)
    if first is not None:
        with opener(path, first.schema) as writer:
            for piece in itertools.chain([first], pieces):
                writer.write_table(piece)


def _field(column: Column) -> pa.Field:
    kind = np.dtype(column.type)
    arrow = pa.string() if kind.kind == "S" else pa.from_numpy_dtype(kind)
    return pa.field(column.name, arrow, metadata={"unit": column.unit, "meaning": column.meaning})


def _write(array: Table, schema: pa.Schema, writer: Writer) -> None:
    for i in range(0, len(array), _N_AT_ONCE):
        piece = array[i : i + _N_AT_ONCE]
        columns = [_column(piece[field.name], field) for field in schema]
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _column(cells: np.ndarray, field: pa.Field) -> pa.Array:
    if cells.dtype.kind == "S":
        words, row = np.unique(cells, return_inverse=True)
        return pa.array([*map(text, words)], pa.string()).take(pa.array(row.ravel()))
    # NaN means that it was not measured, which Arrow has a value for
    mask = np.isnan(cells) if cells.dtype.kind == "f" else None
    return pa.array(np.ascontiguousarray(cells), field.type, mask=mask)
