"""Fitted models in files: arrays and a card, and no code: a stranger's file can do nothing but predict."""

from __future__ import annotations

import os
from typing import Any

from mpicoloc.errors import DataError
from mpicoloc.pairing import arrays_file
from mpicoloc.pairing.serialize import StoredModel, from_document, to_document

FORMAT = "mpicoloc slowdown model"
VERSION = 1


def write(model: StoredModel, path: str | os.PathLike[str]) -> None:
    """Write a model; errors as of `pairing.arrays_file.write`."""
    told, arrays = to_document(model)
    arrays_file.write(path, FORMAT, VERSION, told, arrays)


def read(path: str | os.PathLike[str]) -> StoredModel:
    """Read a model.

    Raises `DataError` if there is no such file, it is damaged, no model, or of another version. Raises
    `EnvironmentFault` if the system refuses to open it.
    """
    told, arrays = arrays_file.read(path, FORMAT, VERSION)
    try:
        return from_document(told, arrays)
    except DataError as error:
        raise arrays_file.damaged(os.fspath(path), FORMAT, error) from error


def card(model: StoredModel) -> dict[str, Any]:
    """What people want to know of a model, as plain values."""
    told, _ = to_document(model)
    return {name: told[name] for name in ("kind", "machine", "n_rows", "band")} | told["card"]
