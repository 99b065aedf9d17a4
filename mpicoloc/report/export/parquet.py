"""All tables as Parquet files, which nearly every program for tables reads."""

from __future__ import annotations

import pyarrow.parquet as pq

from mpicoloc.profile.frames import Frames
from mpicoloc.report.export import columnar


def write(job: Frames, out: str) -> list[str]:
    """Write the tables of `job` to the folder `out`; what it returns is what is missing, in words."""
    return columnar.write(
        job, out, ".parquet", lambda path, schema: pq.ParquetWriter(path, schema, compression="zstd")
    )
