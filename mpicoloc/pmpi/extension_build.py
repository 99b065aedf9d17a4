"""Builders of the two Python extensions: `mpicoloc._contract`, the cffi view of csrc/common/mpicoloc.h, and
`mpicoloc._replay`, the packet simulator of csrc/replay. They need no MPI.

The build backend runs this module. During development, `python -m mpicoloc.pmpi.extension_build` compiles
both into the source tree.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import cffi

from mpicoloc import config
from mpicoloc.pmpi.build_shim import AGENT, CONTRACT, REPLAY, c_files

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"

DECLARATIONS = """
int mc_agent_run(mc_agent *agent, uint64_t step_ns, int n_steps);
int mc_perf_available(char *reason, size_t size);
"""
"""Functions that Python calls besides the contract."""
# The coordinator's inner loop is in C: a wake-up in Python takes 90 us, which would disturb a full node.
DEFINITION_OF_RUN = """
#include "common/counters/perf.h"

static int mc_agent_run(mc_agent *agent, uint64_t step_ns, int n_steps)
{
    int status = MC_OK, n_seen, n_alive, n_finalizing;
    for (int i = 0; i < n_steps && status == MC_OK; i++) {
        status = mc_agent_step(agent, step_ns);
        mc_agent_ranks(agent, &n_seen, &n_alive, &n_finalizing);
        if (n_seen > 0 && n_finalizing >= n_alive)
            break;
    }
    return status;
}
"""


def declarations(header: Path) -> str:
    """A header's text after the preprocessor: plain declarations that cffi can read."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, "-E", "-P", "-DMC_CDEF", f"-I{CSRC}", str(header)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def contract(include_dirs: tuple[str, ...] = (), sources: tuple[str, ...] | None = None) -> cffi.FFI:
    """An FFI of the contract, ready to compile."""
    if sources is None:
        sources = tuple(str(path.relative_to(ROOT)) for path in c_files(CSRC, AGENT))
    ffi = cffi.FFI()
    ffi.cdef(declarations(CSRC / CONTRACT))
    ffi.cdef(DECLARATIONS)
    ffi.set_source(
        "mpicoloc._contract",
        DEFINITION_OF_RUN,
        sources=list(sources),
        include_dirs=[*include_dirs, str(CSRC)],
        extra_compile_args=["-std=gnu11", "-O2", "-fvisibility=hidden"],
        libraries=["m"],
        depends=[str(path) for path in sorted(CSRC.rglob("*.h"))],
    )
    return ffi


def replay() -> cffi.FFI:
    """An FFI of the packet simulator, ready to compile.

    All C files are included in one: the main loop makes some ten million calls between them per second, and
    not every compiler that builds wheels optimises across files.
    """
    ffi = cffi.FFI()
    ffi.cdef(declarations(CSRC / "replay" / "replay.h"))
    ffi.set_source(
        "mpicoloc._replay",
        "".join(f'#include "{path.relative_to(CSRC)}"\n' for path in c_files(CSRC, REPLAY)),
        include_dirs=[str(CSRC)],
        extra_compile_args=["-std=gnu11", "-O3", "-fvisibility=hidden"],
        depends=[str(path) for path in sorted((CSRC / "replay").iterdir())],
    )
    return ffi


def compile_in_place(include_dirs: Sequence[str] = ()) -> None:
    """Compile both extensions into the package's folder."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "options_gen.h").write_text(config.c_table(), encoding="utf-8")
        files = tuple(map(str, c_files(CSRC, AGENT)))
        for name, ffi in (("_contract", contract((*include_dirs, folder), files)), ("_replay", replay())):
            place = ROOT / "mpicoloc" / f"{name}.abi3.so"
            new = place.with_suffix(".new")
            shutil.copy(ffi.compile(tmpdir=folder, target=f"{name}.*"), new)
            os.replace(new, place)  # a running process keeps the old file; writing into that would crash it


if __name__ == "__main__":
    compile_in_place(sys.argv[1:])
