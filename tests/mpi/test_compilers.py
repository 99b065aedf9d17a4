"""Another compiler than that of all other tests has nothing to say about the C code: warnings are errors."""

import shutil

import objects
import pytest
import shimlab

from mpicoloc.pmpi import build_shim


@pytest.fixture
def clang():
    """The newest clang here."""
    names = ("clang", *(f"clang-{version}" for version in range(30, 10, -1)))
    return next(filter(None, map(shutil.which, names)), None) or pytest.skip("no clang here")


def test_clang_builds_the_keeper_without_a_warning(clang, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", clang)
    assert build_shim.build_keeper(tmp_path, tmp_path / "kept").exists()


@pytest.mark.timeout(600)
def test_no_pointer_is_used_after_it_was_freed(make_mpi, tmp_path):
    """Not even compared: what a freed pointer is worth is undefined."""
    if shimlab.FREED not in shimlab.quickly():
        pytest.skip("this compiler does not look for freed pointers")
    # The shims of all tests are built so.
    assert make_mpi("own").shim.exists()
    flags = ("-std=gnu11", "-Werror", *shimlab.quickly())
    assert objects.program(tmp_path / "keeper", objects.KEEPER, flags, tmp_path / "objects")
