"""Build the library for an MPI of your own.

  mpicoloc build --mpicc /opt/mpi/bin/mpicc

It goes into the package, or into ~/.cache/mpicoloc when that cannot be written, and is found from there.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess

from mpicoloc import elf, paths
from mpicoloc.errors import EnvironmentFault, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--mpicc", required=True, metavar="CC", help="the compiler wrapper of that MPI")
    parser.add_argument("--to", metavar="DIR", help="folder for the library; default: where mpicoloc finds it")


def run(args: argparse.Namespace) -> int:
    """Build and print the library's path."""
    compiler = shlex.split(args.mpicc)
    if not compiler:
        raise UsageError("--mpicc is empty: name the mpicc of your MPI")
    compiler[0] = elf.resolve_application(compiler[0])
    include, abi = headers(compiler)
    print(build(abi, include, args.to or paths.writable_lib_dir()))
    return 0


def headers(compiler: list[str]) -> tuple[str, str]:
    """Folder of mpi.h and the ABI that a compiler wrapper stands for.

    Raises
    ------
    UsageError
        If it finds no mpi.h, or one of an unknown MPI.
    """
    result = subprocess.run([*compiler, "-E", "-dD", "-x", "c", "-"], input="#include <mpi.h>\n", capture_output=True,
                            text=True, check=False)  # fmt: skip
    place = re.search(r'^# \d+ "(/[^"]*/mpi\.h)"', result.stdout, re.MULTILINE)
    if result.returncode != 0 or place is None:
        raise UsageError(f"{' '.join(compiler)} finds no mpi.h: name the mpicc of an MPI library")
    text = result.stdout
    for mark, abi in (("OMPI_MAJOR_VERSION", "openmpi"), ("MPI_ABI_VERSION", "abi"), ("MPICH_VERSION", "mpich"),
                      ("MVAPICH2_VERSION", "mpich"), ("I_MPI_VERSION", "mpich")):  # fmt: skip
        if f"#define {mark}" not in text:
            continue
        if abi == "abi" and "#define MPICH_VERSION" in text:
            continue
        return os.path.dirname(place.group(1)), abi
    raise UsageError(f"{place.group(1)} belongs to no MPI that mpicoloc knows (MPICH's ABI, Open MPI, the standard's ABI)")


def build(abi: str, include: str, folder: str) -> str:
    """Compile the library for `abi` into `folder`; returns its path."""
    from mpicoloc.pmpi import build_shim

    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"{folder} cannot be made ({error.strerror}): choose another with --to") from None
    return str(build_shim.build(abi, include, folder))
