"""Checkpoints of a job that runs: one file per node, `<profile without .h5>.parts/<first rank>.part`.

A file is a line of text that says what it is, and a bundle (`profile.bundle`), compressed by zlib, whose
checksum tells a file that was cut short.
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

    Raises `DataError` if there are none. Raises `EnvironmentFault` if the folder cannot be read.
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
    """The remedy for a profile that is not there, if its job has left parts; else nothing."""
    with contextlib.suppress(DataError, EnvironmentFault):
        files(profile)
        return f"its job has left checkpoints: `mpicoloc recover {profile}` makes a partial profile of them"
    return ""


def write(profile: str, first_rank: int, pieces: Iterable[bytes | memoryview]) -> str:
    """Put a node's part in the place of the one before; returns its name.

    Whatever happens, one of the two is there. A node has one writer.

    Raises `OSError` if the disk refuses.
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
    """Remove the parts of a profile that has them all in it, as far as that can be done."""
    with contextlib.suppress(DataError, EnvironmentFault, OSError):
        for path in files(folder_of(profile)):
            os.unlink(path)
        os.rmdir(folder_of(profile))


def sync(folder: str) -> None:
    """Have the names in a folder on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def content(path: str) -> bytes:
    """The content behind the first line in the file at `path`; errors as of `read`."""
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
        raise DataError(f"{path} is not a part of a profile; give a file of a folder NAME.parts")
    return found


def read(path: str, packed: bytes | None = None) -> memoryview:
    """The bundle in the file at `path`.

    Raises `DataError` if there is no such file, or it is damaged, cut short or no part. Raises
    `EnvironmentFault` if the system refuses to open it.
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


# Copies what this node knows of a running job to disk.
#
# python -m mpicoloc.profile.checkpoints KEY
#
# Started now and then by the node's keeper, with time that nobody wants. If the node dies, `mpicoloc recover`
# makes a partial profile of the nodes' last copies.


def save(part: NodePart, until_unix_s: float) -> str:
    """Write the part beside where the profile will be; returns its file.

    Raises `OSError` if the disk refuses.
    """
    told = replace(part, facts={**part.facts, "until_unix_s": until_unix_s})
    return write(part.facts["out_path"], part.facts["world_rank"], pack_part(told))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry of the command; returns its exit code. ``--last``: the ranks have ended, and left no profile."""
    key, *options = sys.argv[1:] if arguments is None else arguments
    is_last = "--last" in options
    trouble = contract.shm_path(key, CHECKPOINT_TROUBLE)
    try:
        now_s = time.time()
        # The last calls may be as large as all of the job's memory, and cost no disk while it runs.
        save(collect(key, has_events=is_last), 0.0 if is_last else now_s)
    except (MpicolocError, OSError) as error:
        # Of OSError: the file and what the system said, without a number.
        reason = ": ".join(filter(None, (getattr(error, name, "") for name in ("filename", "strerror"))))
        # Nobody reads what it says now: the profile will tell.
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
