"""Another compiler than that of all other tests has nothing to say about the C code: warnings are errors."""

import shutil
import subprocess

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


@pytest.fixture
def gcc():
    """One that knows freed pointers (gcc 12): what it says of them it says of code that is not optimized."""
    name = shutil.which("gcc") or pytest.skip("no gcc here")
    word = ["-Wuse-after-free=3", "-E", "-x", "c", "/dev/null"]
    if subprocess.run([name, *word], capture_output=True, timeout=60, check=False).returncode != 0:
        pytest.skip("this gcc does not look for freed pointers")
    return name


@pytest.mark.timeout(600)
def test_no_pointer_is_used_after_it_was_freed(gcc, make_mpi, tmp_path):
    """Not even compared: what a freed pointer is worth is undefined."""
    family = make_mpi("own")
    flags = (*shimlab.QUICKLY, "-Wuse-after-free=3")
    include = build_shim.include_dirs_of(family.mpicc)
    assert shimlab.build(tmp_path / "shim", family.name, include, flags, tmp_path / "kept").exists()
    assert objects.program(
        tmp_path / "keeper", objects.KEEPER, ("-std=gnu11", "-O0", *flags), tmp_path / "objects"
    )
