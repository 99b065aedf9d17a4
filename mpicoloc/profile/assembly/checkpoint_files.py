"""Checkpoints of a job that runs: one file per node, `<profile without .h5>.parts/<first rank>.part`.

A file is a line of text that says what it is, and a bundle (`core.bundle`), compressed by zlib, whose
checksum tells a file that was cut short.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import zlib
from collections.abc import Iterable

from mpicoloc.errors import DataError, EnvironmentFault

MAGIC = b"mpicoloc part of a profile, version 1\n"
MAX_BYTES = 1 << 32
"""Most bytes of a part in memory: those of a profile."""
_NAME = re.compile(r"(\d+)\.part")
_LEVEL = 1
_NEVER_BEGAN = "the job ended well, or died before its first checkpoint (--checkpoint-s)"


def folder_of(profile: str) -> str:
    """Where the parts of a profile lie until it is written; the keeper removes them by this name."""
    return profile.removesuffix(".h5") + ".parts"


def profile_of(place: str) -> str:
    """The profile that a folder of parts, or a file in it, is of; any other name is its own."""
    folder = os.path.dirname(os.path.abspath(place)) if place.endswith(".part") else place.rstrip("/")
    return folder.removesuffix(".parts") + ".h5" if folder.endswith(".parts") else place


def files(place: str) -> list[str]:
    """The parts at a place, in the order of their ranks.

    Parameters
    ----------
    place : str
        A profile, there or not; a folder of parts; or a part.

    Raises
    ------
    DataError
        If there are none.
    EnvironmentFault
        If the folder cannot be read.
    """
    if place.endswith(".part") and not os.path.isdir(place):
        return [place]
    folder = place if os.path.isdir(place) else folder_of(place)
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        raise DataError(f"there is no folder {folder}: {_NEVER_BEGAN}") from None
    except OSError as error:
        raise EnvironmentFault(f"cannot read {folder}: {error.strerror}") from error
    found = sorted(filter(None, map(_NAME.fullmatch, names)), key=lambda match: int(match[1]))
    if not found:
        raise DataError(f"{folder} has no parts of a profile: {_NEVER_BEGAN}")
    return [os.path.join(folder, match[0]) for match in found]


def remedy(profile: str) -> str:
    """What to do about a profile that is not there, if its job has left parts; else nothing."""
    with contextlib.suppress(DataError, EnvironmentFault):
        files(profile)
        return f"its job has left checkpoints: `mpicoloc recover {profile}` makes a partial profile of them"
    return ""


def write(profile: str, first_rank: int, pieces: Iterable[bytes | memoryview]) -> str:
    """Put a node's part in the place of the one before; returns its name.

    Whatever happens, one of the two is there. A node has one writer.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    folder = folder_of(profile)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    path = os.path.join(folder, f"{first_rank}.part")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + ".new")
    handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with open(handle, "wb") as file:
            file.write(MAGIC)
            packer = zlib.compressobj(_LEVEL)
            for piece in pieces:
                file.write(packer.compress(piece))
            file.write(packer.flush())
            file.flush()
            os.fsync(handle)
        os.replace(path + ".new", path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path + ".new")
            os.rmdir(folder)
        raise
    _sync(folder)
    return path


def remove(profile: str) -> None:
    """Remove the parts of a profile that has them all in it, as far as that can be done."""
    with contextlib.suppress(DataError, EnvironmentFault, OSError):
        for path in files(folder_of(profile)):
            os.unlink(path)
        os.rmdir(folder_of(profile))


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def content(path: str) -> bytes:
    """What follows the first line in the file at `path`; errors as of `read`."""
    try:
        # A pipe in a user's folder must not keep a site's script waiting.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            is_part = stat.S_ISREG(status.st_mode) and file.read(len(MAGIC)) == MAGIC
            found = file.read(MAX_BYTES) if is_part else b""
    except FileNotFoundError:
        raise DataError(f"no such file: {path}; give the profile that its job was to write") from None
    except OSError as error:
        raise EnvironmentFault(f"cannot open {path}: {error.strerror}") from error
    if not is_part:
        raise DataError(f"{path} is no part of a profile; give a file of a folder NAME.parts")
    return found


def read(path: str, packed: bytes | None = None) -> memoryview:
    """The bundle in the file at `path`.

    Parameters
    ----------
    path : str
        For messages only when `packed` is given.
    packed : bytes, optional
        The answer of `content`.

    Raises
    ------
    DataError
        If there is no such file, or it is damaged, cut short or no part.
    EnvironmentFault
        If the system refuses to open it.
    """
    packed = content(path) if packed is None else packed
    packer = zlib.decompressobj()
    try:
        bundle = packer.decompress(packed, MAX_BYTES)
    except zlib.error as error:
        raise damage(path, error) from error
    if not packer.eof or packer.unused_data:
        raise damage(path, "it is cut short, or something follows it")
    return memoryview(bundle)


def damage(path: str, reason: object) -> DataError:
    """The error of a part that is not as it was written."""
    return DataError(
        f"{path} is damaged: {str(reason)[:200]}; recover the other parts, by their names, without it"
    )
