"""Print the library to put into LD_PRELOAD for a program.

  LD_PRELOAD=$(mpicoloc preload lmp) mpirun -n 2 lmp -in in.lj

Without a program, of the MPI that this Python would load.
"""

from __future__ import annotations

import argparse
import os
import sys

from mpicoloc import config
from mpicoloc.launch import paths, sidecar, target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.usage = "mpicoloc preload [APP] | mpicoloc preload --include"
    parser.add_argument(
        "--include",
        action="store_true",
        help="print the folder of mpicoloc_app.h, for C programs",
    )
    parser.add_argument("app", nargs="?", help="the program, as you would start it")


def run(args: argparse.Namespace) -> int:
    """Print the library's path."""
    if args.include:
        print(paths.include_dir())
        return 0
    config.validate()
    found = target.find([args.app or sys.executable], os.environ)
    found = found._replace(shim=sidecar.with_sidecar(found.shim))
    print(target.preload(found))
    return 0
