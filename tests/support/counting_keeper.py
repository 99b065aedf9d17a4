"""A keeper whose meter count changes the code of programs all the time (tests/c/agent/counts_always.c)."""

import shutil
from pathlib import Path

import objects

from mpicoloc.pmpi import build_shim, paths

FLAGS = ("-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread")


def shim(folder: Path, family: str) -> Path:
    """A copy of the library for an MPI family in this folder, beside such a keeper, which it will start.

    In the environment, ``COUNT_ALWAYS`` says "change" or "stay".
    """
    capstone = build_shim.find_capstone()
    always = objects.of_tests("counts_always")
    files = [always if path.parts[-2:] == ("meters", "count.c") else path for path in objects.KEEPER]
    flags = [*FLAGS, *(capstone.flags if capstone else ())]
    folder.mkdir(parents=True, exist_ok=True)
    objects.program(folder / paths.KEEPER, files, flags, folder / "objects")
    if capstone:
        shutil.copyfile(capstone.library, folder / "libcapstone.so")
    return Path(shutil.copy(paths.find_shim(family), folder))
