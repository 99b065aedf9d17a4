"""Tables of a profile as compound datasets, each column's unit and meaning beside it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from mpicoloc.core.profile import COLUMNS, ROWS, Column, Table, dtype, frozen, printable, text

# Text as an attribute of HDF5, by h5py's lower half: the upper one takes six times as long.
#
# A profile has some 400 of them, units and meanings, and a job waits in MPI_Finalize until they are written.


def write_text(owner: h5py.HLObject, name: str, words: str) -> None:
    """Give `owner` an attribute that it does not have yet: text of fixed length, which every reader knows."""
    value = np.array(words.encode() or b"\0", dtype=np.bytes_)
    attribute = h5py.h5a.create(owner.id, name.encode(), _type_of(value.itemsize), _scalar())
    attribute.write(value)


@functools.cache
def _scalar() -> h5py.h5s.SpaceID:
    return h5py.h5s.create(h5py.h5s.SCALAR)


@functools.cache
def _type_of(n_bytes: int) -> h5py.h5t.TypeID:
    return h5py.h5t.py_create(np.dtype(f"S{n_bytes}"), logical=True)


MAX_BYTES = 1 << 32
"""Most bytes of a file's tables, all together; a file of a few kilobytes can unfold to any size."""
_MAX_RATIO = 1100
"""What gzip packs best of all, 1032, and a little more: a larger table has parts that were never written."""
_MAX_CHUNK_BYTES = 1 << 26
# Higher levels save 1 to 4 % of the size for 1.4 to 9 times the time, which
# the job spends at its end; codecs of hdf5plugin save time, but a reader without them cannot read the file.
STORED: Mapping[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
"""How HDF5 stores tables of at least `SMALL_BYTES`; shorter ones are one piece, as they are."""
SMALL_BYTES = 1 << 13
CHUNK_BYTES = 1 << 18


class MissingFilter(ValueError):
    """A table is compressed in a way that the HDF5 library here does not know."""


def write(file: h5py.File, name: str, array: Table) -> None:
    """Write table `name`."""
    dataset = file.create_dataset(name, data=array, **stored(array))
    write_text(dataset, "description", ROWS[name])
    for column in COLUMNS[name]:
        write_text(dataset, f"{column.name}.unit", column.unit)
        write_text(dataset, f"{column.name}.description", column.meaning)


def stored(array: Table) -> dict[str, Any]:
    """Arguments of ``h5py.Group.create_dataset`` for a table."""
    if array.nbytes < SMALL_BYTES:
        return {}
    return {"chunks": (min(len(array), CHUNK_BYTES // array.itemsize),), **STORED}


def read(file: h5py.File, name: str) -> Table:
    """Table `name`.

    Raises `LookupError`, `ValueError`, `TypeError` if there is none, it is no table, too large, has other
    columns than those of this version, or a number that is none.
    """
    dataset = _dataset(file, name)
    if set(dataset.dtype.names or ()) != set(dtype(name).names or ()):
        raise ValueError(f"table {name} has not the columns that this version of mpicoloc writes")
    array = dataset[()]
    result = np.empty(array.shape, dtype(name))
    for column in COLUMNS[name]:
        check(name, column, array[column.name])
        result[column.name] = array[column.name]
    return frozen(result)


def check(name: str, column: Column, values: np.ndarray[Any, Any]) -> None:
    """See to it that a profile may have these values in a column.

    Raises `ValueError` if they are of another type, or one of them is no number.
    """
    if not np.can_cast(values.dtype, column.type, "same_kind"):
        raise ValueError(f"table {name} has a {column.name} of type {values.dtype}")
    numbers = values if values.dtype.kind == "f" else np.zeros(0)
    if np.isinf(numbers).any() or (np.isnan(numbers).any() and not column.has_gaps):
        raise ValueError(f"table {name} has a {column.name} that is no number")


def own(group: h5py.Group, name: str) -> Any:
    """A member of a group, if the file itself has it.

    Raises `ValueError` if it is a link, which may lead to another file: one that only the reader may read, or
    a pipe. Raises `LookupError` if there is none.
    """
    if name in group and group.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
        raise ValueError(f"{printable(group.name.rstrip('/'))}/{name} is a link, which no profile has")
    return group[name]


def _dataset(file: h5py.File, name: str) -> h5py.Dataset:
    dataset = own(file, name)
    # h5py makes the type anew whenever it is asked for it.
    kind = dataset.dtype if isinstance(dataset, h5py.Dataset) else np.dtype("V")
    if not kind.names or len(dataset.shape or ()) != 1:
        raise ValueError(f"{name} is no table")
    if not {kind[column].kind for column in kind.names} <= set("iufS"):
        raise ValueError(f"table {name} has columns that no profile has")
    whole = dataset.size * kind.itemsize
    chunk = int(np.prod(dataset.chunks or (0,))) * kind.itemsize
    if whole > MAX_BYTES or chunk > _MAX_CHUNK_BYTES:
        raise ValueError(f"table {name} has {max(whole, chunk):,} bytes, more than any profile")
    _check_storage(dataset, name)
    return dataset


def _check_storage(dataset: h5py.Dataset, name: str) -> None:
    if dataset.is_virtual or dataset.external:
        raise ValueError(f"table {name} has its rows in another file")
    _check_filters(dataset, name)
    if dataset.size * dataset.dtype.itemsize > _MAX_RATIO * dataset.id.get_storage_size() + _MAX_CHUNK_BYTES:
        raise ValueError(f"table {name} has rows that were never written")


def _check_filters(dataset: h5py.Dataset, name: str) -> None:
    stored_how = dataset.id.get_create_plist()
    for i in range(stored_how.get_nfilters()):
        number, _, _, about = stored_how.get_filter(i)
        if not h5py.h5z.filter_avail(number):
            words = printable(text(about).split(";")[0])[:40]
            raise MissingFilter(f"table {name} is compressed by a plugin that is not here: {number}, {words}")


def n_bytes(file: h5py.File, name: str) -> int:
    """Size of table `name` in memory, as the file has it; errors as of `read`."""
    dataset = _dataset(file, name)
    return int(dataset.size) * int(dataset.dtype.itemsize)


def check_total(file: h5py.File) -> None:
    """See to it that all tables together are no more than `MAX_BYTES`.

    Raises `ValueError` if they are; also as of `read`.
    """
    total = sum(n_bytes(file, name) for name in COLUMNS)
    if total > MAX_BYTES:
        raise ValueError(f"its tables have {total:,} bytes, more than any profile")
