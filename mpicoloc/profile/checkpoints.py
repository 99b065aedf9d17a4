"""Checkpoints of a running job: one file per node, `<profile without .h5>.parts/<first rank>.part`.

A file consists of a line of text that identifies its format, and a bundle (`profile.bundle`) compressed by
zlib. The checksum of zlib reveals a truncated file.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError
from mpicoloc.pmpi import contract
from mpicoloc.profile.bundle import NodePart, pack_part
from mpicoloc.profile.collect import CHECKPOINT_TROUBLE, collect

MAGIC = b"mpicoloc part of a profile, version 1\n"
MAX_BYTES = 1 << 32
"""Largest size of a part in memory, bytes. A profile has the same limit."""
_NAME = re.compile(r"(\d+)\.part")
_LEVEL = 1
_NEVER_BEGAN = "the job ended normally, or died before its first checkpoint (see --checkpoint-s)"


def folder_of(profile: str) -> str:
    """Folder of a profile's parts. It exists until the profile is written; the keeper finds it by name."""
    return profile.removesuffix(".h5") + ".parts"


def profile_of(place: str) -> str:
    """The profile that a folder of parts, or a part, belongs to; any other name is returned unchanged."""
    folder = os.path.dirname(os.path.abspath(place)) if place.endswith(".part") else place.rstrip("/")
    return folder.removesuffix(".parts") + ".h5" if folder.endswith(".parts") else place


def files(place: str) -> list[str]:
    """The parts of `place` (a part, folder of parts, or profile), in order of their first ranks.

    Raises `DataError` if there are none, `EnvironmentFault` if the folder cannot be read.
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
    """The remedy for a missing profile if its job has left parts; an empty text if the job has left none."""
    with contextlib.suppress(DataError, EnvironmentFault):
        files(profile)
        return f"its job has left checkpoints: `mpicoloc recover {profile}` makes a partial profile of them"
    return ""


def write(profile: str, first_rank: int, pieces: Iterable[bytes | memoryview]) -> str:
    """Replace a node's previous part by a new one; returns the file's name.

    A crash leaves either the old part or the new one. Each node has only one writer.

    Raises `OSError` if the part cannot be written.
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
    sync(folder)
    return path


def remove(profile: str) -> None:
    """Remove the parts of a complete profile. Parts that cannot be removed stay."""
    with contextlib.suppress(DataError, EnvironmentFault, OSError):
        for path in files(folder_of(profile)):
            os.unlink(path)
        os.rmdir(folder_of(profile))


def sync(folder: str) -> None:
    """Flush a folder's entries to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def content(path: str) -> bytes:
    """The content after the first line of the file at `path`; raises the errors of `read`."""
    try:
        # O_NONBLOCK: a pipe in a user's folder must not block a site's script.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            is_part = stat.S_ISREG(status.st_mode) and file.read(len(MAGIC)) == MAGIC
            found = file.read(MAX_BYTES) if is_part else b""
    except FileNotFoundError:
        raise DataError(f"no such file: {path}; give the name of the job's profile") from None
    except OSError as error:
        raise EnvironmentFault(f"cannot open {path}: {error.strerror}") from error
    if not is_part:
        raise DataError(f"{path} is not a part of a profile; give a file from a folder NAME.parts")
    return found


def read(path: str, packed: bytes | None = None) -> memoryview:
    """Read the bundle in the file at `path`.

    Raises `DataError` if the file is missing, damaged, truncated or not a part, `EnvironmentFault` if it
    cannot be opened.
    """
    packed = content(path) if packed is None else packed
    packer = zlib.decompressobj()
    try:
        bundle = packer.decompress(packed, MAX_BYTES)
    except zlib.error as error:
        raise damage(path, error) from error
    if not packer.eof or packer.unused_data:
        raise damage(path, "it is truncated, or has extra bytes at its end")
    return memoryview(bundle)


def damage(path: str, reason: object) -> DataError:
    """The error for a damaged part."""
    return DataError(f"{path} is damaged: {str(reason)[:200]}; to recover without it, name the other parts")


# Copies this node's part of a running job to disk.
#
# python -m mpicoloc.profile.checkpoints KEY
#
# The node's keeper starts it periodically, at idle priority. If the node dies, `mpicoloc recover` makes a
# partial profile from the nodes' last copies.


def save(part: NodePart, until_unix_s: float) -> str:
    """Write the part next to the future profile; returns the file's name.

    Raises `OSError` if the part cannot be written.
    """
    told = replace(part, facts={**part.facts, "until_unix_s": until_unix_s})
    return write(part.facts["out_path"], part.facts["world_rank"], pack_part(told))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code. ``--last``: the ranks have ended without leaving a profile."""
    key, *options = sys.argv[1:] if arguments is None else arguments
    is_last = "--last" in options
    trouble = contract.shm_path(key, CHECKPOINT_TROUBLE)
    try:
        now_s = time.time()
        # While the job runs, its events are left out: they can be as large as everything else together, and
        # each checkpoint would write all of them again.
        save(collect(key, has_events=is_last), 0.0 if is_last else now_s)
    except (MpicolocError, OSError) as error:
        # The error number of an OSError is not reported: its text says the same.
        reason = ": ".join(filter(None, (getattr(error, name, "") for name in ("filename", "strerror"))))
        # Nobody reads this process's output: the reason goes to a file, and from there into the profile.
        with (
            contextlib.suppress(OSError),
            contract.open_shared(trouble, os.O_WRONLY | os.O_CREAT) as file,
        ):
            file.truncate()
            file.write((reason or str(error)).encode(errors="replace"))
        return 4
    with contextlib.suppress(FileNotFoundError):
        os.unlink(trouble)
    return 0


if __name__ == "__main__":
    sys.exit(main())
