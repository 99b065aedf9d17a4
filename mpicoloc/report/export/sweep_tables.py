"""A sweep as a Parquet file: of replays a row for each job of each combination."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mpicoloc.errors import EnvironmentFault

NAME = "sweep.parquet"
_OF_ROW = ("j_inter_host_s", "total_contention_s", "routing", "n_packet_hops", "wall_s")


def write(rows: Sequence[dict[str, Any]], folder: str) -> None:
    """Write `rows` of `report.terminal.simulated.sweep.show` to `NAME` in a folder.

    An earlier table is replaced.

    The columns are the swept flags, the keys of a job, and those of a row that are one number or word.

    Raises
    ------
    EnvironmentFault
        If the folder or the disk refuses.
    """
    records = [
        {**row["settings"], **job, **{name: row[name] for name in _OF_ROW}}
        for row in rows
        for job in row["jobs"]
    ]
    replace(records, folder)


def replace(records: Sequence[dict[str, Any]], folder: str, name: str = NAME) -> None:
    """Write a table in place of an earlier one; the columns are the keys of the first record.

    Raises
    ------
    EnvironmentFault
        If the folder or the disk refuses.
    """
    path = os.path.join(folder, name)
    part = f"{path}.{os.getpid()}.part"
    try:
        pq.write_table(pa.Table.from_pylist(records), part, compression="zstd")
        os.replace(part, path)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path}: {error.strerror}; choose another --out") from None
