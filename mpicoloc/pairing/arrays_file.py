"""Files of plain values and arrays: a zip of .npy files, as `numpy.load` reads; `head` is a JSON text.

Whoever reads one need not trust whoever wrote it: nothing in it is run, and no size is believed before it was
checked against that of the file.
"""

from __future__ import annotations

import errno
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.pmpi import elf
from mpicoloc.profile import hdf5

Array = np.ndarray[Any, Any]
MAX_BYTES = 1 << 30
"""Most bytes of all arrays."""
_MAX_ARRAYS = 64
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, MemoryError, NotImplementedError),
    *(LookupError, ValueError, TypeError, RuntimeError, ArithmeticError, AttributeError, SyntaxError),
)
"""Errors that zipfile, NumPy, JSON and a reader's own checks raise on a damaged file."""


def write(
    path: str | os.PathLike[str],
    form: str,
    version: int,
    header: Mapping[str, Any],
    arrays: Mapping[str, Array],
) -> None:
    """Write a file; it has this name only when it is whole.

    Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    text = json.dumps({"format": form, "version": version, **header}, allow_nan=False).encode()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, head=np.frombuffer(text, np.uint8), **arrays)  # type: ignore[arg-type]
    try:
        hdf5.replace(os.fspath(path), buffer.getvalue())
    except EnvironmentFault as error:
        reason = getattr(error.__cause__, "strerror", None) or "the system refuses"
        raise EnvironmentFault(f"cannot write {os.fspath(path)}: {reason}; choose another place") from error


def read(path: str | os.PathLike[str], form: str, version: int) -> tuple[dict[str, Any], dict[str, Array]]:
    """The plain values and arrays of a file.

    Raises `DataError` if there is no such file, it is damaged, something else, or of another version. Raises
    `EnvironmentFault` if the system refuses to open it.
    """
    name = os.fspath(path)
    with _opened(name) as file:
        try:
            arrays = _arrays(file)
            told = json.loads(arrays.pop("head").tobytes())
            found = told.get("format"), told.get("version")
        except _DAMAGE as error:
            raise damaged(name, form, error) from error
    if found[0] != form:
        raise DataError(f"{name} is not an {form}")
    if found[1] != version:
        raise DataError(
            f"{name} has version {found[1]!r} of a {form}, this mpicoloc reads {version}: make it again"
        )
    return told, arrays


def damaged(path: str, form: str, error: BaseException) -> DataError:
    """The error of a file that is not as it was written."""
    reason = (str(error) or type(error).__name__).splitlines()[0][:200]
    return DataError(f"{path} is damaged or no {form}: {reason}; make it again, or copy it again")


def _opened(path: str) -> BinaryIO:
    try:
        return elf.open_regular(path)
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}") from error
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise DataError(f"{path} is not a file; give the name of one") from error
        raise EnvironmentFault(f"cannot open {path}: {error.strerror}") from error


def _arrays(file: BinaryIO) -> dict[str, Array]:
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        n_bytes = sum(info.file_size for info in infos)
        if len(infos) > _MAX_ARRAYS or n_bytes > MAX_BYTES:
            raise ValueError(f"{len(infos)} arrays of {n_bytes:,} bytes are more than any has")
        return {info.filename.removesuffix(".npy"): _array(archive.read(info)) for info in infos}


def _array(content: bytes) -> Array:
    """One .npy file: header of version 1, then the numbers, no more and no less."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array of another version")
    shape, is_fortran, kind = np.lib.format.read_array_header_1_0(file)
    n = 1
    for length in shape:
        n *= length
    if is_fortran or kind.kind not in "biufS" or n * kind.itemsize != len(content) - file.tell():
        raise ValueError(f"an array of type {kind} and shape {shape} that is not there")
    return np.frombuffer(content, kind, offset=file.tell()).reshape(shape)


def cast(array: Array, kind: str) -> Array:
    """The array as another type of numbers, if none of them changes by that.

    Raises `TypeError` if it is of another kind.
    """
    return array.astype(kind, casting="same_kind", copy=False)
