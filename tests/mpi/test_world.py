"""Under wrap the real world has one rank more; nothing in the application can tell."""

import pytest
import shimlab

pytestmark = pytest.mark.timeout(240)

N_RANKS = 3


def test_everything_sees_the_applications_world(family, shm_dir, tmp_path):
    program = family.compile("world.c")
    bare = shimlab.launch(family, N_RANKS, program, tmp_path / "bare")
    wrapped = shimlab.launch_wrapped(family, N_RANKS, program, tmp_path / "wrapped")
    assert bare.code == 0
    assert f"rank 0: world 0 of {N_RANKS}" in bare.lines
    assert wrapped.lines == bare.lines
    assert wrapped.code == 0
    assert all(segment["world_size"] == N_RANKS for segment in shimlab.segments(shm_dir).values())


@pytest.mark.parametrize("style", shimlab.FORTRAN_STYLES)
def test_fortran_sees_the_applications_world(family, shm_dir, style):
    program = family.compile("calls.F90", shimlab.FORTRAN_STYLES[style])
    bare = shimlab.launch(family, N_RANKS, program)
    wrapped = shimlab.launch_wrapped(family, N_RANKS, program)
    assert wrapped.lines == bare.lines
    assert any(f"of {N_RANKS}" in line for line in bare.lines)
    assert (wrapped.code, bare.code) == (0, 0)
    for segment in shimlab.segments(shm_dir).values():
        assert shimlab.counts(segment, family.shim)["Isend"] == 10


def test_abort_ends_coordinators_too(family, shm_dir, tmp_path):
    done = shimlab.launch_wrapped(family, 2, family.compile("world.c"), tmp_path / "file", "abort")
    assert done.code == 9
