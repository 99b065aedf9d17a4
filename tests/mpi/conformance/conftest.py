"""Each MPI that is here, with a shim built for the tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import shimlab

_made = {}
MPIS = ("openmpi", "mpich", "abi", "own", "openmpi5")


@pytest.fixture(scope="session")
def make_mpi(tmp_path_factory):
    """Find an MPI by name: a distribution's family, the standard ABI, this environment's, or a wheel's."""

    def make(name):
        if name not in _made:
            folder = tmp_path_factory.mktemp(name)
            finders = {
                "abi": shimlab.abi_family,
                "own": shimlab.own_family,
                "openmpi5": shimlab.openmpi5_family,
            }
            find = finders.get(name, lambda folder: shimlab.make_family(name, folder))
            _made[name] = find(folder)
        if _made[name] is None:
            pytest.skip(f"no MPI for {name} here")
        return _made[name]

    return make
