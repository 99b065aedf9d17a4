"""Builder of `mpicoloc._contract`, the cffi view of csrc/mpicoloc.h.

Run by the build backend. While developing, `python -m mpicoloc.pmpi.contract_build` compiles the extension
into the source tree.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import cffi

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
HEADER = CSRC / "mpicoloc.h"
# What the contract's functions need; none of them knows MPI.
SOURCES = (
    "agent.c", "agent_adapt.c", "agent_pause.c", "agent_ranks.c", "agent_turn.c",
    "board.c", "options.c", "perf.c", "proc.c", "segment.c", "table.c",
)  # fmt: skip


def declarations(header: Path = HEADER) -> str:
    """The contract as the preprocessor leaves it: plain declarations that cffi reads."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, "-E", "-P", "-DMC_CDEF", str(header)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def builder(include_dirs: tuple[str, ...] = (), sources: tuple[str, ...] | None = None) -> cffi.FFI:
    """An FFI ready to compile.

    Parameters
    ----------
    include_dirs : tuple of str
        Folders with generated headers (options_gen.h), beside csrc/.
    sources : tuple of str, optional
        C files relative to the project root; by default those the contract's functions need.

    Returns
    -------
    cffi.FFI
    """
    if sources is None:
        sources = tuple(f"csrc/{name}" for name in SOURCES)
    ffi = cffi.FFI()
    ffi.cdef(declarations())
    ffi.set_source(
        "mpicoloc._contract",
        '#include "mpicoloc.h"\n',
        sources=list(sources),
        include_dirs=[str(CSRC), *include_dirs],
        extra_compile_args=["-std=gnu11", "-O2", "-fvisibility=hidden"],
        libraries=["m"],
    )
    return ffi


def compile_in_place(include_dirs: tuple[str, ...] = ()) -> Path:
    """Compile the extension by hand and put it beside the package's other modules.

    Returns
    -------
    Path
        The extension.
    """
    ffi = builder(include_dirs, tuple(str(CSRC / name) for name in SOURCES))
    with tempfile.TemporaryDirectory() as folder:
        built = Path(ffi.compile(tmpdir=folder, target="_contract.*"))
        place = ROOT / "mpicoloc" / built.name
        # A running process keeps the old file; overwriting it in place would crash that process.
        shutil.copy(built, place.with_suffix(".new"))
        os.replace(place.with_suffix(".new"), place)
    return place


if __name__ == "__main__":
    print(compile_in_place(tuple(sys.argv[1:])))
