"""Signatures of profiles: an HMAC-SHA256 over the content, by a key that only the site has.

In the group ``/signature``: what made it, when, and which key. All of the file but the code is covered. The
code is made of the content's SHA-256, so no process that opens a file needs the key: `snapshot` reads the
file in a process of its own, and `verify` needs the key and no file. Take them in this order, or give the key
as a `KeyFile`: then it is only ever in a process that does nothing else. So it is when `sign` signs.
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

import h5py
import numpy as np

from mpicoloc.core.plain_values import dataclass_from
from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import printable, text
from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.profile import canonical, hdf5, profile_ipc, rows
from mpicoloc.profile.sandbox import run_in_child

GROUP = "signature"
ALGORITHM = "HMAC-SHA256"
_DIGEST = r"[0-9a-f]{64}"
KEY_BYTES = 32
"""Shortest key, as its file has it."""
MAX_BYTES = 1 << 31
"""Largest profile that is signed or charged: it is read into memory."""
_GROWTH_BYTES = 1 << 20
"""What a signature adds to a file at most."""
_SEALED_BYTES = 1 << 16
LATEST_UNIX_S = 253402300800.0
"""The end of the year 9999: what calendars can show."""


@dataclass(frozen=True)
class Signature:
    """What a profile says of its signature, fit to be shown; nothing of it is checked.

    `key_id` names the key without telling anything about it.
    """

    algorithm: str
    key_id: str
    signed_unix_s: float
    code: str


@dataclass(frozen=True)
class Verdict:
    """Whether a signature holds; `reason` says why not, in one line."""

    is_good: bool
    reason: str
    signature: Signature | None


@dataclass(frozen=True)
class KeyFile:
    """The site's key, which stays in its file: a process of its own reads it and makes each code."""

    path: str


Key = bytes | KeyFile


@dataclass(frozen=True)
class Snapshot:
    """A profile as it was when it was read, once: what is checked is what is used.

    `digest` is the SHA-256 of the content without its signature, `sealed` that of all that it covers.
    """

    path: str
    content: bytes
    profile: Profile
    digest: str
    signature: Signature | None
    sealed: str


def read_key(path: str | os.PathLike[str]) -> bytes:
    """The key in a file, without white space at its end.

    Raises
    ------
    UsageError
        If there is no such file, or it holds no key.
    EnvironmentFault
        If others than its owner may read or change it.
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
            f"key file {path} has {len(key)} bytes, needed are {KEY_BYTES}: "
            "head -c 32 /dev/urandom | base64 makes a key"
        )
    return key


def _check_key_file(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"key file {path} is no file; give the file with the site's key")
    if status.st_mode & 0o077:
        raise EnvironmentFault(
            f"key file {path} can be read or changed by others (mode {status.st_mode & 0o777:o}): "
            f"make a new key, and chmod 600 {path}"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise EnvironmentFault(f"key file {path} belongs to user {status.st_uid}, not to this one or root")


def key_id(key: Key) -> str:
    """Name of a key; of a `KeyFile`, errors are those of `read_key`."""
    return mac(key, b"mpicoloc key id")[:16]


def _code(sealed: str, key: Key) -> str:
    return mac(key, sealed.encode())


def mac(key: Key, words: bytes) -> str:
    """The code of some bytes; of a `KeyFile`, errors are those of `read_key`."""
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
    """Read a profile once, for all that is to be done with it.

    Parameters
    ----------
    path : path
        Where it lies.

    Raises
    ------
    DataError, EnvironmentFault
        As of `hdf5.read`; also for what is no regular file or too large.
    """
    path = os.fspath(path)
    content, _ = _bytes(path)
    return run_in_child(path, lambda: _looked_at(path, content), lambda answer: _seen(path, content, answer))


def _looked_at(path: str, content: bytes) -> Iterator[bytes | memoryview]:
    with hdf5.opened(path, content) as file:
        # First, as it refuses what no machine could read.
        digest, sealed = (canonical.sha256(file, left_out) for left_out in (_is_signature, _is_code))
        found = _facts(file)
    more = {"digest": digest, "sealed": sealed, "signature": None if found is None else asdict(found)}
    return profile_ipc.pack(hdf5.read(path, content), more)


def _seen(path: str, content: bytes, answer: memoryview) -> Snapshot:
    profile, more = profile_ipc.unpack(answer)
    for name in ("digest", "sealed"):
        if not re.fullmatch(_DIGEST, more[name]):
            raise ValueError(f"{name} is {more[name]!r}, which is no SHA-256")
    found = None if more["signature"] is None else dataclass_from(Signature, more["signature"])
    return Snapshot(path, content, profile, more["digest"], found, more["sealed"])


def _bytes(path: str) -> tuple[bytes, int]:
    """What is in the file, and whose it is."""
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
    """What the profile in `path` says of its signature; None: unsigned."""
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
    attributes = rows.own(file, GROUP).attrs
    words = (text(attributes.get(name, "")) for name in ("algorithm", "key_id", "code"))
    algorithm, named, code = map(printable, words)
    when_s = float(attributes.get("signed_unix_s", 0.0))
    return Signature(algorithm, named, when_s if 0 <= when_s < LATEST_UNIX_S else 0.0, code)


def add(file: h5py.File, key: Key, signed_unix_s: float) -> None:
    """Sign an open profile, in place of a signature that it has.

    Parameters
    ----------
    file : h5py.File
        The profile, complete.
    key : bytes or KeyFile
        As of `read_key`.
    signed_unix_s : float
        When, s.
    """
    _begin(file, key_id(key), signed_unix_s)
    _end(file, _code(canonical.sha256(file, _is_code), key))


def _begin(file: h5py.File, named: str, signed_unix_s: float) -> None:
    """Write a signature without its code, which is made of all that is then in the file."""
    if GROUP in file:
        del file[GROUP]
    group = file.create_group(GROUP)
    group.attrs["algorithm"] = np.bytes_(ALGORITHM)
    group.attrs["key_id"] = np.bytes_(named)
    group.attrs["signed_unix_s"] = signed_unix_s


def _end(file: h5py.File, code: str) -> None:
    file[GROUP].attrs["code"] = np.bytes_(code)


def sign(path: str | os.PathLike[str], key: Key, signed_unix_s: float, out: str | None = None) -> None:
    """Sign the profile in `path`; the signed file takes its place, or is `out`.

    Errors as of `signed`; also an `EnvironmentFault` if the result cannot be written.
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
    """The profile with a signature.

    Parameters
    ----------
    path : str
        Where it lies, for messages.
    content : bytes
        The file.
    key : bytes or KeyFile
        As of `read_key`.
    signed_unix_s : float
        When, s.
    uid : int
        Whose file it is; root's process opens it with that user's rights (`run_in_child`).
    check : callable
        Raises an error if the profile of this job's number and user shall not be signed.
    memory_bytes : int, optional
        As of `run_in_child`.

    Raises
    ------
    DataError
        If it is no whole profile.
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
    """In a process of its own: the digest to be signed, of a profile that others will be able to read."""
    with hdf5.opened(path, content, is_changed=True) as file:
        _begin(file, named, signed_unix_s)
        # First, as it refuses what no machine could read.
        sealed = canonical.sha256(file, _is_code)
    profile, _ = profile_ipc.unpack(memoryview(b"".join(profile_ipc.pack(hdf5.read(path, content), {}))))
    return [json.dumps([sealed, profile.job.id, profile.job.user]).encode()]


def _read_sealed(answer: memoryview) -> tuple[str, str, str]:
    sealed, job, user = map(str, json.loads(bytes(answer)))
    if not re.fullmatch(_DIGEST, sealed):
        raise ValueError(f"{sealed!r} is no SHA-256")
    return sealed, job, user


def _coded(path: str, content: bytes, named: str, signed_unix_s: float, code: str) -> list[bytes]:
    with hdf5.opened(path, content, is_changed=True) as file:
        _begin(file, named, signed_unix_s)
        _end(file, code)
        file.flush()
        return [file.id.get_file_image()]


def verify(taken: Snapshot, key: Key) -> Verdict:
    """Whether the profile is as the holder of `key` signed it."""
    found = taken.signature
    if found is None:
        return Verdict(False, "unsigned", None)
    if found.algorithm != ALGORITHM:
        return Verdict(False, f"signed by {found.algorithm!r}, which is not {ALGORITHM}", found)
    code = _code(taken.sealed, key)
    # In constant time, so that no caller can find the code byte by byte.
    if hmac.compare_digest(code.encode(), found.code.encode("utf-8", "replace")):
        return Verdict(True, "", found)
    if found.key_id != key_id(key):
        return Verdict(False, f"signed with another key ({found.key_id}, given {key_id(key)})", found)
    return Verdict(False, "changed after signing, or not signed with this key", found)
