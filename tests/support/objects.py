"""Programs of the C half without an MPI: objects that several of them have are compiled once in a run."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import once

from mpicoloc import config
from mpicoloc.pmpi import build_shim

CSRC = Path(__file__).resolve().parents[2] / "csrc"
LIMIT_S = 300
AGENT = tuple(build_shim.c_files(CSRC, build_shim.AGENT))
KEEPER = tuple(build_shim.c_files(CSRC, build_shim.KEEPER))
RECORDER = tuple(sorted(path for name in ("guest", "guest/count") for path in (CSRC / name).glob("*.c")))
"""Sources of the recorder in a rank, without those that depend on MPI; to be linked with `COMMON`."""
GATELESS = tuple(path for path in RECORDER if path.name != "gate.c")
"""For programs that bring a gate of their own, which does nothing."""
COMMON = tuple(build_shim.c_files(CSRC, ("common",)))
FLAGS = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror")
SANITIZED = (*FLAGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
"""Objects are shared only by programs with the same flags."""


def of_tests(name: str) -> Path:
    """The C file of that name below tests/c, where each room has a folder."""
    (found,) = (CSRC.parent / "tests" / "c").glob(f"*/{name}.c")
    return found


def of_csrc(*names: str) -> list[Path]:
    """Files by their path in csrc/."""
    return [CSRC / name for name in names]


def compiler() -> list[str]:
    """The C compiler of the environment."""
    return shlex.split(os.environ.get("CC", "cc"))


def program(
    out: Path,
    files: Sequence[Path],
    flags: Sequence[str],
    folder: Path,
    extra: Mapping[str, Sequence[str]] | None = None,
    cc: Sequence[str] = (),
    link: Sequence[str] = ("-lm", "-lpthread", "-ldl"),
) -> Path:
    """Compile and link a program; the objects, which other programs may have as well, are kept in `folder`.

    `extra` has flags of single files, by name, `cc` the compiler, if not that of the environment, and `link`
    the libraries and what only the linker is told.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_options(folder)
    command = [*(cc or compiler()), *flags]

    def compiled(source: Path) -> Path:
        return _object(command, [*(extra or {}).get(source.name, ())], source, folder)

    with ThreadPoolExecutor(os.cpu_count()) as at_a_time:
        objects = list(at_a_time.map(compiled, files))
    _call([*command, *map(str, objects), "-o", str(out), *link])
    return out


def write_options(folder: Path) -> None:
    """Write the header of options that is made from Python."""
    options = folder / "options_gen.h"
    with once.alone(options):
        if not options.exists():
            options.write_text(config.c_table())


def _object(command: Sequence[str], extra: Sequence[str], source: Path, folder: Path) -> Path:
    words = [*command, *extra, f"-I{folder}", f"-I{CSRC}"]
    name = hashlib.sha256("\0".join([*words, str(source)]).encode()).hexdigest()[:16]
    made = folder / f"{source.stem}-{name}.o"
    with once.alone(made):
        if not made.exists():
            partial = made.with_suffix(".partial")
            _call([*words, "-c", str(source), "-o", str(partial)])
            partial.rename(made)
    return made


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr


def linked(folder, soname, given=(), taken=()):
    """A program that links a library of this name and nothing else of MPI.

    The library has the names `given` and `taken` besides MPI_Init; the program uses those that are `taken`.
    """
    folder.mkdir()
    program, library = folder / "app", folder / soname
    of_library = "".join(f"int {name};" for name in {*given, *taken})
    of_program = "".join(f"extern int {name};" for name in taken)
    (folder / "m.c").write_text(f"int MPI_Init(void) {{ return 0; }} {of_library}")
    main = f"int main(void) {{ return {' + '.join(['MPI_Init()', *taken])}; }}"
    (folder / "a.c").write_text(f"int MPI_Init(void); {of_program} {main}")
    made = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", library, folder / "m.c"]
    subprocess.run(made, check=True, timeout=60)
    made = ["cc", "-o", program, folder / "a.c", library, f"-Wl,-rpath,{folder}"]
    subprocess.run(made, check=True, timeout=60)
    return program
