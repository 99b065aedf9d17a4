"""Build of the Slurm plugin, ``spank_mpicoloc.so``, and of ``libmpicoloc-auto.so``, which it preloads.

Not part of the package's own build: it needs Slurm's headers, and a cluster has one plugin for all.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from mpicoloc import messages
from mpicoloc.errors import EnvironmentFault
from mpicoloc.pmpi import build_shim, paths

PLUGIN, CHOOSER = "spank_mpicoloc.so", "libmpicoloc-auto.so"
_PARTS = ("plugin.c", "environment.c", "notes.c")
_FLAGS = ("-O2", "-g", "-fPIC", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared")


def build(
    folder: str | Path, python: str, include: str | None = None, cflags: Sequence[str] = ()
) -> tuple[Path, Path]:
    """Compile both into the folder of the preloaded libraries, and note the interpreter beside them.

    Result: plugin and chooser. Raises `EnvironmentFault` if Slurm's headers are missing or the compiler
    fails.
    """
    csrc = build_shim.csrc_dir()
    sources = csrc / "spank"
    header = Path(include or "/usr/include") / "slurm" / "spank.h"
    if not header.exists():
        raise EnvironmentFault(
            f"{header} is not there: install libslurm-dev (slurm-devel), or name its folder with --include"
        )
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = [*_FLAGS, *cflags, f"-I{csrc}", *([f"-I{include}"] if include else [])]
    to = Path(folder)
    plugin, chooser = to / PLUGIN, to / CHOOSER
    build_shim.compile_and_link(compiler, flags, [sources / name for name in _PARTS], plugin, ["-ldl"])
    build_shim.compile_and_link(compiler, flags, [sources / "choose.c"], chooser, ["-ldl"])
    (to / paths.SIDECAR).write_text(python + "\n", encoding="utf-8")
    return plugin, chooser


def find() -> str | None:
    """The plugin where `build` puts it; None if it was not built."""
    for folder in (paths.cache_dir(), paths.lib_dir()):
        if os.path.exists(os.path.join(folder, PLUGIN)):
            return os.path.join(folder, PLUGIN)
    return None


def plugstack_line(words: str | None) -> str | None:
    """The plugin's path and its options for plugstack.conf; None, with a note, if it was not built.

    Raises `EnvironmentFault` if options are given for a plugin that was not built.
    """
    plugin = find()
    if plugin is None and words is not None:
        raise EnvironmentFault("the plugin was not built: run `mpicoloc slurm build`")
    if plugin is None:
        messages.note("without the plugin: `mpicoloc slurm build` makes it")
        return None
    return " ".join([plugin, *(words or "").split()])
