"""All tables as Parquet files in one folder, with units and meanings of columns; facts in ``facts.json``."""

from __future__ import annotations

import itertools
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mpicoloc.core.profile import COLUMNS, Column, Table, text
from mpicoloc.core.progress import stage
from mpicoloc.errors import DataError
from mpicoloc.profile.frames import Frames
from mpicoloc.show import outputs
from mpicoloc.trace.export import json_file
from mpicoloc.trace.reader import Trace

_N_AT_ONCE = 1 << 20


def write(job: Frames, out: str) -> list[str]:
    """Write a file for each table of `job` to the folder `out`.

    Result: sentences on missing data.
    """
    profile = job.profile
    found = json_file.facts(profile)
    meta = {"mpicoloc": json.dumps(found, allow_nan=False)}
    notes = []
    with outputs.folder(out) as folder:
        with outputs.text_file(os.path.join(folder, "facts.json")) as file:
            json.dump(found, file, indent=1, allow_nan=False)
            file.write("\n")
        for name, columns in COLUMNS.items():
            schema = pa.schema([_field(column) for column in columns], metadata=meta)
            with _open(os.path.join(folder, f"{name}.parquet"), schema) as writer:
                _write(profile.tables[name], schema, writer)
        try:
            trace = job.trace if job.is_traced else None
        except DataError as error:
            notes.append(f"no trace.parquet: {error}")
        else:
            if trace is not None:
                with stage("writing the trace", trace.n_events, "events"):
                    _write_trace(trace, os.path.join(folder, "trace.parquet"))
    return notes


def _write_trace(trace: Trace, path: str) -> None:
    """Every call of ``--trace all``, piece by piece."""
    pieces = (pa.Table.from_pandas(frame, preserve_index=False) for frame in trace.frames())
    first = next(pieces, None)
    if first is not None:
        with _open(path, first.schema) as writer:
            for piece in itertools.chain([first], pieces):
                writer.write_table(piece)


def _open(path: str, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, compression="zstd")


def _field(column: Column) -> pa.Field:
    kind = np.dtype(column.type)
    arrow = pa.string() if kind.kind == "S" else pa.from_numpy_dtype(kind)
    return pa.field(column.name, arrow, metadata={"unit": column.unit, "meaning": column.meaning})


def _write(array: Table, schema: pa.Schema, writer: pq.ParquetWriter) -> None:
    for i in range(0, len(array), _N_AT_ONCE):
        piece = array[i : i + _N_AT_ONCE]
        columns = [_column(piece[field.name], field) for field in schema]
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _column(cells: np.ndarray, field: pa.Field) -> pa.Array:
    if cells.dtype.kind == "S":
        words, row = np.unique(cells, return_inverse=True)
        return pa.array([*map(text, words)], pa.string()).take(pa.array(row.ravel()))
    # NaN means not measured: null in Arrow.
    mask = np.isnan(cells) if cells.dtype.kind == "f" else None
    return pa.array(np.ascontiguousarray(cells), field.type, mask=mask)
