"""Builds the preloaded libraries, ``libmpicoloc-<abi>.so``, the keeper, and the Slurm plugin.

``setup.py`` uses this module for the three common MPI families, ``mpicoloc build`` for a site's own MPI. The
libraries are plain C; they link neither libpython nor any MPI. This module needs the standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mpicoloc import config, messages
from mpicoloc.errors import EnvironmentFault
from mpicoloc.pmpi import generate, generate_fortran, paths

# Folders of csrc/ from which each program is built, with all C files below them.
SHIM = ("common", "guest")
HOG = "bubble/hog"
"""The memory hog without its main program."""
AGENT = ("agent", "common", "trace", HOG)
"""The node agent with all code that it calls; it does not depend on MPI."""
KEEPER = (*AGENT, "keeper")
BUBBLE = ("bubble",)
"""The memory hog as a program."""
REPLAY = ("replay",)
"""The packet simulator, independent of MPI and of the other folders."""
CONTRACT = "common/mpicoloc.h"
CALLS = "guest/calls/calls.toml"


def c_files(csrc: str | Path, folders: Sequence[str]) -> list[Path]:
    """The C files in these folders of csrc/, sorted."""
    return sorted(path for folder in folders for path in (Path(csrc) / folder).rglob("*.c"))


_CFLAGS = ("-O2", "-g", "-fPIC", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden",
           "-ftls-model=initial-exec", "-pthread")  # fmt: skip
_OF_GENERATED = {"-O2": "-O1", "-g": "-g1"}
"""Flags for the thousand generated wrappers, which then compile in half the time of -O2 and run as fast."""
_MPI_HEADERS = {"calls_gen.h", "mpi.h", "mpi_abi.h"}
_TIME_LIMIT_S = 600
_COMPILERS = threading.BoundedSemaphore(len(os.sched_getaffinity(0)))
"""Limits compilers to one per processor, even if several libraries are built at once."""


def csrc_dir() -> Path:
    """Folder of the C sources: beside the package in a checkout, inside the installed package."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_lib" / "csrc", package.parent / "csrc"):
        if (folder / CALLS).exists():
            return folder
    raise EnvironmentFault(f"the C sources of mpicoloc are not beside {package}: install the package again")


def family_of(cc: Sequence[str], include_dirs: Sequence[str | Path]) -> str:
    """The family of the ``mpi.h`` in ``include_dirs``: "mpich", "openmpi" or "abi"."""
    probe = "#include <mpi.h>\nis_openmpi:OPEN_MPI\nis_mpich:MPICH_VERSION\nis_abi:MPI_ABI_VERSION\n"
    command = [*cc, "-E", "-P", *(f"-I{path}" for path in include_dirs), "-x", "c", "-"]
    done = subprocess.run(
        command, input=probe, capture_output=True, text=True, check=False, timeout=_TIME_LIMIT_S
    )
    if done.returncode != 0:
        where = ", ".join(map(str, include_dirs)) or "the compiler's own folders"
        raise EnvironmentFault(f"no usable mpi.h in {where}: {_last_line(done.stderr)}")
    for family, macro in (("openmpi", "OPEN_MPI"), ("mpich", "MPICH_VERSION"), ("abi", "MPI_ABI_VERSION")):
        if f"is_{family}:{macro}" not in done.stdout:
            return family
    raise EnvironmentFault(
        "this mpi.h is not that of MPICH, Open MPI or the standard ABI: mpicoloc supports no other MPI"
    )


def build_shim(
    cc: Sequence[str],
    include_dirs: Sequence[str | Path],
    family: str | None,
    out_dir: str | Path,
    csrc: str | Path | None = None,
    cflags: Sequence[str] = (),
    kept: str | Path | None = None,
    large_counts: str | Path | None = None,
) -> Path:
    """Generate the wrappers for one MPI and compile its library.

    If the MPI's header lacks functions with large counts, they are taken from the ``mpi.h`` in the folder
    `large_counts`. Object files that do not depend on an MPI are cached in the folder `kept`.

    Result: the library. Raises `EnvironmentFault` if the header cannot be read or the compiler fails.
    """
    sources = Path(csrc) if csrc is not None else csrc_dir()
    family = family or family_of(cc, include_dirs)
    with tempfile.TemporaryDirectory() as temporary:
        generated = Path(temporary)
        names = _generate(cc, include_dirs, family, sources, generated, large_counts)
        library = Path(out_dir) / paths.shim_name(paths.abi_of(family, "MPI_Send_c" in names))
        flags = [*_CFLAGS, "-shared", *cflags]
        flags += [f"-I{path}" for path in (generated, sources, *include_dirs)]
        # The standard ABI has no Fortran.
        own = [path for path in c_files(sources, SHIM) if path.name != "fortran.c" or family != "abi"]
        files = [*own, *sorted(generated.glob("*.c"))]
        compile_and_link(cc, flags, files, library, ["-ldl", "-lm", "-lrt"], kept)
    names_file = library.with_suffix(".calls.json")
    names_file.write_text(json.dumps(["", *names], indent=0) + "\n", encoding="utf-8")
    return library


def build(
    family: str,
    include_dir: str | Path,
    out_dir: str | Path,
    kept: str | Path,
    large_counts: str | Path | None = None,
) -> Path:
    """`build_shim` with the compiler from the environment (``CC``, else cc)."""
    return build_shim(_default_cc(), [include_dir], family, out_dir, kept=kept, large_counts=large_counts)


def from_mpicc(mpicc: str, out_dir: str | Path) -> Path:
    """Build the library that fits the MPI behind a compiler wrapper."""
    return build_shim(_default_cc(), include_dirs_of(mpicc), None, out_dir)


def include_dirs_of(mpicc: str) -> list[str]:
    """Folders that a compiler wrapper searches for headers.

    Raises `EnvironmentFault` if the command does not exist or does not show them.
    """
    for question in ("--showme:compile", "-show"):
        try:
            done = subprocess.run([mpicc, question], capture_output=True, text=True, check=False, timeout=60)
        except OSError as error:
            raise EnvironmentFault(
                f"cannot run {mpicc}: {error.strerror}; give the MPI's own mpicc"
            ) from None
        if done.returncode == 0:
            words = shlex.split(done.stdout)
            return [word[2:] for word in words if word.startswith("-I")]
    raise EnvironmentFault(
        f"{mpicc} prints no compile flags for --showme:compile or -show: is it an MPI compiler?"
    )


def build_keeper(out_dir: str | Path, kept: str | Path) -> Path:
    """Compile the keeper, the small program that outlives the ranks of a job; for `kept` see `build_shim`.

    Capstone's library is copied into the keeper's folder, from which the keeper loads it. Without the wheel
    `capstone` the keeper cannot decode instructions, so it cannot count loops.
    """
    sources, program = csrc_dir(), Path(out_dir) / paths.KEEPER
    capstone = find_capstone()
    flags = [*_CFLAGS, f"-I{sources}", *(capstone.flags if capstone else ())]
    libraries = ["-ldl", "-lm", "-lpthread"]
    compile_and_link(_default_cc(), flags, c_files(sources, KEEPER), program, libraries, kept)
    if capstone is not None:
        _replace(capstone.library, program.with_name("libcapstone.so"))
        _replace(capstone.license, program.with_name("libcapstone.LICENSE"))
    return program


def build_bubble(out_dir: str | Path, kept: str | Path) -> Path:
    """Compile the memory hog; for `kept` see `build_shim`."""
    sources, program = csrc_dir(), Path(out_dir) / paths.BUBBLE
    compile_and_link(_default_cc(), [*_CFLAGS, f"-I{sources}"], c_files(sources, BUBBLE), program, [], kept)
    return program


@dataclass(frozen=True)
class Capstone:
    """Files of the wheel `capstone` that a C program needs."""

    include: Path
    library: Path
    license: Path

    @property
    def flags(self) -> list[str]:
        """Compiler flags; the macro MC_CAPSTONE says that the headers exist."""
        return ["-DMC_CAPSTONE", f"-I{self.include}"]


def find_capstone() -> Capstone | None:
    """Headers and library of Capstone 5 from its wheel; None if there is no wheel of this version."""
    try:
        wheel = importlib.metadata.distribution("capstone")
    except importlib.metadata.PackageNotFoundError:
        return None
    found = {file.name: Path(str(file.locate())).resolve() for file in wheel.files or []}
    header, library, license_ = (found.get(name) for name in ("capstone.h", "libcapstone.so", "LICENSE.TXT"))
    if header is None or library is None or license_ is None or wheel.version.split(".")[0] != "5":
        return None
    return Capstone(header.parents[1], library, license_)


def _replace(source: Path, target: Path) -> None:
    """Copy a file, replacing the old one atomically, because a running keeper may have it mapped."""
    new = target.with_name(target.name + ".new")
    shutil.copyfile(source, new)
    os.replace(new, target)


def _default_cc() -> list[str]:
    return shlex.split(os.environ.get("CC", "cc"))


def _write_options(folder: Path) -> None:
    (folder / "options_gen.h").write_text(config.c_table(), encoding="utf-8")


def _declared(cc: Sequence[str], include_dirs: Sequence[str | Path], header: str) -> list[generate.Prototype]:
    try:
        text = generate.preprocess(cc, [str(path) for path in include_dirs], header)
    except (RuntimeError, OSError) as error:
        raise EnvironmentFault(str(error)) from None
    return generate.parse_prototypes(text)


def _generate(
    cc: Sequence[str],
    include_dirs: Sequence[str | Path],
    family: str,
    csrc: Path,
    folder: Path,
    large_counts: str | Path | None,
) -> list[str]:
    """Write the generated C files into ``folder``; returns the names of the calls in order."""
    header = "mpi_abi.h" if family == "abi" else "mpi.h"
    calls = generate.load_calls(csrc / CALLS)
    declared = _declared(cc, include_dirs, header)
    if "MPI_Send" not in {p.name for p in declared}:
        raise EnvironmentFault(f"no prototype of MPI_Send in <{header}>: is this an MPI header?")
    prototypes = generate.wrapped(declared, calls)
    prototypes += generate.removed_prototypes(calls, family, declared)
    if large_counts is not None:
        lent = generate.wrapped(_declared(cc, [large_counts], "mpi.h"), calls)
        prototypes += generate.large_counts(lent, declared)
    helper_list = generate.helpers(declared, family)
    (folder / "calls_gen.h").write_text(
        generate.emit_header(prototypes, helper_list, calls, header, family != "abi"), encoding="utf-8"
    )
    (folder / "wrappers_gen.c").write_text(generate.emit_c(prototypes, calls), encoding="utf-8")
    if family != "abi":
        (folder / "fortran_gen.c").write_text(
            generate_fortran.emit_fortran(prototypes, calls, family), encoding="utf-8"
        )
    _write_options(folder)
    return [p.name for p in prototypes]


def compile_and_link(
    cc: Sequence[str],
    flags: Sequence[str],
    files: Sequence[Path],
    out: Path,
    libraries: Sequence[str],
    kept: str | Path | None = None,
) -> None:
    """Compile files in parallel, one per processor, and link; for `kept` see `build_shim`.

    The old file is replaced atomically, because a running job may have it mapped.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    new = out.with_name(out.name + ".new")
    # clang warns about flags that a step does not use
    compiling = [*cc, *(flag for flag in flags if flag != "-shared"), "-c"]
    linking = [*cc, *(flag for flag in flags if not flag.startswith("-I"))]
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-I")]
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as at_a_time,
    ):

        def compiled(path: Path) -> str:
            if kept is not None and (own := _without_mpi(path, folders)):
                return _kept_object(compiling, own, Path(kept))
            made = f"{folder}/{path.parent.name}-{path.stem}.o"
            changed = _OF_GENERATED if path.name.endswith("_gen.c") else {}
            words = [changed.get(word, word) for word in compiling]
            _compile([*words, str(path), "-o", made], out.name)
            return made

        # largest first: the generated files take longest
        parts = sorted(files, key=lambda path: path.stat().st_size, reverse=True)
        objects = list(at_a_time.map(compiled, parts))
        _compile([*linking, *objects, "-o", str(new), *libraries], out.name)
    os.replace(new, out)


def _without_mpi(path: Path, folders: Sequence[Path]) -> list[Path]:
    """A C file and its included headers, from its own folder or `folders`; empty if it needs an MPI."""
    found, i = [path], 0
    while i < len(found):
        text = found[i].read_text(encoding="utf-8")
        if not _MPI_HEADERS.isdisjoint(re.findall(r'^#include ["<](.+)[">]', text, re.MULTILINE)):
            return []
        for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE):
            if name == "options_gen.h":
                continue
            places = (folder / name for folder in (found[i].parent, *folders))
            file = next((place for place in places if place.exists()), None)
            if file is None:
                return []
            if file not in found:
                found.append(file)
        i += 1
    return found


def _kept_object(compiling: Sequence[str], own: Sequence[Path], kept: Path) -> str:
    """Object file in the folder `kept` for this compiler, flags and content; compiled if it is missing."""
    path, command = own[0], [word for word in compiling if not word.startswith("-I")]
    searched = [word for word in compiling if word.startswith("-I")]
    content = b"".join(
        [shlex.join(command).encode(), config.c_table().encode(), *(f.read_bytes() for f in own)]
    )
    made = kept / f"{path.stem}-{hashlib.sha256(content).hexdigest()[:16]}.o"
    kept.mkdir(parents=True, exist_ok=True)
    with open(f"{made}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=kept) as folder:
                _write_options(Path(folder))
                new = f"{folder}/{path.stem}.o"
                _compile([*command, f"-I{folder}", *searched, str(path), "-o", new], path.name)
                os.replace(new, made)
    return str(made)


def _compile(command: Sequence[str], name: str) -> None:
    try:
        with _COMPILERS:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIME_LIMIT_S)
    except OSError as error:
        raise EnvironmentFault(f"cannot run the C compiler {command[0]}: {error.strerror}; set CC") from None
    if done.returncode != 0:
        fault = EnvironmentFault(f"the C compiler failed on {name}:")
        for line in done.stderr.strip()[-4000:].splitlines():
            fault.add_note(line)
        raise fault


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line] or text.splitlines() or [""]
    return lines[0].strip()


# Build of the Slurm plugin, ``spank_mpicoloc.so``, and of ``libmpicoloc-auto.so``, which the plugin preloads.
#
# The package's own build does not make them: they need Slurm's headers, and a cluster needs only one plugin.


PLUGIN, CHOOSER = "spank_mpicoloc.so", "libmpicoloc-auto.so"
_PLUGIN_PARTS = ("plugin.c", "environment.c", "notes.c")
_PLUGIN_FLAGS = ("-O2", "-g", "-fPIC", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared")


def build_plugin(
    folder: str | Path, python: str, include: str | None = None, cflags: Sequence[str] = ()
) -> tuple[Path, Path]:
    """Compile plugin and chooser into the folder of the preloaded libraries, and record the interpreter
    there.

    Result: plugin and chooser. Raises `EnvironmentFault` if Slurm's headers are missing or the compiler
    fails.
    """
    csrc = csrc_dir()
    sources = csrc / "spank"
    header = Path(include or "/usr/include") / "slurm" / "spank.h"
    if not header.exists():
        raise EnvironmentFault(
            f"{header} does not exist: install libslurm-dev (slurm-devel), or name the folder that contains "
            "slurm/ with --include"
        )
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = [*_PLUGIN_FLAGS, *cflags, f"-I{csrc}", *([f"-I{include}"] if include else [])]
    to = Path(folder)
    plugin, chooser = to / PLUGIN, to / CHOOSER
    compile_and_link(compiler, flags, [sources / name for name in _PLUGIN_PARTS], plugin, ["-ldl"])
    compile_and_link(compiler, flags, [sources / "choose.c"], chooser, ["-ldl"])
    (to / paths.SIDECAR).write_text(python + "\n", encoding="utf-8")
    return plugin, chooser


def find_plugin() -> str | None:
    """Path of the plugin that `mpicoloc slurm build` made; None if it was not built."""
    for folder in (paths.cache_dir(), paths.lib_dir()):
        if os.path.exists(os.path.join(folder, PLUGIN)):
            return os.path.join(folder, PLUGIN)
    return None


def plugstack_line(words: str | None) -> str | None:
    """The plugin's path and options for plugstack.conf; None, with a note, if it was not built.

    Raises `EnvironmentFault` if options are given for a plugin that was not built.
    """
    plugin = find_plugin()
    if plugin is None and words is not None:
        raise EnvironmentFault("the plugin was not built: run `mpicoloc slurm build`")
    if plugin is None:
        messages.note("the plugin is left out, as it was not built: run `mpicoloc slurm build`")
        return None
    return " ".join([plugin, *(words or "").split()])


if __name__ == "__main__":
    print(from_mpicc(sys.argv[1], sys.argv[2]))
