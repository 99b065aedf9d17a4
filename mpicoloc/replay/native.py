"""Python access to csrc/replay: constants, and the dtype of operations.

Constants of the header are attributes of this module (`native.RP_SEND`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from mpicoloc.errors import EnvironmentFault

try:
    from mpicoloc._replay import ffi, lib  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:  # pragma: no cover - a broken installation
    raise EnvironmentFault(f"mpicoloc._replay cannot be loaded ({error}): install mpicoloc again") from error

__all__ = ["MARK", "OP", "REPORT", "ffi", "lib"]


def _dtype(name: str) -> np.dtype[Any]:
    """NumPy dtype of a struct of integers, with the same size and offsets."""
    ctype = ffi.typeof(name)
    fields = dict(ctype.fields)
    signs = ["i" if int(ffi.cast(field.type, -1)) < 0 else "u" for field in fields.values()]
    sizes = [ffi.sizeof(field.type) for field in fields.values()]
    return np.dtype(
        {
            "names": list(fields),
            "formats": [f"{sign}{size}" for sign, size in zip(signs, sizes, strict=True)],
            "offsets": [field.offset for field in fields.values()],
            "itemsize": ffi.sizeof(ctype),
        }
    )


OP: np.dtype[Any] = _dtype("rp_op")
"""One operation of a rank program, `rp_op` of csrc/replay/replay.h."""

MARK: np.dtype[Any] = _dtype("rp_mark")
"""A mark of a program with its simulated time."""

REPORT: np.dtype[Any] = _dtype("rp_report")
"""The cause of a rank's wait, or a message that was never received."""


def __getattr__(name: str) -> int:
    if name.startswith("RP_") and hasattr(lib, name):
        return int(getattr(lib, name))
    raise AttributeError(f"the packet simulator has no {name!r}")


ABSOLUTE, SHIFT, XOR, XOR_STEP = (
    lib.RP_ABSOLUTE,
    lib.RP_SHIFT,
    lib.RP_XOR,
    lib.RP_XOR_STEP,
)
SYNCHRONOUS, MARKED = lib.RP_SYNCHRONOUS, lib.RP_MARKED
ANY = lib.RP_ANY
"""Any source, or any tag."""


class Operation(IntEnum):
    """The kinds of operations."""

    COMPUTE = lib.RP_COMPUTE
    SEND = lib.RP_SEND
    ISEND = lib.RP_ISEND
    RECV = lib.RP_RECV
    IRECV = lib.RP_IRECV
    WAIT = lib.RP_WAIT
    WAITALL = lib.RP_WAITALL
    LOOP = lib.RP_LOOP
    END = lib.RP_END
    MARK = lib.RP_MARK
    GRAPH = lib.RP_GRAPH
    THEN = lib.RP_THEN
