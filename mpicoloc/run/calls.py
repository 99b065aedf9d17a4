"""Names of the shim's call numbers, from the list that its generator wrote beside it."""

from __future__ import annotations

import json
import os

from mpicoloc import paths


def abi_of(mpi_library: str) -> str:
    """The shim's ABI from MPI_Get_library_version's text: all but Open MPI follow MPICH's."""
    return "openmpi" if mpi_library.lower().startswith("open mpi") else "mpich"


def names(mpi_library: str, notes: list[str]) -> dict[int, str]:
    """Name of each call number of the shim that fits this MPI library; none, and a note, if not known."""
    shim = paths.find_shim(abi_of(mpi_library))
    path = os.path.splitext(shim)[0] + ".calls.json" if shim else paths.shim_name(abi_of(mpi_library))
    try:
        with open(path) as file:
            listed = json.load(file)
    except (OSError, ValueError) as error:
        notes.append(f"MPI functions have numbers for names: {error}")
        return {}
    return dict(enumerate(listed))
