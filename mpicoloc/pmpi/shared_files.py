"""Files in a folder where other users make files too: opened with care, and copied as sparse as they are."""

from __future__ import annotations

import errno
import io
import mmap
import os
import stat
from collections.abc import Iterator

_AT_ONCE_BYTES = 16 * mmap.PAGESIZE


def open_shared(path: str | os.PathLike[str], flags: int = os.O_RDONLY, is_own: bool = True) -> io.FileIO:
    """Open a file, unbuffered, that another user may have put there; as `mc_shm_open` does.

    Raises `OSError` as of `os.open`; also if it is no regular file, or another user's.
    """
    handle = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or (is_own and status.st_uid != os.geteuid()):
        os.close(handle)
        reason = "it is another user's" if stat.S_ISREG(status.st_mode) else "it is no regular file"
        raise PermissionError(errno.EPERM, reason, os.fspath(path))
    mode = {os.O_RDONLY: "rb", os.O_WRONLY: "wb"}.get(flags & os.O_ACCMODE, "r+b")
    return io.FileIO(handle, mode)


def is_own_file(path: str | os.PathLike[str]) -> bool:
    """Whether there is a regular file of this user's."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def copy_sparse(file: io.FileIO, n_bytes: int | None = None) -> memoryview:
    """The file's first bytes, or all, which may be changed; the file's holes stay unallocated too.

    Of a job that runs, a segment of 8 MB of which most is empty: on a node of hundreds of ranks that counts.
    """
    handle = file.fileno()
    size_bytes = os.fstat(handle).st_size
    size_bytes = size_bytes if n_bytes is None else min(size_bytes, n_bytes)
    memory = mmap.mmap(-1, max(size_bytes, 1), flags=mmap.MAP_PRIVATE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    view = memoryview(memory)
    for begin, end in _extents(handle, size_bytes):
        for at in range(begin, end, _AT_ONCE_BYTES):
            content = os.pread(handle, min(_AT_ONCE_BYTES, end - at), at)
            _put(view[at:], content)
    return view[:size_bytes]


def _extents(handle: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Where the file has data; all of it where the file system does not tell."""
    end = 0
    while end < size_bytes:
        try:
            begin = os.lseek(handle, end, os.SEEK_DATA)
        except OSError:  # none from here on
            return
        end = min(os.lseek(handle, begin, os.SEEK_HOLE), size_bytes)
        yield begin, end


def _put(view: memoryview, content: bytes) -> None:
    if content == bytes(len(content)):
        return
    for at in range(0, len(content), mmap.PAGESIZE):
        page = content[at : at + mmap.PAGESIZE]
        if page != bytes(len(page)):
            view[at : at + len(page)] = page
