"""What of csrc/ each program is made of: a folder stands for all C files below it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SHIM = ("common", "guest")
HOG = "bubble/hog"
"""The memory hog without its program."""
AGENT = ("agent", "common", "trace", HOG)
"""The node agent with what it calls; knows no MPI."""
KEEPER = (*AGENT, "keeper")
BUBBLE = ("bubble",)
"""The memory hog, by itself."""
REPLAY = ("replay",)
"""The packet simulator: neither MPI nor any of the others."""
CONTRACT = "common/mpicoloc.h"
CALLS = "guest/calls/calls.toml"


def c_files(csrc: str | Path, folders: Sequence[str]) -> list[Path]:
    """C files of these folders of csrc/, sorted."""
    return sorted(path for folder in folders for path in (Path(csrc) / folder).rglob("*.c"))
