"""Names of the shim's call numbers, from the list that its generator wrote beside it."""

from __future__ import annotations

import json
import os
import re

from mpicoloc.launch import paths

_SHIM = re.compile(r"(/\S*/libmpicoloc-\w+\.so)$", re.MULTILINE)


def abi_of(mpi_library: str) -> str:
    """The shim's ABI from the segment's library text: MPICH's unless that names another (csrc/guest/)."""
    if mpi_library.endswith("standard ABI"):
        return "abi"
    return "openmpi" if mpi_library.lower().startswith("open mpi") else "mpich"


def shim_of(pid: int, mpi_library: str) -> str:
    """The shim that a rank has loaded; once the rank is gone, the one that fits its MPI library."""
    try:
        with open(f"/proc/{pid}/maps", errors="surrogateescape") as file:
            loaded = _SHIM.search(file.read())
    except OSError:
        loaded = None
    abi = abi_of(mpi_library)
    return loaded.group(1) if loaded else paths.find_shim(abi) or paths.shim_name(abi)


def names(shim: str, notes: list[str]) -> dict[int, str]:
    """Name of each call number of a shim; none, and a note, if its list is not there."""
    try:
        with open(os.path.splitext(shim)[0] + ".calls.json", encoding="utf-8") as file:
            return dict(enumerate(json.load(file)))
    except (OSError, ValueError) as error:
        notes.append(f"MPI functions have numbers for names: {error}")
        return {}
