"""Another compiler than that of all other tests has nothing to say about the C code: warnings are errors."""

import shutil

import pytest

from mpicoloc.pmpi import build_shim


@pytest.fixture
def clang():
    """The newest clang here."""
    names = ("clang", *(f"clang-{version}" for version in range(30, 10, -1)))
    return next(filter(None, map(shutil.which, names)), None) or pytest.skip("no clang here")


def test_clang_builds_the_keeper_without_a_warning(clang, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", clang)
    assert build_shim.build_keeper(tmp_path, tmp_path / "kept").exists()
