"""Training sets in files: jobs, their features (NaN: not measured), and the rows of slowdowns.

`numpy.load(path)` gives ``names`` (n_features,), ``values`` (n_jobs, n_features), and the columns of
`core.training.ROW_COLUMNS` as ``rows.target``, ``rows.co_runner``, ``rows.slowdown``, ...
"""

from __future__ import annotations

import os
from dataclasses import asdict

import numpy as np

from mpicoloc.core.features import JobFeatures
from mpicoloc.core.machine import machine_from_values
from mpicoloc.core.training import ROW_COLUMNS, ROW_DTYPE, TrainingSet
from mpicoloc.errors import DataError
from mpicoloc.pairing import arrays_file

FORMAT = "mpicoloc training set"
VERSION = 1


def write(training: TrainingSet, path: str | os.PathLike[str]) -> None:
    """Write a training set; errors as of `arrays_file.write`."""
    names = sorted({name for job in training.jobs for name in job.values})
    values = [[job.values.get(name, np.nan) for name in names] for job in training.jobs]
    told = {
        "machine": None if training.machine is None else asdict(training.machine),
        "layout": training.layout,
        "names": names,
        "jobs": [[job.id, job.program, job.runtime_s, job.n_cores, job.n_ranks] for job in training.jobs],
    }
    arrays = {"values": np.array(values, float).reshape(len(training.jobs), len(names))}
    arrays |= {"names": np.array([name.encode() for name in names], "S")}
    arrays |= {f"rows.{column.name}": training.rows[column.name] for column in ROW_COLUMNS}
    arrays_file.write(path, FORMAT, VERSION, told, arrays)


def read(path: str | os.PathLike[str]) -> TrainingSet:
    """Read a training set; errors as of `arrays_file.read`."""
    told, arrays = arrays_file.read(path, FORMAT, VERSION)
    try:
        values = arrays_file.cast(arrays["values"], "f8")
        if values.shape != (len(told["jobs"]), len(told["names"])):
            raise ValueError("features of other jobs")
        jobs = tuple(
            JobFeatures(
                str(name),
                str(program),
                float(runtime_s),
                int(n_cores),
                int(n_ranks),
                {
                    str(key): value
                    for key, value in zip(told["names"], row, strict=True)
                    if not np.isnan(value)
                },
            )
            for (name, program, runtime_s, n_cores, n_ranks), row in zip(
                told["jobs"], values.tolist(), strict=True
            )
        )
        rows = np.zeros(arrays["rows.target"].shape, ROW_DTYPE)
        for column in ROW_COLUMNS:
            if column.name != "key" or "rows.key" in arrays:  # which files of earlier versions have not
                rows[column.name] = arrays_file.cast(arrays[f"rows.{column.name}"], column.type)
        # Files of earlier versions have no layout.
        return TrainingSet(jobs, rows, machine_from_values(told["machine"]), told.get("layout", ""))
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, DataError) as error:
        raise arrays_file.damaged(os.fspath(path), FORMAT, error) from error
