"""Options, compiled parts and MPI libraries that a job would use."""

from __future__ import annotations

import importlib
import os
import shutil
import sys

from mpicoloc import config
from mpicoloc.checkup.finding import Finding
from mpicoloc.coordinator import launcher
from mpicoloc.errors import MpicolocError
from mpicoloc.launch import paths, target


def options() -> Finding:
    """Options in the environment."""
    try:
        config.validate()
    except MpicolocError as error:
        return Finding("options", "fail", str(error), "correct or unset that variable")
    if remarks := config.variable_warnings():
        return Finding("options", "note", "; ".join(remarks), "see `mpicoloc run --help`")
    unknown = config.unknown_variables()
    if unknown:
        return Finding(
            "options", "note", f"unknown variables: {', '.join(unknown)}", "see `mpicoloc run --help`"
        )
    return Finding("options", "ok", "the environment holds no bad option")


def compiled_parts() -> list[Finding]:
    """The contract, the keeper and the preloaded libraries."""
    again = "install the package again: pip install --force-reinstall mpicoloc"
    found = []
    try:
        importlib.import_module("mpicoloc.pmpi.contract")
        found.append(Finding("contract", "ok", "compiled part for Python loads"))
    except (ImportError, MpicolocError) as error:
        found.append(Finding("contract", "fail", str(error), again))
    keeper = os.path.join(paths.lib_dir(), paths.KEEPER)
    usable = os.access(keeper, os.X_OK)
    found.append(
        Finding(
            "keeper",
            "ok" if usable else "fail",
            keeper if usable else f"{keeper} is missing",
            "" if usable else again,
        )
    )
    return found


def mpis() -> list[Finding]:
    """Each MPI on this machine, and whether a library fits it."""
    found = [_mpi(one) for one in _launchers()]
    usable = any(finding.state == "ok" for finding in found)
    if usable:
        return found
    remedy = "install one, or use the embedded one: pip install 'mpicoloc[mpich]'"
    return [
        *(finding._replace(state="fail") for finding in found),
        Finding("MPI", "fail", "no usable MPI found", remedy),
    ]


def _launchers() -> list[launcher.Launcher]:
    """Every mpirun beside this Python and in PATH, each installation once."""
    beside = os.path.dirname(sys.executable)
    files = [os.path.join(beside, name) for name in ("mpiexec.hydra", "mpirun")]
    names = ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.mpich", "mpiexec.hydra")
    files += [path for name in names if (path := shutil.which(name))]
    found: dict[tuple[str, str], launcher.Launcher] = {}
    for path in dict.fromkeys(files):
        if not os.access(path, os.X_OK):
            continue
        one = launcher.identify(path)
        if one is not None:
            folder = os.path.dirname(os.path.realpath(path))
            found.setdefault((one.family + one.version, "" if folder == "/usr/bin" else folder), one)
    return list(found.values())


def _mpi(one: launcher.Launcher) -> Finding:
    name = target.NAMES.get(one.family, one.family)
    text = f"{name} {one.version}, {one.path}, ABI {one.family}"
    shim = paths.find_shim(one.family)
    if shim is None:
        beside = os.path.join(os.path.dirname(one.path), "mpicc")
        compiler = beside if os.path.exists(beside) else "CC"
        return Finding("MPI", "note", f"{text}: no library of mpicoloc", f"mpicoloc build --mpicc {compiler}")
    return Finding("MPI", "ok", f"{text}, {shim}")
