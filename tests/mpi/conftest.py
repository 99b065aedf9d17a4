"""Each MPI family that is installed, with a shim built for the tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import shimlab

_made = {}


@pytest.fixture(params=["openmpi", "mpich"])
def family(request, tmp_path_factory):
    name = request.param
    if name not in _made:
        _made[name] = shimlab.make_family(name, tmp_path_factory.mktemp(name))
    if _made[name] is None:
        pytest.skip(f"no {name} with C and Fortran compilers here")
    return _made[name]
