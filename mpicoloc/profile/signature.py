"""Signatures of profiles: an HMAC-SHA256 over the content, with a key that only the site has.

The group ``/signature`` has the algorithm, the time, the key's ID and the code. The code covers all of the
file but itself. It is computed from the content's SHA-256, so that a process which opens a file does not need
the key: `snapshot` reads the file in a separate process, and `verify` needs the key but no file. Call them in
this order, or pass the key as a `KeyFile`: then only a process that does nothing else ever holds the key.
The same holds for `sign`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import h5py
import numpy as np

from mpicoloc.core.plain_values import dataclass_from
from mpicoloc.core.profile import Profile, text
from mpicoloc.errors import DataError, EnvironmentFault, UsageError, printable
from mpicoloc.profile import bundle, hdf5
from mpicoloc.profile.sandbox import run_in_child

# The content of an HDF5 file as one stream of bytes, whatever its layout on disk.
#
# Groups, datasets and attributes are sorted by name; numbers are little-endian, texts have their lengths.
# Chunks, compression, order of writing and free space do not enter the stream, so ``h5repack`` does not
# change it. The length of each piece precedes it. The type and the shape of each value precede the value, and
# fix its number of pieces. So two different contents never give the same stream.


Feed = Callable[[bytes], None]
Left = Callable[[str, str | None], bool]
"""Tells whether to leave out an object, given (path, None), or one of its attributes, given (path, name)."""

VERSION = b"mpicoloc canonical 2"
_ROWS = 1 << 16
MAX_OBJECTS = 1000
MAX_CONTENT_BYTES = 1 << 32
"""Largest content of a foreign file that is read, bytes: a small compressed file can expand to any size."""


class _Walk:
    """A walk through one file: the function that takes the pieces, and the amounts that it has got so far."""

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
        # Count the bytes of each cell, because many cells can share one text of the file.
        self.count_bytes(len(content))
        self.piece(content)

    def count_object(self, path: str) -> None:
        self.n_objects += 1
        if self.n_objects > MAX_OBJECTS:
            where = printable(path)
            raise DataError(
                f"{where} exceeds the limit of {MAX_OBJECTS} groups and tables: no profile has so many"
            )

    def count_bytes(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        if self.n_bytes > MAX_CONTENT_BYTES:
            raise DataError(
                f"more than {MAX_CONTENT_BYTES >> 20} MiB of content; run the job without --trace"
            )


def feed(file: h5py.File, to: Feed, left_out: Left) -> None:
    """Pass the content to `to`, piece by piece.

    Raises
    ------
    DataError
        If the file has objects whose content is elsewhere or has no fixed form (links to other files,
        references, named types), or more content than any profile.
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
        raise DataError(f"the content of {printable(path)} is not in this file")
    kind = dataset.dtype
    walk.count_bytes(int(dataset.size or 0) * kind.itemsize)
    walk.kind(form(kind, path), dataset.shape)
    if not dataset.shape:
        _cells(walk, np.asarray(dataset[()], dtype=kind))
        return
    # Texts of variable length are read row by row, because their size is known only once they are read.
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
    """The same type, little-endian and without padding between its columns."""
    if kind.names is None:
        return kind.newbyteorder("<")
    return np.dtype([(name, packed(kind[name])) for name in kind.names])


def form(kind: np.dtype[Any], where: str) -> str:
    """A type as text: ``u8``, ``S12``, ``text`` or ``(4:name:i4,...)``.

    Raises
    ------
    DataError
        If no profile has this type.
    """
    if kind.names is not None and kind.hasobject:
        # Such a column contains addresses, which differ from process to process.
        raise DataError(f"{printable(where)} has a column of variable-length strings, which no profile has")
    if kind.names is not None:
        # Names can have any character, so their lengths precede them.
        return "(" + ",".join(f"{len(name)}:{name}:{form(kind[name], where)}" for name in kind.names) + ")"
    if kind.kind in "iufbS":
        return f"{kind.kind}{kind.itemsize}"
    if kind.kind == "O" and h5py.check_string_dtype(kind) is not None:
        return "text"
    raise DataError(f"{printable(where)} has type {kind}, which no profile has")


GROUP = "signature"
ALGORITHM = "HMAC-SHA256"
_DIGEST = r"[0-9a-f]{64}"
KEY_BYTES = 32
"""Minimum length of a key, as stored in its file, bytes."""
MAX_BYTES = 1 << 31
"""Largest profile to sign or charge: the whole file is read into memory."""
_GROWTH_BYTES = 1 << 20
"""Largest number of bytes that a signature adds to a file."""
_SEALED_BYTES = 1 << 16
LATEST_UNIX_S = 253402300800.0
"""End of the year 9999, the last that `datetime` can represent."""


@dataclass(frozen=True)
class Signature:
    """The signature's facts as the profile states them: printable, but not verified.

    `key_id` identifies the key without revealing anything about it.
    """

    algorithm: str
    key_id: str
    signed_unix_s: float
    code: str


@dataclass(frozen=True)
class Verdict:
    """Whether a signature is valid; `reason` is one line on why it is not."""

    is_good: bool
    reason: str
    signature: Signature | None


@dataclass(frozen=True)
class KeyFile:
    """The site's key, left in its file: a separate process reads the file to compute each code."""

    path: str


Key = bytes | KeyFile


@dataclass(frozen=True)
class Snapshot:
    """A profile read only once, so that the content that is verified is also the content that is used.

    `digest` is the SHA-256 of the content without the signature; `sealed` is the SHA-256 of everything that
    the signature's code covers.
    """

    path: str
    content: bytes
    profile: Profile
    digest: str
    signature: Signature | None
    sealed: str


def read_key(path: str | os.PathLike[str]) -> bytes:
    """Read the key in a file, without trailing white space.

    Raises
    ------
    UsageError
        If there is no such file, or it does not hold a key.
    EnvironmentFault
        If users other than the owner can read or change the file.
    """
    path = os.fspath(path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UsageError(
            f"no key file {path}; make one: (umask 077; head -c 32 /dev/urandom | base64 > {path})"
        ) from None
    except OSError as error:
        raise EnvironmentFault(f"cannot open key file {path}: {error.strerror}") from error
    try:
        _check_key_file(path, os.fstat(handle))
        key = os.read(handle, 1 << 16).rstrip()
    finally:
        os.close(handle)
    if len(key) < KEY_BYTES:
        raise UsageError(
            f"key file {path} has {len(key)} bytes, but {KEY_BYTES} are needed: "
            "head -c 32 /dev/urandom | base64 makes a key"
        )
    return key


def _check_key_file(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"key file {path} is not a file; give the file with the site's key")
    if status.st_mode & 0o077:
        raise EnvironmentFault(
            f"key file {path} can be read or changed by others (mode {status.st_mode & 0o777:o}), so it "
            "is not secret: make a new key with (umask 077; head -c 32 /dev/urandom | base64 > FILE)"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise EnvironmentFault(
            f"key file {path} belongs to user {status.st_uid}, but must be yours or root's"
        )


def key_id(key: Key) -> str:
    """ID of a key; for a `KeyFile`, raises the errors of `read_key`."""
    return mac(key, b"mpicoloc key id")[:16]


def _code(sealed: str, key: Key) -> str:
    return mac(key, sealed.encode())


def mac(key: Key, words: bytes) -> str:
    """HMAC of some bytes; for a `KeyFile`, raises the errors of `read_key`."""
    if isinstance(key, bytes):
        return hmac.new(key, words, hashlib.sha256).hexdigest()
    named = key.path
    return run_in_child(
        named,
        lambda: [mac(read_key(named), words).encode()],
        lambda code: str(code, "ascii"),
        keeps_rights=True,
    )


def snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """Read a profile once, for all later checks and uses.

    Parameters
    ----------
    path : path
        File of the profile.

    Raises
    ------
    DataError, EnvironmentFault
        As `hdf5.read`; also if the file is not a regular file, or is too large.
    """
    path = os.fspath(path)
    content, _ = _bytes(path)
    return run_in_child(path, lambda: _looked_at(path, content), lambda answer: _seen(path, content, answer))


def _looked_at(path: str, content: bytes) -> Iterator[bytes | memoryview]:
    with hdf5.opened(path, content) as file:
        # Compute the digests first, because this refuses content that is too large to read.
        digest, sealed = (sha256(file, left_out) for left_out in (_is_signature, _is_code))
        found = _facts(file)
    more = {"digest": digest, "sealed": sealed, "signature": None if found is None else asdict(found)}
    return bundle.pack_profile(hdf5.read(path, content), more)


def _seen(path: str, content: bytes, answer: memoryview) -> Snapshot:
    profile, more = bundle.unpack_profile(answer)
    for name in ("digest", "sealed"):
        if not re.fullmatch(_DIGEST, more[name]):
            raise ValueError(f"{name} is {more[name]!r}, which is not a SHA-256 digest")
    found = None if more["signature"] is None else dataclass_from(Signature, more["signature"])
    return Snapshot(path, content, profile, more["digest"], found, more["sealed"])


def _bytes(path: str) -> tuple[bytes, int]:
    """The file's content and its owner."""
    with hdf5.readable(path) as file:
        status = os.fstat(file.fileno())
        if status.st_size > MAX_BYTES:
            raise DataError(f"{path} has more than {MAX_BYTES >> 20} MiB; run the job without --trace")
        return file.read(), status.st_uid


def _is_signature(path: str, name: str | None) -> bool:
    return name is None and path == f"/{GROUP}"


def _is_code(path: str, name: str | None) -> bool:
    return path == f"/{GROUP}" and name == "code"


def facts(path: str | os.PathLike[str]) -> Signature | None:
    """The signature's facts in the profile in `path`; None if it is unsigned."""
    named = os.fspath(path)

    def work() -> list[bytes]:
        with hdf5.opened(named, raw) as file:
            found = _facts(file)
        return [json.dumps(None if found is None else asdict(found)).encode()]

    def read(answer: memoryview) -> Signature | None:
        found = json.loads(bytes(answer))
        return None if found is None else dataclass_from(Signature, found)

    with hdf5.readable(named) as raw:
        return run_in_child(named, work, read, files=[raw])


def _facts(file: h5py.File) -> Signature | None:
    if GROUP not in file:
        return None
    attributes = hdf5.own(file, GROUP).attrs
    words = (text(attributes.get(name, "")) for name in ("algorithm", "key_id", "code"))
    algorithm, named, code = map(printable, words)
    when_s = float(attributes.get("signed_unix_s", 0.0))
    return Signature(algorithm, named, when_s if 0 <= when_s < LATEST_UNIX_S else 0.0, code)


def add(file: h5py.File, key: Key, signed_unix_s: float) -> None:
    """Sign an open profile; an existing signature is replaced.

    Parameters
    ----------
    file : h5py.File
        The complete profile.
    key : bytes or KeyFile
        The key, as `read_key` returns it, or its file.
    signed_unix_s : float
        Time of signing, s since 1970.
    """
    _begin(file, key_id(key), signed_unix_s)
    _end(file, _code(sha256(file, _is_code), key))


def _begin(file: h5py.File, named: str, signed_unix_s: float) -> None:
    """Write a signature without its code, which is computed from all that is then in the file."""
    if GROUP in file:
        del file[GROUP]
    group = file.create_group(GROUP)
    group.attrs["algorithm"] = np.bytes_(ALGORITHM)
    group.attrs["key_id"] = np.bytes_(named)
    group.attrs["signed_unix_s"] = signed_unix_s


def _end(file: h5py.File, code: str) -> None:
    file[GROUP].attrs["code"] = np.bytes_(code)


def sign(path: str | os.PathLike[str], key: Key, signed_unix_s: float, out: str | None = None) -> None:
    """Sign the profile in `path`; the signed file replaces it, or goes to `out`.

    Raises the errors of `signed`, and `EnvironmentFault` if the result cannot be written.
    """
    path = os.fspath(path)
    content, owner = _bytes(path)
    hdf5.replace(out or path, signed(path, content, key, signed_unix_s, uid=owner))


def signed(
    path: str,
    content: bytes,
    key: Key,
    signed_unix_s: float,
    *,
    uid: int,
    check: Callable[[str, str], None] = lambda job, user: None,
    memory_bytes: int | None = None,
) -> bytes:
    """The bytes of the profile with a signature.

    Parameters
    ----------
    path : str
        File of the profile, for messages.
    content : bytes
        The file's bytes.
    key : bytes or KeyFile
        The key, as `read_key` returns it, or its file.
    signed_unix_s : float
        Time of signing, s since 1970.
    uid : int
        The file's owner; under root, the file is parsed with that user's rights (`run_in_child`).
    check : callable
        Called with the job's id and user; raises an error if this profile must not be signed.
    memory_bytes : int, optional
        As for `run_in_child`.

    Raises
    ------
    DataError
        If the file is not a complete profile.
    """
    named = key_id(key)
    sealed, job, user = run_in_child(
        path,
        lambda: _sealed(path, content, named, signed_unix_s),
        _read_sealed,
        uid=uid,
        most_bytes=_SEALED_BYTES,
        memory_bytes=memory_bytes,
    )
    check(job, user)
    code = _code(sealed, key)
    most = len(content) + _GROWTH_BYTES
    return run_in_child(
        path,
        lambda: _coded(path, content, named, signed_unix_s, code),
        bytes,
        uid=uid,
        most_bytes=most,
        memory_bytes=memory_bytes,
    )


def _sealed(path: str, content: bytes, named: str, signed_unix_s: float) -> list[bytes]:
    """Compute the digest to sign in a child process, and check there that readers can unpack the profile."""
    with hdf5.opened(path, content, is_changed=True) as file:
        _begin(file, named, signed_unix_s)
        # Compute the digest first, because this refuses content that is too large to read.
        sealed = sha256(file, _is_code)
    profile, _ = bundle.unpack_profile(
        memoryview(b"".join(bundle.pack_profile(hdf5.read(path, content), {})))
    )
    return [json.dumps([sealed, profile.job.id, profile.job.user]).encode()]


def _read_sealed(answer: memoryview) -> tuple[str, str, str]:
    sealed, job, user = map(str, json.loads(bytes(answer)))
    if not re.fullmatch(_DIGEST, sealed):
        raise ValueError(f"{sealed!r} is not a SHA-256 digest")
    return sealed, job, user


def _coded(path: str, content: bytes, named: str, signed_unix_s: float, code: str) -> list[bytes]:
    with hdf5.opened(path, content, is_changed=True) as file:
        _begin(file, named, signed_unix_s)
        _end(file, code)
        file.flush()
        return [file.id.get_file_image()]


def verify(taken: Snapshot, key: Key) -> Verdict:
    """Check that the profile is unchanged since it was signed with `key`."""
    found = taken.signature
    if found is None:
        return Verdict(False, "unsigned", None)
    if found.algorithm != ALGORITHM:
        return Verdict(False, f"signed by {found.algorithm!r}, which is not {ALGORITHM}", found)
    code = _code(taken.sealed, key)
    # Compare in constant time: otherwise, a caller could find out the code byte by byte.
    if hmac.compare_digest(code.encode(), found.code.encode("utf-8", "replace")):
        return Verdict(True, "", found)
    if found.key_id != key_id(key):
        return Verdict(False, f"signed with another key ({found.key_id}, given {key_id(key)})", found)
    return Verdict(False, "changed after signing, or not signed with this key", found)
