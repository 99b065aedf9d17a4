"""Print the path of the library to preload (LD_PRELOAD) with a program.

  LD_PRELOAD=$(mpicoloc preload lmp) mpirun -n 2 lmp -in in.lj

Without a program: the library for the MPI that this Python would load.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import sys

from mpicoloc import config, messages
from mpicoloc.errors import EnvironmentFault
from mpicoloc.job import target
from mpicoloc.pmpi import paths


def with_sidecar(shim: str) -> str:
    """The path of the library in a folder where the file `python` names this interpreter.

    If a job is started with LD_PRELOAD alone, only this file tells it which Python writes its profile. If the
    library's folder is not writable, the result is a copy in the user's cache.
    """
    if _write_sidecar(os.path.dirname(shim)):
        return shim
    folder = paths.cache_dir()
    try:
        os.makedirs(folder, exist_ok=True)
        for path in (
            shim,
            shim.removesuffix(".so") + ".calls.json",
            os.path.join(paths.lib_dir(), paths.KEEPER),
        ):
            if os.path.exists(path):
                _copy(path, folder)
    except OSError as error:
        raise EnvironmentFault(f"{folder} cannot be written ({error.strerror}): set XDG_CACHE_HOME") from None
    _write_sidecar(folder)
    return os.path.join(folder, os.path.basename(shim))


def _write_sidecar(folder: str) -> bool:
    path = os.path.join(folder, paths.SIDECAR)
    try:
        with open(path) as file:
            if file.read().strip() == sys.executable:
                return True
    except OSError:
        pass
    try:
        with open(f"{path}.{os.getpid()}", "w") as file:
            file.write(sys.executable + "\n")
        os.replace(f"{path}.{os.getpid()}", path)
    except OSError:
        return False
    return True


def _copy(path: str, folder: str) -> None:
    to = os.path.join(folder, os.path.basename(path))
    if os.path.exists(to) and filecmp.cmp(path, to, shallow=False):
        return
    shutil.copy(path, f"{to}.{os.getpid()}")
    os.replace(f"{to}.{os.getpid()}", to)


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
    found = found._replace(shim=with_sidecar(found.shim))
    print(target.preload(found))
    if sys.stderr.isatty() and not config.get("out"):
        messages.note("profile: mpicoloc-<job id>.h5 in rank 0's folder; MPICOLOC_OUT=FILE names another")
    return 0
