"""Finds the MPI library that a program links, by reading ELF headers: the program is not run or loaded.

``ldd`` would run the program's own loader, and cost every rank a process.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import struct
from collections import deque

from mpicoloc.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO, NamedTuple, TypeVar

    T = TypeVar("T")
else:
    from mpicoloc.core.record import NamedTuple

MPI_SONAMES = {
    "libmpi_abi.so": "abi",
    "libmpi.so.40": "openmpi",
    "libmpi.so.20": "openmpi",
    "libmpi.so.12": "mpich",
    "libmpich.so.12": "mpich",
    "libmpich.so.14": "mpich",
}
"""Family of an MPI library by its file name; for other names the file's content decides."""
_COMPANIONS = ("libmpi_gtl", "libmpi_cxx", "libmpi_mpifh", "libmpi_usempi", "libmpi_java")
"""Libraries that accompany an MPI. Their names begin like those of the MPI libraries of Cray (for example
`libmpi_gnu_123.so.12`) and IBM."""

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_NOTE = 1, 2, 3, 4
_NT_GNU_BUILD_ID = 3
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 15, 29


_SYSTEM = {"libc", "libm", "libdl", "libpthread", "librt", "libgcc_s", "libstdc++", "libz",
           "ld-linux-x86-64", "libgomp", "libquadmath"}  # fmt: skip
"""System libraries, which are not searched: they link no MPI, and reading them would cost every rank time."""


class Elf(NamedTuple):
    """Facts about an ELF file that determine which libraries it loads."""

    path: str
    bits: int
    machine: int
    dynamic: bool
    needed: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()


class Linked(NamedTuple):
    """The MPI that a program loads: its family ("mpich", "openmpi" or "abi") and the file of its library.

    The file is None if it was not found. `user` is the file that links the MPI: the program or one of its
    libraries. It is empty if no file links the MPI.
    """

    abi: str
    soname: str
    path: str | None
    user: str = ""


def open_regular(path: str) -> BinaryIO:
    """Open a regular file with an untrusted name for reading; opening a pipe could block or take its content.

    Raises `OSError` if it cannot be opened, or is not a regular file.
    """
    # Check before opening, because opening a pipe wakes its writer. Check again afterwards, because the file
    # may have been replaced.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return open(handle, "rb")


def read(path: str) -> Elf | None:
    """ELF facts of a file; None if it is not an ELF file.

    Raises `UsageError` if the ELF file is truncated or damaged.
    """
    return _look_into(path, _parse)


def _look_into(path: str, find: Callable[[str, mmap.mmap], T]) -> T | None:
    """The result of `find` for the file; None if it is not an ELF file. Raises like `read`."""
    with open_regular(path) as file:
        if file.read(4) != b"\x7fELF":
            return None
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
                return find(path, image)
        except (struct.error, ValueError, IndexError) as error:
            raise UsageError(f"{path} is a damaged program file ({error}): build it again") from None


def build_id(path: str) -> str:
    """Hexadecimal build ID of a program or library; empty if it has no ID or is not an ELF file.

    Raises `UsageError` if the ELF file is truncated or damaged.
    """
    return _look_into(path, _build_id) or ""


def _build_id(path: str, image: mmap.mmap) -> str:
    order = "<" if image[5] == 1 else ">"
    notes = [(start, length) for kind, _, start, length in _headers(image) if kind == _PT_NOTE]
    return next(filter(None, (_id_in_note(image, order, *note) for note in notes)), "")


def _id_in_note(image: mmap.mmap, order: str, start: int, length: int) -> str:
    end = start + length
    while start + 12 <= end:
        name_length, size, kind = struct.unpack_from(order + "III", image, start)
        at = start + 12 + (name_length + 3) // 4 * 4
        if kind == _NT_GNU_BUILD_ID and image[start + 12 : start + 16] == b"GNU\0":
            return image[at : min(at + size, end)].hex()
        start = at + (size + 3) // 4 * 4
    return ""


def _headers(image: mmap.mmap) -> Iterator[tuple[int, int, int, int]]:
    """Type, address, file offset and length of the segment of each program header."""
    wide, order = image[4] == 2, "<" if image[5] == 1 else ">"
    offset = struct.unpack_from(order + ("Q" if wide else "I"), image, 32 if wide else 28)[0]
    size, count = struct.unpack_from(order + "HH", image, 54 if wide else 42)
    for at in range(offset, offset + count * size, max(size, 1)):
        if wide:
            kind, _, start, address, _, length = struct.unpack_from(order + "IIQQQQ", image, at)
        else:
            kind, start, address, _, length = struct.unpack_from(order + "IIIII", image, at)
        yield kind, address, start, length


def _parse(path: str, image: mmap.mmap) -> Elf:
    wide, order = image[4] == 2, "<" if image[5] == 1 else ">"
    machine = struct.unpack_from(order + "H", image, 18)[0]
    bits = 64 if wide else 32
    tags = _dynamic_tags(image)
    if tags is None:
        return Elf(path, bits, machine, dynamic=False)
    base = _string_table(image, tags)

    def text(at: int) -> str:
        end = image.find(b"\0", base + at)
        return image[base + at : end].decode(errors="replace")

    def paths(tag: int) -> tuple[str, ...]:
        origin = os.path.dirname(os.path.realpath(path))
        joined = ":".join(text(value) for kind, value in tags if kind == tag)
        return tuple(_expand(entry, origin) for entry in joined.split(":") if entry)

    needed = tuple(text(value) for kind, value in tags if kind == _DT_NEEDED)
    return Elf(path, bits, machine, True, needed, paths(_DT_RUNPATH), paths(_DT_RPATH))


def _dynamic_tags(image: mmap.mmap) -> list[tuple[int, int]] | None:
    """Tags and values of the dynamic section, in order; None if the file is linked statically."""
    layout = ("<" if image[5] == 1 else ">") + ("qQ" if image[4] == 2 else "iI")
    dynamic = next(((start, n) for kind, _, start, n in _headers(image) if kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return None
    start, length = dynamic
    tags = []
    for at in range(start, start + length, struct.calcsize(layout)):
        tag, value = struct.unpack_from(layout, image, at)
        if tag == 0:
            break
        tags.append((tag, value))
    return tags


def _string_table(image: mmap.mmap, tags: list[tuple[int, int]]) -> int:
    """File offset of the dynamic string table."""
    table = dict(tags).get(_DT_STRTAB, 0)
    loads = (place for kind, *place in _headers(image) if kind == _PT_LOAD)
    return next(
        (start + table - address for address, start, length in loads if address <= table < address + length),
        0,
    )


def names(path: str) -> bytes:
    """The dynamic string table: names of exported and imported symbols, each followed by a zero byte.

    Raises `UsageError` if the file is truncated or damaged.
    """
    return _look_into(path, _names) or b""


def _names(_path: str, image: mmap.mmap) -> bytes:
    tags = _dynamic_tags(image) or []
    base = _string_table(image, tags)
    return image[base : base + dict(tags).get(_DT_STRSZ, 0)]


def _expand(entry: str, origin: str) -> str:
    return entry.replace("$ORIGIN", origin).replace("${ORIGIN}", origin)


_loader_names: dict[str, list[str]] = {}


def _loader_cache() -> dict[str, list[str]]:
    """Paths by library name, from /etc/ld.so.cache, which is read once."""
    if not _loader_names:
        _loader_names.update(_read_loader_cache())
    return _loader_names


def _read_loader_cache() -> dict[str, list[str]]:
    """The loader's cache in the format "glibc-ld.so.cache1.1"; empty if there is none."""
    try:
        with open("/etc/ld.so.cache", "rb") as file:
            data = file.read()
    except OSError:
        return {}
    magic = b"glibc-ld.so.cache1.1"
    start = data.find(magic)
    found: dict[str, list[str]] = {}
    if start < 0:
        return found
    count = struct.unpack_from("<I", data, start + len(magic))[0]
    for i in range(count):
        at = start + 48 + 24 * i
        if at + 24 > len(data):
            break
        _, key, value = struct.unpack_from("<iII", data, at)
        names = [data[start + o : data.find(b"\0", start + o)].decode(errors="replace") for o in (key, value)]
        found.setdefault(names[0], []).append(names[1])
    return found


def _default_dirs(machine: int) -> tuple[str, ...]:
    triplets = {
        62: "x86_64-linux-gnu",
        183: "aarch64-linux-gnu",
        243: "riscv64-linux-gnu",
        21: "powerpc64le-linux-gnu",
    }
    triplet = triplets.get(machine)
    dirs = (f"/lib/{triplet}", f"/usr/lib/{triplet}") if triplet else ()
    return (*dirs, "/lib64", "/usr/lib64", "/lib", "/usr/lib")


def _locate(soname: str, user: Elf, inherited: tuple[str, ...], library_path: tuple[str, ...]) -> str | None:
    """The file that the loader would load as `soname` for the file `user`, which needs it."""
    if "/" in soname:
        return soname if os.path.exists(soname) else None
    own = () if user.runpath else (*user.rpath, *inherited)
    for folder in (*own, *library_path, *user.runpath):
        path = os.path.join(folder, soname)
        if os.path.exists(path):
            return path
    for path in _loader_cache().get(soname, []):
        if os.path.exists(path) and _fits(path, user):
            return path
    for folder in _default_dirs(user.machine):
        path = os.path.join(folder, soname)
        if os.path.exists(path):
            return path
    return None


def _fits(path: str, user: Elf) -> bool:
    with open_regular(path) as file:
        head = file.read(20)
    return (
        len(head) == 20
        and (head[4] == 2) == (user.bits == 64)
        and head[18:20] == user.machine.to_bytes(2, "little")
    )


def family(path_or_soname: str) -> str | None:
    """MPI family of a library by its name, or by its content if the name is ambiguous; None if not an MPI."""
    name = os.path.basename(path_or_soname)
    if name in MPI_SONAMES:
        return MPI_SONAMES[name]
    for stem, abi in (("libmpi_abi.so", "abi"), ("libmpich.so", "mpich")):
        if name == stem or name.startswith(stem + "."):
            return abi
    if name.startswith("libmpi.so") or (name.startswith("libmpi_") and not name.startswith(_COMPANIONS)):
        return _family_by_content(path_or_soname)
    return None


def _family_by_content(path: str) -> str | None:
    real = os.path.realpath(path)
    if os.path.basename(real) in MPI_SONAMES:
        return MPI_SONAMES[os.path.basename(real)]
    try:
        with open_regular(real) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            if image.find(b"ompi_mpi_comm_world") >= 0:
                return "openmpi"
            return "mpich" if image.find(b"MPIR_") >= 0 else None
    except (OSError, ValueError):
        return None


def linked_mpi(path: str, env_library_path: str | None = None) -> Linked | None:
    """The MPI library that the program at `path` loads, directly or through its libraries; None if none."""
    first = read(path)
    if first is None:
        return None
    text = os.environ.get("LD_LIBRARY_PATH", "") if env_library_path is None else env_library_path
    library_path = tuple(
        _expand(entry, os.path.dirname(os.path.realpath(path))) for entry in text.split(":") if entry
    )
    queue: deque[tuple[Elf, tuple[str, ...]]] = deque([(first, ())])
    seen: set[str] = set()
    while queue:
        user, inherited = queue.popleft()
        below = inherited if user.runpath else (*user.rpath, *inherited)
        for soname in user.needed:
            if soname in seen:
                continue
            seen.add(soname)
            found = _locate(soname, user, inherited, library_path)
            abi = family(found or soname)
            if abi is not None:
                is_own = not os.path.basename(user.path).startswith(_COMPANIONS)
                return Linked(abi, soname, found, user.path if is_own else path)
            child = read(found) if found and not is_system(soname) else None
            if child is not None:
                queue.append((child, below))
    return None


def linked_files(path: str, is_wanted: Callable[[str], bool], library_path: str = "") -> tuple[str, ...]:
    """Files of the libraries with wanted names that a program links directly."""
    program = read(path)
    wanted = [soname for soname in program.needed if is_wanted(soname)] if program else []
    folders = tuple(filter(None, library_path.split(":")))
    return tuple(found for soname in wanted if program and (found := _locate(soname, program, (), folders)))


def is_system(soname: str) -> bool:
    """Whether a library is one of the system libraries in `_SYSTEM`."""
    return soname.split(".so")[0] in _SYSTEM


def which(name: str, path: str | None = None) -> str | None:
    """First executable file `name` in PATH; like `shutil.which`, whose import costs every rank 4 ms."""
    for folder in (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def locate(soname: str) -> str | None:
    """The file that the loader would load for a library's name or path in a program like this Python."""
    if "/" in soname:
        return soname if os.path.isfile(soname) else None
    here = read("/proc/self/exe")
    folders = tuple(entry for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry)
    return _locate(soname, here, (), folders) if here else None


def resolve_application(name: str, path: str | None = None) -> str:
    """Path of the program that a shell would run for `name`.

    Raises `UsageError` if there is none, or it may not be executed.
    """
    if "/" in name:
        if not os.path.exists(name):
            raise UsageError(f"no program {name}: check the path")
        if os.path.isdir(name):
            raise UsageError(f"{name} is a folder, not a program: name the program in it")
        if not os.access(name, os.X_OK):
            raise UsageError(f"{name} is not executable: chmod +x {name}")
        return name
    found = which(name, path)
    if found is None:
        where = f"; to run the file here write ./{name}" if os.path.exists(name) else ""
        raise UsageError(f"no program {name} in PATH: check the name or load its module{where}")
    return found
