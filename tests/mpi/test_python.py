"""mpi4py loads MPI itself, hidden from the shim, and probes what the library has before it does."""

import sys

import pytest
import shimlab

from mpicoloc.pmpi import build_shim

pytestmark = pytest.mark.timeout(2 * shimlab.TIME_LIMIT_S)


def test_mpi4py_program(make_mpi, shm_dir):
    pytest.importorskip("mpi4py")
    family = make_mpi("own")
    command = (sys.executable, shimlab.source_file("calls.py"))
    bare = shimlab.launch(family, 2, *command)
    shimmed = shimlab.launch(family, 2, *command, preload=family.shim)
    assert shimmed.lines == bare.lines
    assert len(bare.lines) == 2
    assert shimmed.code == bare.code == 5
    for segment in shimlab.segments(shm_dir).values():
        calls = shimlab.counts(segment, family.shim)
        # with large counts where the library has them
        assert calls.get("Sendrecv", 0) + calls.get("Sendrecv_c", 0) == 10


def test_standard_abi(make_mpi, shm_dir):
    family = make_mpi("abi")
    program = family.compile("calls.c")
    bare = shimlab.launch(family, 2, program)
    shimmed = shimlab.launch(family, 2, program, preload=family.shim)
    assert shimmed.lines == bare.lines
    assert (shimmed.code, bare.code) == (7, 7)
    found = shimlab.segments(shm_dir)
    assert sorted(found) == [0, 1]
    assert all(shimlab.counts(segment, family.shim)["Isend"] == 10 for segment in found.values())
    assert all(segment["mpi_library"].endswith(b"standard ABI") for segment in found.values())


def test_unknown_compiler_is_named():
    with pytest.raises(build_shim.EnvironmentFault, match="no-such-mpicc"):
        build_shim.include_dirs_of("no-such-mpicc")


def test_a_coordinator_that_fails_keeps_no_other_waiting(make_mpi, shm_dir):
    """Each takes part in what all of them do together: the application ends with them only."""
    pytest.importorskip("mpi4py")
    family = make_mpi("own")
    done = shimlab.launch(family, 2, sys.executable, shimlab.source_file("lame_coordinator.py"))
    assert done.lines == ["rank 0 goes on", "rank 1 goes on"], done.stderr
    assert done.code == 0
    assert "mpicoloc: coordinator: ModuleNotFoundError" in done.stderr
