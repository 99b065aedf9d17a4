"""Programs that live in sessions run as without mpicoloc, never see a coordinator, and are recorded."""

import pytest
import reallab

pytestmark = [
    pytest.mark.timeout(3 * reallab.LIMIT_S),
    pytest.mark.parametrize("mpi", ["openmpi", "mpich", "own", "abi"], indirect=True),
]


HUNG_S = 8  # of what the bare program does in less than one: some libraries hang in what they cannot do


def same_as_bare(mpi, way, style, n_ranks, folder, source="session_ways.c"):
    program = mpi.compile(source)
    if program is None:
        pytest.skip("this MPI has no sessions")
    if way == "wrap" and mpi.abi == "openmpi":
        pytest.skip("such a program has no coordinator with Open MPI")
    if (way, style) == ("wrap", "session-outside") and mpi.abi == "mpich" and mpi.version == (4, 2):
        pytest.skip("MPICH 4.2 crashes unless all ranks call the same function last")
    if style == "two" and mpi.abi == "openmpi" and mpi.version >= (6,):
        pytest.skip("one in six such jobs of Open MPI 6.0.0rc2 hangs, with and without mpicoloc")
    bare = reallab.bare(mpi, n_ranks, program, style, folder=folder, limit_s=HUNG_S)
    if bare.code != 0 or not bare.lines:
        pytest.skip("this MPI library cannot do it, with and without mpicoloc")
    done = reallab.launch(mpi, way, n_ranks, program, style, folder=folder)
    assert (done.lines, done.code) == (bare.lines, bare.code), done.stderr
    assert "mpicoloc" not in done.stderr
    return bare.lines


@pytest.mark.parametrize("way", reallab.WAYS)
@pytest.mark.parametrize("n_ranks", [1, 3])
def test_a_program_with_one_session(mpi, way, n_ranks, shm_dir, tmp_path):
    lines = same_as_bare(mpi, way, "one", n_ranks, tmp_path)
    assert all(f"group {n_ranks} " in line for line in lines)
    found = reallab.profile(tmp_path / "out.h5")
    assert not found.partial
    assert found.job.n_ranks == n_ranks
    assert found.mpi.n_calls > 11 * n_ranks


@pytest.mark.parametrize("way", reallab.WAYS)
@pytest.mark.parametrize("style", ["several", "row", "world-first", "session-first", "session-outside"])
def test_sessions_beside_and_after_each_other(mpi, way, style, shm_dir, tmp_path):
    lines = same_as_bare(mpi, way, style, 2, tmp_path)
    assert any("group 2 " in line for line in lines)
    found = reallab.profile(tmp_path / "out.h5")
    assert not found.partial
    assert found.job.n_ranks == 2


@pytest.mark.parametrize("way", reallab.WAYS)
@pytest.mark.parametrize("style", ["before-init", "after-init", "late", "together-late", "two"])
def test_ranks_that_use_sessions_in_different_ways(mpi, way, style, shm_dir, tmp_path):
    lines = same_as_bare(mpi, way, style, 3, tmp_path, "session_some.c")
    assert len(lines) >= 2
    if style in ("before-init", "after-init", "together-late"):
        assert reallab.profile(tmp_path / "out.h5").job.n_ranks == 3
