"""Names of the operations of rank programs, whose numbers csrc/replay/replay.h has."""

from __future__ import annotations

from enum import IntEnum

from mpicoloc.network.replay import native

OP = native.OP
ABSOLUTE, SHIFT, XOR, XOR_STEP = (
    native.RP_ABSOLUTE,
    native.RP_SHIFT,
    native.RP_XOR,
    native.RP_XOR_STEP,
)
SYNCHRONOUS = native.RP_SYNCHRONOUS
ANY = native.RP_ANY
"""Any source, or any tag."""


class Operation(IntEnum):
    """What an operation does."""

    COMPUTE = native.RP_COMPUTE
    SEND = native.RP_SEND
    ISEND = native.RP_ISEND
    RECV = native.RP_RECV
    IRECV = native.RP_IRECV
    WAIT = native.RP_WAIT
    WAITALL = native.RP_WAITALL
    LOOP = native.RP_LOOP
    END = native.RP_END
    MARK = native.RP_MARK
