"""Folders of the compiled parts: in the package, or in the user's cache if the package is not writable."""

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Iterable

import mpicoloc
from mpicoloc.errors import EnvironmentFault

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ABIS = ("mpich", "openmpi", "openmpi6", "abi")
"""ABIs of MPICH, of Open MPI without and with large counts, and of the MPI standard (``libmpi_abi.so``)."""
KEEPER = "mpicoloc-keeper"
BUBBLE = "mpicoloc-bubble"
SIDECAR = "python"
_SEPARATORS = set(" :;\t\n")
_ACL_MASK, _ACL_NAMED = 0x10, (0x02, 0x08)
"""Tags of ACL entries in the kernel's posix_acl_xattr.h: the mask; a named user and a named group."""


def lib_dir() -> str:
    """Folder of the package's own compiled parts."""
    return os.path.join(_PACKAGE, "_lib")


def include_dir() -> str:
    """Folder of mpicoloc_app.h, for the C code of applications."""
    return os.path.join(_PACKAGE, "include")


def cache_dir() -> str:
    """Folder of the parts that this user built for this version of mpicoloc."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "mpicoloc", mpicoloc.__version__)


def shim_name(abi: str) -> str:
    """File name of the preloaded library for an ABI."""
    return f"libmpicoloc-{abi}.so"


def abi_of(family: str, has_large_counts: bool) -> str:
    """The ABI of an MPI. Open MPI has large counts (``MPI_Send_c``) from version 6 on."""
    return "openmpi6" if family == "openmpi" and has_large_counts else family


def find_shim(abi: str) -> str | None:
    """The preloaded library for an ABI: the user's own build if there is one, else the installed one."""
    for folder in (cache_dir(), lib_dir()):
        path = os.path.join(folder, shim_name(abi))
        if os.path.exists(path):
            return path
    return None


def listed(path: str) -> str:
    """The path of a file in a form that LD_PRELOAD and LD_LIBRARY_PATH can hold.

    There, blanks and colons separate paths, so a folder whose name contains one is reached through a link in
    the folder for temporary files. Raises `EnvironmentFault` if the link cannot be made.
    """
    if not _SEPARATORS & set(path):
        return path
    folder = os.path.dirname(path)
    import zlib  # not at the top: every rank would wait for it

    digest = zlib.crc32(os.fsencode(folder))
    for base in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"):
        if base and not _SEPARATORS & set(base):
            link = os.path.join(base, f"mpicoloc-{os.getuid()}-{digest:08x}")
            if _is_link(link, folder):
                return os.path.join(link, os.path.basename(path))
    raise EnvironmentFault(
        f"{folder} contains a blank or a colon, which LD_PRELOAD takes as a separator, and no link to it can "
        "be made in /tmp: install mpicoloc in a folder whose path has neither"
    )


def _is_link(link: str, folder: str) -> bool:
    """Make a link unless it exists; returns whether the link is this user's and leads to the folder."""
    try:
        os.symlink(folder, link)
    except OSError:
        pass  # it may exist already
    try:
        return os.lstat(link).st_uid == os.getuid() and os.readlink(link) == folder
    except OSError:
        return False


def writable_lib_dir() -> str:
    """Folder for newly built parts."""
    return lib_dir() if os.access(lib_dir(), os.W_OK) else cache_dir()


def closed_to_others(wanted: Iterable[str]) -> tuple[str, str] | None:
    """The first of the wanted files that other users cannot reach, and the barrier to it; else None.

    The barrier is the file itself or a folder above it that is closed to others, and whose access list opens
    it to no user or group.
    """
    for path in wanted:
        for way in (os.path.abspath(path), os.path.realpath(path)):
            parts = way.split(os.sep)
            for depth in range(1, len(parts) + 1):
                here = os.sep.join(parts[:depth]) or os.sep
                mode = os.lstat(here).st_mode  # the mode of a link itself is open to all
                need = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
                if mode & need != need and not _is_open_by_list(here, need):
                    return path, here
    return None


def closed_to_jobs(files: Iterable[str] = ()) -> str | None:
    """A sentence if other users' jobs cannot run this Python or load this package; else None."""
    import importlib.util  # not at the top: every rank would wait for it

    numpy = importlib.util.find_spec("numpy")
    own = [sys.executable, os.__file__, __file__, *([numpy.origin] if numpy and numpy.origin else [])]
    closed = closed_to_others([*files, *own])
    if closed is None:
        return None
    path, barrier = closed
    return (
        f"other users cannot reach {path}, because {barrier} is closed to them: their jobs are not measured "
        "and pay in full. Install mpicoloc and its Python where all users can read, such as below /opt"
    )


def _is_open_by_list(path: str, need: int) -> bool:
    """Whether a file's access list gives a named user or group the permission `need` (S_IROTH or S_IXOTH)."""
    try:
        content = os.getxattr(path, "system.posix_acl_access", follow_symlinks=False)
    except OSError:  # the file has no access list
        return False
    entries = [(tag, allowed) for tag, allowed, _ in struct.iter_unpack("<HHI", content[4:])]
    mask = next((allowed for tag, allowed in entries if tag == _ACL_MASK), 0)
    return any(allowed & mask & need for tag, allowed in entries if tag in _ACL_NAMED)
