"""Read and write profiles as HDF5 files. For columns see mpicoloc/core/profile.py.

Facts are attributes of groups, tables are compound datasets, and each number has its unit beside it, so that
the file can be read without mpicoloc: h5dump, h5py, ``pandas.DataFrame(file["call_sites"][()])``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, BinaryIO, TypeVar

import h5py
import numpy as np

from mpicoloc.core.plain_values import checked_value
from mpicoloc.core.profile import (
    ADDED,
    COLUMNS,
    DROPPED,
    ROWS,
    SCHEMA_VERSION,
    Column,
    Estimate,
    Interference,
    Job,
    MeterResult,
    MpiSummary,
    Network,
    NetworkLevel,
    Price,
    Profile,
    Table,
    dtype,
    frozen,
    text,
)
from mpicoloc.errors import DataError, EnvironmentFault, printable
from mpicoloc.profile import checkpoints

# Text attributes are written through h5py's low-level API: the high-level one takes six times as long.
#
# A profile has some 400 such attributes (the units and meanings of columns), and the job waits in
# MPI_Finalize while they are written.


def write_text(owner: h5py.HLObject, name: str, words: str) -> None:
    """Add a new text attribute to `owner`. Its length is fixed, because every HDF5 reader supports that."""
    value = np.array(words.encode() or b"\0", dtype=np.bytes_)
    attribute = h5py.h5a.create(owner.id, name.encode(), _type_of(value.itemsize), _scalar_space())
    attribute.write(value)


@functools.cache
def _scalar_space() -> h5py.h5s.SpaceID:
    return h5py.h5s.create(h5py.h5s.SCALAR)


@functools.cache
def _type_of(n_bytes: int) -> h5py.h5t.TypeID:
    return h5py.h5t.py_create(np.dtype(f"S{n_bytes}"), logical=True)


MAX_BYTES = 1 << 32
"""Largest total size of a file's tables, bytes: a compressed file of a few kilobytes can expand to any
size."""
_MAX_RATIO = 1100
"""Slightly above gzip's best ratio, 1032. If a table has a higher ratio, parts of it were never written."""
_MAX_CHUNK_BYTES = 1 << 26
# Gzip level 1: higher levels save 1 to 4 % of the size, but take 1.4 to 9 times as long, while the job waits.
# Codecs of hdf5plugin are faster, but readers without that package could not read the file.
STORED: Mapping[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
"""Storage of tables of at least `SMALL_BYTES` in HDF5; smaller ones are contiguous and uncompressed."""
SMALL_BYTES = 1 << 13
CHUNK_BYTES = 1 << 18


class MissingFilter(ValueError):
    """A table is compressed by a filter that this HDF5 library lacks."""


class OtherColumns(ValueError):
    """A table has other columns than in this version of mpicoloc."""


def write_rows(file: h5py.File, name: str, array: Table) -> None:
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


def read_rows(file: h5py.File, name: str) -> Table:
    """Read table `name`; `ADDED` columns may be missing, and `DROPPED` ones are left out.

    Raises `LookupError`, `ValueError`, `TypeError` if the table is missing, is not a table, is too large, has
    columns of another version, or has NaN or infinity where a number is required.
    """
    dataset = _dataset(file, name)
    there, known = set(dataset.dtype.names or ()), set(dtype(name).names or ())
    if there - known - DROPPED.get(name, frozenset()) or known - there - ADDED.get(name, frozenset()):
        raise OtherColumns(f"table {name} has other columns than those that this version writes")
    array = dataset[()]
    result = np.zeros(array.shape, dtype(name))
    for column in COLUMNS[name]:
        if column.name not in there:
            continue
        check(name, column, array[column.name])
        result[column.name] = array[column.name]
    return frozen(result)


def check(name: str, column: Column, values: np.ndarray[Any, Any]) -> None:
    """Check the values of a profile's column.

    Raises `ValueError` if the values have another type, if one is infinite, or if one is NaN although the
    column cannot have gaps.
    """
    if not np.can_cast(values.dtype, column.type, "same_kind"):
        raise ValueError(f"column {column.name} of table {name} has the wrong type: {values.dtype}")
    numbers = values if values.dtype.kind == "f" else np.zeros(0)
    if np.isinf(numbers).any() or (np.isnan(numbers).any() and not column.has_gaps):
        raise ValueError(f"column {column.name} of table {name} has a value that is not a number")


def own(group: h5py.Group, name: str) -> Any:
    """A member of a group that is stored in the file itself.

    Raises `ValueError` if the member is a link. A link could point to another file, such as a pipe, or a file
    that this reader has permission to read but the profile's writer has not. Raises `LookupError` if there is
    no such member.
    """
    if name in group and group.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
        raise ValueError(f"{printable(group.name.rstrip('/'))}/{name} is a link, which no profile has")
    return group[name]


def _dataset(file: h5py.File, name: str) -> h5py.Dataset:
    dataset = own(file, name)
    # Access the type only once, because h5py builds it again on each access.
    kind = dataset.dtype if isinstance(dataset, h5py.Dataset) else np.dtype("V")
    if not kind.names or len(dataset.shape or ()) != 1:
        raise ValueError(f"{name} is not a table")
    if not {kind[column].kind for column in kind.names} <= set("iufS"):
        raise ValueError(f"table {name} has a column of an unsupported type")
    whole = dataset.size * kind.itemsize
    chunk = int(np.prod(dataset.chunks or (0,))) * kind.itemsize
    if whole > MAX_BYTES or chunk > _MAX_CHUNK_BYTES:
        raise ValueError(f"table {name} has {max(whole, chunk):,} bytes, more than a profile can have")
    _check_storage(dataset, name)
    return dataset


def _check_storage(dataset: h5py.Dataset, name: str) -> None:
    if dataset.is_virtual or dataset.external:
        raise ValueError(f"the rows of table {name} are in another file")
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
    """Size in memory of table `name` with its stored columns, bytes; raises the errors of `read_rows`."""
    dataset = _dataset(file, name)
    return int(dataset.size) * int(dataset.dtype.itemsize)


def check_total(file: h5py.File) -> None:
    """Check that all tables together have at most `MAX_BYTES`.

    Raises `ValueError` if they have more, and the errors of `read_rows`.
    """
    total = sum(n_bytes(file, name) for name in COLUMNS)
    if total > MAX_BYTES:
        raise ValueError(f"its tables have {total:,} bytes, more than a profile can have")


_UNITS = {"_s": "s", "_su": "SU", "_frac": "1", "_bytes": "bytes", "_ns": "ns", "_bps": "bytes/s"}
_MAX_BYTES = 1 << 20

Facts = TypeVar("Facts", Job, MpiSummary, Price, Interference, MeterResult, Estimate, Network, NetworkLevel)


def write_facts(group: h5py.Group, facts: Any) -> None:
    """Write each field as an attribute, and each estimate as a group. Fields that are None are left out."""
    for field in fields(facts):
        value = getattr(facts, field.name)
        if isinstance(value, Estimate):
            write_facts(group.create_group(field.name), value)
        if value is None or isinstance(value, Estimate | tuple):
            continue
        if isinstance(value, str):
            write_text(group, field.name, value)
        else:
            group.attrs[field.name] = value
        unit = next((unit for end, unit in _UNITS.items() if field.name.endswith(end)), None)
        if unit:
            write_text(group, f"{field.name}.unit", unit)


def read_facts(group: h5py.Group, kind: type[Facts], **given: Any) -> Facts:
    """Read the dataclass that `write_facts` wrote; fields in `given` are not read.

    Raises `LookupError`, `ValueError`, `TypeError`, `OverflowError` if a field without a default is missing,
    or a field has another type.
    """
    values = {field.name: _attribute(group, field) for field in fields(kind) if field.name not in given}
    return kind(**{name: value for name, value in values.items() if value is not MISSING}, **given)


def _attribute(group: h5py.Group, field: Field[Any]) -> Any:
    name = field.name.encode()
    if not h5py.h5a.exists(group.id, name):
        if str(field.type).endswith("| None"):
            return None
        if field.default is MISSING:
            raise KeyError(f"{group.name} has no attribute {field.name}")
        return MISSING
    return checked_value(field, _scalar(h5py.h5a.open(group.id, name)), group)


def _scalar(attribute: h5py.h5a.AttrID) -> Any:
    """The value of an attribute, read through h5py's low-level API: the other takes 3 times as long."""
    if attribute.shape or attribute.get_storage_size() > _MAX_BYTES:
        raise ValueError(f"attribute {attribute.name!r} is not a single value")
    cell = np.empty((), attribute.dtype)
    attribute.read(cell)
    value = cell[()]
    if isinstance(value, bytes | str):
        return text(value).rstrip("\0")
    return value.item() if isinstance(value, np.generic) else value


FORMAT = "mpicoloc profile"
TABLES = tuple(COLUMNS)
_GROWTH_BYTES = 1 << 20
"""Step by which a file in memory grows."""
_MAGIC = b"\x89HDF\r\n\x1a\n"
_DAMAGE = (OSError, LookupError, ValueError, TypeError, RuntimeError, ArithmeticError, AttributeError)
"""Errors that h5py, NumPy and this module raise on a damaged file."""

Content = bytes | BinaryIO
"""The bytes of a file, or an open file."""
Finish = Callable[[h5py.File], None]
"""The last step of writing a file."""


def write(profile: Profile, path: str | os.PathLike[str], finish: Finish | None = None) -> None:
    """Write `profile` to `path`; the file gets this name only once it is complete.

    Parameters
    ----------
    profile : Profile
        The profile to write.
    path : path
        File to write to.
    finish : callable, optional
        Called with the open file once everything is in it, to add a signature.

    Raises
    ------
    EnvironmentFault
        If the file cannot be written; no incomplete file is left behind.
    """
    _put(os.fspath(path), _encode(profile, finish), lambda handle: os.fchmod(handle, _usual_mode()))


def replace(path: str, content: bytes) -> None:
    """Replace the file at `path` by `content`, and keep owner and mode.

    Raises `EnvironmentFault` as `write` does.
    """
    _put(path, content, lambda handle: _dress(handle, path))


def _encode(profile: Profile, finish: Finish | None) -> bytes:
    """The bytes of the file.

    They are built in memory, because on a full disk the HDF5 library raises all kinds of errors, and
    crashes at exit.
    """
    with h5py.File(
        "profile", "w", driver="core", backing_store=False, block_size=_GROWTH_BYTES, track_order=True
    ) as file:
        _write_all(file, profile)
        if finish is not None:
            finish(file)
        file.flush()
        content: bytes = file.id.get_file_image()
    return content


def _put(path: str, content: bytes, dress: Callable[[int], None]) -> None:
    """Write to disk, then rename: a crash in between leaves either the old file or the new one."""
    with _replacing(path) as (handle, temporary, folder):
        # Use the handle: in another user's folder the name may point elsewhere by this time.
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            dress(handle)
            os.fsync(handle)
        os.replace(temporary, path)
        checkpoints.sync(folder)


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[tuple[int, str, str]]:
    """A new file, its name, and the folder of `path`; removes the file at the end unless it was renamed."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        handle, temporary = _new_file(folder)
    except OSError as error:
        raise EnvironmentFault(_refusal(path, error)) from error
    try:
        yield handle, temporary, folder
    except OSError as error:
        raise EnvironmentFault(_refusal(path, error)) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _new_file(folder: str) -> tuple[int, str]:
    """Like `tempfile.mkstemp`, but without importing `tempfile`: this saves 3 ms at the end of every job."""
    path = os.path.join(folder, f".mpicoloc-{os.urandom(8).hex()}.h5.part")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), path


def _dress(handle: int, path: str) -> None:
    """Copy owner and mode of the file at `path`; if there is none, set the mode by the umask."""
    try:
        old = os.lstat(path)
    except FileNotFoundError:
        os.fchmod(handle, _usual_mode())
        return
    with contextlib.suppress(PermissionError):
        os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, old.st_mode & 0o666 if stat.S_ISREG(old.st_mode) else _usual_mode())


def _usual_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _refusal(path: str, error: OSError) -> str:
    reason = error.strerror or str(error).splitlines()[0]
    return f"cannot write profile {path}: {reason}; choose another place with --out FILE or MPICOLOC_OUT"


def _write_all(file: h5py.File, profile: Profile) -> None:
    file.attrs["format"] = FORMAT
    file.attrs["schema_version"] = profile.schema_version
    file.attrs["partial"] = int(profile.partial)
    file.attrs["notes"] = np.array([note.encode() for note in profile.notes] or [b""])
    found, network = profile.interference, profile.network
    groups: dict[str, Any] = {"job": profile.job, "mpi": profile.mpi, "interference": found}
    groups |= {f"interference/alternatives/{one.method}": one for one in found.alternatives}
    groups |= {f"interference/meters/{one.meter}": one for one in found.meters}
    groups |= {"price": profile.price, "network": network}
    groups |= {f"network/L{row.level}": row for row in (network.levels if network else ())}
    for path, facts in groups.items():
        if facts is not None:
            write_facts(file.create_group(path), facts)
    for name, array in profile.tables.items():
        write_rows(file, name, array)


def read(
    path: str | os.PathLike[str], content: Content | None = None, tables: Sequence[str] = TABLES
) -> Profile:
    """Read the profile in `path`, in this process.

    A file that crashes the HDF5 library crashes this process: use `profile.profiles.read` for foreign files.

    Parameters
    ----------
    path : path
        File of the profile; only for messages if `content` is given.
    content : bytes or file, optional
        The file's bytes, or the open file.
    tables : sequence of str
        Tables to read; the others are empty.

    Raises
    ------
    DataError
        If the file is missing, damaged, foreign, or of another schema version.
    EnvironmentFault
        If the file cannot be opened.
    """
    path = os.fspath(path)
    with opened(path, content) as profile:
        if text(profile.attrs.get("format", "")) != FORMAT:
            raise DataError(
                f"{path} is an HDF5 file but not a profile of mpicoloc; give the file a job wrote at its end"
            )
        version = profile.attrs.get("schema_version")
        if version is None or int(version) != SCHEMA_VERSION:
            raise DataError(
                f"{path} has schema version {version}, but this mpicoloc reads {SCHEMA_VERSION}: "
                "read it with the mpicoloc that wrote it, or upgrade"
            )
        return _read_all(profile, tables)


@contextlib.contextmanager
def readable(path: str) -> Iterator[BinaryIO]:
    """Open the file for reading bytes; raises the errors of `read`."""
    if os.path.isdir(path):
        if path.rstrip("/").endswith(".parts"):
            raise DataError(
                f"{path} is a folder of checkpoints: `mpicoloc recover {path}` makes a profile of them"
            )
        raise DataError(
            f"{path} is a folder; give a profile, for example {os.path.join(path, 'mpicoloc-<job>.h5')}"
        )
    try:
        # O_NONBLOCK: a pipe in a user's folder must not block a site's script.
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    except FileNotFoundError as error:
        what = checkpoints.remedy(path) or "a job writes its profile at MPI_Finalize"
        raise DataError(f"no such file: {path}; {what}") from error
    except OSError as error:
        raise EnvironmentFault(f"cannot open {path}: {error.strerror}") from error
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DataError(f"{path} is not a file; give the profile that a job wrote, mpicoloc-<job id>.h5")
        yield file


@contextlib.contextmanager
def opened(path: str, content: Content | None = None, *, is_changed: bool = False) -> Iterator[h5py.File]:
    """Open the file as HDF5; errors inside the block are reported as damage of the file."""
    if not _is_hdf5(path, content):
        raise DataError(
            f"{path} is not an HDF5 file; give the profile that a job wrote, mpicoloc-<job id>.h5"
        )
    try:
        with _file(path if content is None else content, is_changed) as profile:
            yield profile
    except MissingFilter as error:
        raise DataError(
            f"{path}: {error}; set HDF5_PLUGIN_PATH to the plugin's folder (Python: hdf5plugin.PLUGIN_PATH), "
            "or unpack the file on a machine with the plugin: `h5repack -f NONE OLD NEW`"
        ) from error
    except OtherColumns as error:
        raise DataError(
            f"{path} was written by another version of mpicoloc, or is damaged: {error}; "
            "read it with the version that wrote it"
        ) from error
    except _DAMAGE as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise DataError(f"{path} is damaged: {reason}; copy it again, or run the job again") from error


def _is_hdf5(path: str, content: Content | None) -> bool:
    if isinstance(content, bytes):
        return content.startswith(_MAGIC)
    if content is None:
        with readable(path) as file:
            return _is_hdf5(path, file)
    at, n_bytes = 0, os.fstat(content.fileno()).st_size
    while at < n_bytes:
        content.seek(at)
        if content.read(len(_MAGIC)) == _MAGIC:
            return True
        # A file may begin with a user block; HDF5 searches for its magic at 512, 1024, 2048 ... bytes.
        at = max(512, 2 * at)
    return False


def _file(source: str | Content, is_changed: bool) -> h5py.File:
    if not isinstance(source, bytes):
        return h5py.File(source, "r")
    flags = h5py.h5f.FILE_IMAGE_OPEN_RW if is_changed else 0
    return h5py.File(h5py.h5f.open_file_image(source, flags))


def _read_all(file: h5py.File, tables: Sequence[str]) -> Profile:
    if tables:
        # A history skips this check: it reads thousands of files, without their tables.
        check_total(file)
    return Profile(
        job=read_facts(own(file, "job"), Job),
        tables={name: read_rows(file, name) for name in tables},
        mpi=read_facts(own(file, "mpi"), MpiSummary),
        interference=_read_interference(own(file, "interference")),
        price=read_facts(own(file, "price"), Price) if "price" in file else None,
        partial=bool(file.attrs["partial"]),
        notes=tuple(filter(None, map(text, file.attrs["notes"]))),
        network=_read_network(own(file, "network")) if "network" in file else None,
    )


def _read_interference(group: h5py.Group) -> Interference:
    beside = own(group, "alternatives") if "alternatives" in group else {}
    meters = own(group, "meters") if "meters" in group else {}
    return read_facts(
        group,
        Interference,
        slowdown=_read_slowdown(group),
        alternatives=tuple(read_facts(own(beside, name), Estimate) for name in beside),
        meters=tuple(
            read_facts(own(meters, name), MeterResult, slowdown=_read_slowdown(own(meters, name)))
            for name in meters
        ),
    )


def _read_slowdown(group: h5py.Group) -> Estimate | None:
    return read_facts(own(group, "slowdown"), Estimate) if "slowdown" in group else None


def read_table(path: str, name: str, content: Content | None = None) -> Table:
    """Read one table of the profile in `path`; parameters and errors as for `read`."""
    with opened(path, content) as file:
        return read_rows(file, name)


def _read_network(group: h5py.Group) -> Network:
    found = read_facts(group, Network, levels=())
    levels = tuple(read_facts(own(group, f"L{i}"), NetworkLevel) for i in range(found.n_levels))
    return dataclasses.replace(found, levels=levels)
