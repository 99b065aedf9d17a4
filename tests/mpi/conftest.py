"""Each MPI family that is installed, with a shim built for the tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import reallab
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


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request):
    """An MPI for which mpicoloc is installed."""
    found = reallab.find(request.param)
    if found is None:
        pytest.skip(f"no {request.param} here")
    return found


@pytest.fixture
def preloaded(family, shm_dir):
    """Run a program bare and preloaded; returns the segments after checking that nothing differs."""

    def both(*words, n_ranks=3):
        bare = shimlab.launch(family, n_ranks, *words)
        shimmed = shimlab.launch(family, n_ranks, *words, preload=family.shim)
        assert shimmed.lines == bare.lines
        assert len(bare.lines) >= n_ranks
        assert shimmed.code == bare.code
        assert "mpicoloc" not in shimmed.stderr
        found = shimlab.segments(shm_dir)
        assert sorted(found) == list(range(n_ranks))
        return found

    return both
