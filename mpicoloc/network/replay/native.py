"""csrc/replay seen from Python: constants, and the dtype of operations.

Constants of the header are attributes of this module (`native.RP_SEND`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicoloc.core.c_layout import dtype_of
from mpicoloc.errors import EnvironmentFault

try:
    from mpicoloc._replay import ffi, lib  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:  # pragma: no cover - a broken installation
    raise EnvironmentFault(f"mpicoloc._replay cannot be loaded ({error}): install mpicoloc again") from error

__all__ = ["ARBITRATION", "MARK", "OP", "REPORT", "ffi", "lib"]

OP: np.dtype[Any] = dtype_of(ffi, ffi.typeof("rp_op"))
"""One operation of a rank program, `rp_op` of csrc/replay/replay.h."""

MARK: np.dtype[Any] = dtype_of(ffi, ffi.typeof("rp_mark"))
"""A mark of a program with its simulated time."""

REPORT: np.dtype[Any] = dtype_of(ffi, ffi.typeof("rp_report"))
"""What a rank waits for, or sent in vain."""

ARBITRATION: np.dtype[Any] = dtype_of(ffi, ffi.typeof("rp_arbitration"))


def __getattr__(name: str) -> int:
    if name.startswith("RP_") and hasattr(lib, name):
        return int(getattr(lib, name))
    raise AttributeError(f"the packet simulator has no {name!r}")
