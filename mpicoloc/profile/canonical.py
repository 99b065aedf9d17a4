"""The content of an HDF5 file as one stream of bytes, whatever its layout on disk.

Groups, datasets and attributes in the order of their names; numbers little-endian, texts with their lengths.
Chunks, compression, the order of writing and free space do not show, so ``h5repack`` changes nothing. Every
piece is preceded by its length, and every value by its type and shape, which say how many pieces it has, so
that two different contents never give the same stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from mpicoloc.core.tables import printable
from mpicoloc.errors import DataError

Feed = Callable[[bytes], None]
Left = Callable[[str, str | None], bool]
"""Whether to leave out an object (its path, None) or one of its attributes (path, name)."""

VERSION = b"mpicoloc canonical 2"
_ROWS = 1 << 16
MAX_OBJECTS = 1000
MAX_BYTES = 1 << 32
"""A small file can unfold to any size; whoever reads those of others stops here."""


class _Walk:
    """The way through one file: where its pieces go, and how much it was."""

    def __init__(self, to: Feed, left_out: Left) -> None:
        self.to = to
        self.left_out = left_out
        self.n_objects = 0
        self.n_bytes = 0

    def piece(self, content: bytes) -> None:
        self.to(len(content).to_bytes(8, "little") + content)

    def text(self, text: str) -> None:
        self.piece(text.encode("utf-8", "surrogateescape"))

    def kind(self, kind: str, shape: tuple[int, ...]) -> None:
        self.text(kind)
        self.text("x".join(map(str, shape)))

    def cell(self, cell: Any) -> None:
        content = cell if isinstance(cell, bytes) else str(cell).encode("utf-8", "surrogateescape")
        # Many cells may share one text of the file.
        self.count_bytes(len(content))
        self.piece(content)

    def count_object(self, path: str) -> None:
        self.n_objects += 1
        if self.n_objects > MAX_OBJECTS:
            where = printable(path)
            raise DataError(f"more than {MAX_OBJECTS} groups and tables at {where}: no profile has so many")

    def count_bytes(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        if self.n_bytes > MAX_BYTES:
            raise DataError(f"more than {MAX_BYTES >> 20} MiB of content; run the job without --trace")


def feed(file: h5py.File, to: Feed, left_out: Left) -> None:
    """Hand the content to `to`, piece by piece.

    Raises
    ------
    DataError
        If there is something in it whose content lies elsewhere or has no fixed form: links to other files,
        references, named types; or more than any profile has.
    """
    walk = _Walk(to, left_out)
    walk.piece(VERSION)
    _object(walk, file, "/")


def sha256(file: h5py.File, left_out: Left) -> str:
    """Digest of the content, hexadecimal."""
    digest = hashlib.sha256()
    feed(file, digest.update, left_out)
    return digest.hexdigest()


def _object(walk: _Walk, item: h5py.Group | h5py.Dataset, path: str) -> None:
    is_group = isinstance(item, h5py.Group)
    walk.count_object(path)
    walk.piece(b"group" if is_group else b"dataset")
    walk.text(path)
    names = sorted(name for name in item.attrs if not walk.left_out(path, name))
    walk.piece(b"%d attributes" % len(names))
    for name in names:
        walk.text(name)
        _attribute(walk, item.attrs[name], f"attribute {name} of {path}")
    if is_group:
        _members(walk, item, path)
    else:
        _dataset(walk, item, path)


def _members(walk: _Walk, group: h5py.Group, path: str) -> None:
    below = {name: f"{path.rstrip('/')}/{name}" for name in group}
    names = sorted(name for name in below if not walk.left_out(below[name], None))
    walk.piece(b"%d members" % len(names))
    for name in names:
        where = printable(below[name])
        kind = group.get(name, getclass=True, getlink=True)
        if kind is not h5py.HardLink:
            raise DataError(f"{where} is a link ({kind.__name__}), which has no content of its own")
        item = group[name]
        if not isinstance(item, h5py.Group | h5py.Dataset):
            raise DataError(f"{where} is a {type(item).__name__}, which no profile has")
        walk.text(name)
        _object(walk, item, below[name])


def _attribute(walk: _Walk, value: Any, where: str) -> None:
    if isinstance(value, str | bytes):
        walk.kind("text", ())
        walk.cell(value)
        return
    array = np.asarray(value)
    walk.kind(form(array.dtype, where), array.shape)
    _cells(walk, array)


def _dataset(walk: _Walk, dataset: h5py.Dataset, path: str) -> None:
    if dataset.shape is None or dataset.external or dataset.is_virtual:
        raise DataError(f"{printable(path)} has no content in this file")
    kind = dataset.dtype
    walk.count_bytes(int(dataset.size or 0) * kind.itemsize)
    walk.kind(form(kind, path), dataset.shape)
    if not dataset.shape:
        _cells(walk, np.asarray(dataset[()], dtype=kind))
        return
    # Nothing says how long the texts of a row are before they are read.
    n_rows = 1 if kind.hasobject else _ROWS
    for start in range(0, dataset.shape[0], n_rows):
        _cells(walk, dataset[start : start + n_rows])


def _cells(walk: _Walk, array: np.ndarray[Any, Any]) -> None:
    if array.dtype.kind != "O":
        walk.piece(np.ascontiguousarray(array.astype(packed(array.dtype))).tobytes())
        return
    for cell in array.ravel():
        walk.cell(cell)


def packed(kind: np.dtype[Any]) -> np.dtype[Any]:
    """The same type, little-endian and without holes between its columns."""
    if kind.names is None:
        return kind.newbyteorder("<")
    return np.dtype([(name, packed(kind[name])) for name in kind.names])


def form(kind: np.dtype[Any], where: str) -> str:
    """A type in words: ``u8``, ``S12``, ``text`` or ``(name:i4,...)``.

    Raises
    ------
    DataError
        If it is none of those that profiles have.
    """
    if kind.names is not None and kind.hasobject:
        # Its bytes would be addresses, other ones in each process.
        raise DataError(f"{printable(where)} has a column of texts without a length, which no profile has")
    if kind.names is not None:
        # Lengths before the names, which may have any character in them.
        return "(" + ",".join(f"{len(name)}:{name}:{form(kind[name], where)}" for name in kind.names) + ")"
    if kind.kind in "iufbS":
        return f"{kind.kind}{kind.itemsize}"
    if kind.kind == "O" and h5py.check_string_dtype(kind) is not None:
        return "text"
    raise DataError(f"{printable(where)} has type {kind}, which no profile has")
