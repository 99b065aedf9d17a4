"""Each MPI that is installed, with a shim built for the tests."""

import once
import pytest
import reallab
import shimlab


@pytest.fixture(scope="session")
def make_mpi(tmp_path_factory):
    """Find an MPI by name: a distribution's family, the standard ABI, this environment's, or a wheel's."""
    made = {}

    def make(name):
        if name not in made:
            made[name] = shimlab.shared_family(name, once.folder(tmp_path_factory) / "families")
        if made[name] is None:
            pytest.skip(f"no MPI for {name} with its compilers here")
        return made[name]

    return make


@pytest.fixture(params=["openmpi", "mpich"])
def family(request, make_mpi):
    return make_mpi(request.param)


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request, tmp_path_factory):
    """An MPI for which mpicoloc is installed."""
    found = reallab.find(request.param, once.folder(tmp_path_factory) / "programs")
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
