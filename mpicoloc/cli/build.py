"""Build the library for an MPI of your own.

  mpicoloc build --mpicc /opt/mpi/bin/mpicc

It goes into the package, or into ~/.cache/mpicoloc when that cannot be written, and is found from there.
"""

from __future__ import annotations

import argparse
import os

from mpicoloc.core.progress import stage
from mpicoloc.errors import EnvironmentFault
from mpicoloc.launch import elf, paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--mpicc", required=True, metavar="CC", help="the compiler wrapper of that MPI")
    parser.add_argument(
        "--to", metavar="DIR", help="folder for the library; default: where mpicoloc finds it"
    )


def run(args: argparse.Namespace) -> int:
    """Build and print the library's path."""
    mpicc = elf.resolve_application(args.mpicc)
    print(build(mpicc, args.to or paths.writable_lib_dir()))
    return 0


def build(mpicc: str, folder: str) -> str:
    """Compile the library for the MPI behind `mpicc` into `folder`; returns its path."""
    from mpicoloc.pmpi import build_shim

    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(
            f"{folder} cannot be made ({error.strerror}): choose another with --to"
        ) from None
    if not os.access(folder, os.W_OK):
        raise EnvironmentFault(f"{folder} cannot be written: choose another with --to")
    with stage(f"compiling the library for {mpicc}"):
        return str(build_shim.from_mpicc(mpicc, folder))
