"""Build the preloaded library for your own MPI.

  mpicoloc build --mpicc /opt/mpi/bin/mpicc

The library goes into the package, or into ~/.cache/mpicoloc if the package's folder is read-only; mpicoloc
looks in both.
"""

from __future__ import annotations

import argparse
import os

from mpicoloc.core.progress import stage
from mpicoloc.errors import EnvironmentFault
from mpicoloc.pmpi import elf, paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--mpicc", required=True, metavar="CC", help="the compiler wrapper of that MPI")


def run(args: argparse.Namespace) -> int:
    """Build and print the library's path."""
    mpicc = elf.resolve_application(args.mpicc)
    folder = paths.writable_lib_dir()
    from mpicoloc.pmpi import build_shim

    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(
            f"{folder} cannot be created ({error.strerror}): name another cache with XDG_CACHE_HOME"
        ) from None
    if not os.access(folder, os.W_OK):
        raise EnvironmentFault(f"{folder} cannot be written: name another cache with XDG_CACHE_HOME")
    with stage(f"compiling the library for {mpicc}"):
        path = build_shim.from_mpicc(mpicc, folder)
    print(path)
    return 0
