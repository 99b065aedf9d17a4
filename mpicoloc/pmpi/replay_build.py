"""Builder of `mpicoloc._replay`, the packet simulator of csrc/replay. No MPI is needed.

Run by the build backend. While developing, `python -m mpicoloc.pmpi.replay_build` compiles the extension into
the source tree.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import cffi

from mpicoloc.pmpi.contract_build import CSRC, declarations, install_extension
from mpicoloc.pmpi.sources import REPLAY, c_files

HEADER = CSRC / "replay" / "replay.h"
FLAGS = ("-std=gnu11", "-O3", "-fvisibility=hidden")


def builder(flags: Sequence[str] = FLAGS, csrc: Path = CSRC) -> cffi.FFI:
    """An FFI ready to compile.

    All C files become one: the loop calls across them some ten million times a second, and not every compiler
    that builds wheels optimises across files.
    """
    ffi = cffi.FFI()
    ffi.cdef(declarations(HEADER))
    ffi.set_source(
        "mpicoloc._replay",
        "".join(f'#include "{path.relative_to(csrc)}"\n' for path in c_files(csrc, REPLAY)),
        include_dirs=[str(csrc)],
        extra_compile_args=list(flags),
        depends=[str(path) for path in sorted((csrc / "replay").iterdir())],
    )
    return ffi


def compile_in_place(flags: Sequence[str] = FLAGS) -> Path:
    """Compile the extension by hand and put it beside the package's other modules.

    Result: the extension.
    """
    with tempfile.TemporaryDirectory() as folder:
        return install_extension(builder(flags), "_replay", folder)


if __name__ == "__main__":
    print(compile_in_place())
