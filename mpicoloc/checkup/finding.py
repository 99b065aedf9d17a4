"""One finding of ``mpicoloc check``."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One line of the check. state: "ok", "note" (less than could be) or "fail" (no job can be measured)."""

    name: str
    state: str
    text: str
    remedy: str = ""
