"""Code and functions of an ELF file, as its unwinding table has them; stripped files have it too."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

PT_LOAD, PT_GNU_EH_FRAME, PF_X = 1, 0x6474E550, 1
EM_X86_64 = 62
HDR_VERSION, SORTED_TABLE = 1, 0x3B


@dataclass(frozen=True)
class Segment:
    kind: int
    flags: int
    offset: int
    address: int
    size: int


@dataclass(frozen=True)
class Code:
    """An executable segment and the [begin, end) of the functions in it."""

    base: int
    text: bytes
    functions: list[tuple[int, int]]


def read_segments(data: bytes | mmap.mmap) -> list[Segment]:
    """Empty if it is no program or library of this processor."""
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        return []
    kind, machine = struct.unpack_from("<HH", data, 16)
    if kind not in (2, 3) or machine != EM_X86_64:
        return []
    (at,) = struct.unpack_from("<Q", data, 32)
    size, n = struct.unpack_from("<HH", data, 54)
    segments = []
    for i in range(n):
        p_type, flags, offset, address, _, p_size = struct.unpack_from("<IIQQQQ", data, at + i * size)
        segments.append(Segment(p_type, flags, offset, address, p_size))
    return segments


def executable_size(path: Path) -> int:
    """Bytes of code; 0 for what is no program or library of this processor."""
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
        return sum(s.size for s in read_segments(head) if s.kind == PT_LOAD and s.flags & PF_X)
    except (OSError, struct.error):
        return 0


def read_code(path: Path) -> list[Code]:
    """The executable segments of a file."""
    data = path.read_bytes()
    segments = read_segments(data)
    spans = read_functions(data, segments)
    return [
        Code(s.address, data[s.offset : s.offset + s.size],
             [span for span in spans if s.address <= span[0] and span[1] <= s.address + s.size])
        for s in segments
        if s.kind == PT_LOAD and s.flags & PF_X
    ]  # fmt: skip


def read_functions(data: bytes, segments: list[Segment]) -> list[tuple[int, int]]:
    """Begin and end of each, by the sorted table and the descriptions that it leads to."""
    table = next((s for s in segments if s.kind == PT_GNU_EH_FRAME), None)
    if table is None or data[table.offset] != HDR_VERSION or data[table.offset + 3] != SORTED_TABLE:
        return []
    (n,) = struct.unpack_from("<I", data, table.offset + 8)
    spans = []
    for begin, description in struct.iter_unpack("<ii", data[table.offset + 12 : table.offset + 12 + 8 * n]):
        at = _to_offset(segments, table.address + description)
        if at is None or at + 16 > len(data):
            continue
        relative, size = struct.unpack_from("<iI", data, at + 8)
        if table.address + description + 8 + relative == table.address + begin:
            spans.append((table.address + begin, table.address + begin + size))
    return spans


def _to_offset(segments: list[Segment], address: int) -> int | None:
    for s in segments:
        if s.kind == PT_LOAD and s.address <= address < s.address + s.size:
            return address - s.address + s.offset
    return None


def largest_files(folder: Path, n: int) -> list[Path]:
    """The files below a folder with most code, each once; links are not followed."""
    found: dict[tuple[int, int], tuple[int, Path]] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_symlink() or not path.is_file():
                continue
            status = path.stat()
            if status.st_size > 4096 and (size := executable_size(path)):
                found[(status.st_dev, status.st_ino)] = (size, path)
    return [path for _, path in sorted(found.values(), reverse=True)[:n]]
