"""Files of plain values and arrays: zips of .npy files that `numpy.load` reads.

The plain values are JSON text in the array `head`. The author of a file need not be trusted: no code in a
file is run, and the sizes of arrays are checked against the size of the file before they are used.
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
"""Largest total size of all arrays."""
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
    """Write a file atomically.

    Raises `EnvironmentFault` if the file cannot be written.
    """
    text = json.dumps({"format": form, "version": version, **header}, allow_nan=False).encode()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, head=np.frombuffer(text, np.uint8), **arrays)  # type: ignore[arg-type]
    try:
        hdf5.replace(os.fspath(path), buffer.getvalue())
    except EnvironmentFault as error:
        reason = getattr(error.__cause__, "strerror", None) or "the system refuses"
        raise EnvironmentFault(f"cannot write {os.fspath(path)}: {reason}; choose another path") from error


def read(path: str | os.PathLike[str], form: str, version: int) -> tuple[dict[str, Any], dict[str, Array]]:
    """The plain values and arrays in a file.

    Raises `DataError` if the file does not exist, is damaged, or has another format or version. Raises
    `EnvironmentFault` if it cannot be opened.
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
            f"{name} is an {form} of version {found[1]!r}, but this mpicoloc reads version {version}: create "
            "the file again"
        )
    return told, arrays


def damaged(path: str, form: str, error: BaseException) -> DataError:
    """The error for a damaged file."""
    reason = (str(error) or type(error).__name__).splitlines()[0][:200]
    return DataError(f"{path} is damaged or is not an {form}: {reason}; create or copy the file again")


def _opened(path: str) -> BinaryIO:
    try:
        return elf.open_regular(path)
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}") from error
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise DataError(f"{path} is not a file; give the name of a file") from error
        raise EnvironmentFault(f"cannot open {path}: {error.strerror}") from error


def _arrays(file: BinaryIO) -> dict[str, Array]:
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        n_bytes = sum(info.file_size for info in infos)
        if len(infos) > _MAX_ARRAYS or n_bytes > MAX_BYTES:
            raise ValueError(f"{len(infos)} arrays with a total of {n_bytes:,} bytes exceed the limits")
        return {info.filename.removesuffix(".npy"): _array(archive.read(info)) for info in infos}


def _array(content: bytes) -> Array:
    """Parse a .npy file: a header of version 1, then exactly the numbers that the header describes."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array is in an unknown version of the .npy format")
    shape, is_fortran, kind = np.lib.format.read_array_header_1_0(file)
    n = 1
    for length in shape:
        n *= length
    if is_fortran or kind.kind not in "biufS" or n * kind.itemsize != len(content) - file.tell():
        raise ValueError(f"the size of an array does not match its type {kind} and shape {shape}")
    return np.frombuffer(content, kind, offset=file.tell()).reshape(shape)


def cast(array: Array, kind: str) -> Array:
    """The array as another type of the same kind of numbers.

    Raises `TypeError` if the array has another kind, such as floats for integers.
    """
    return array.astype(kind, casting="same_kind", copy=False)
