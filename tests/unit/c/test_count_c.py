"""The meter count without MPI: code of ranks is changed while they run it, under the sanitizers."""

import os
import shutil
import subprocess

import objects
import once
import pytest

from mpicoloc.pmpi import build_shim

CORE = (*objects.AGENT, *objects.RECORDER)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    capstone = build_shim.find_capstone()
    assert capstone is not None, "the extra `test` brings the wheel"
    folder = tmp_path_factory.mktemp("count")
    shutil.copy(capstone.library, folder)
    shared = once.folder(tmp_path_factory) / "objects"
    files = [objects.of_tests("test_count"), *CORE]
    return objects.program(
        folder / "test_count", files, objects.SANITIZED, shared, {"decoder.c": capstone.flags}
    )


def _run(program, folder, scenario):
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MPICOLOC_")}
    environment["MPICOLOC_SHM_DIR"] = str(folder)
    done = subprocess.run(
        [program, scenario], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())


@pytest.mark.parametrize("scenario", ["exact", "threads", "fork", "unlike", "storm", "forbidden"])
def test_code_is_changed_and_put_back(program, tmp_path, scenario):
    _run(program, tmp_path, scenario)


@pytest.mark.parametrize("scenario", ["exact", "threads", "fork", "unlike", "storm"])
def test_pages_of_code_are_replaced(tmp_path_factory, tmp_path, scenario):
    """As on aarch64, where instructions are not overwritten in place."""
    capstone = build_shim.find_capstone()
    folder = once.folder(tmp_path_factory) / "copies"
    folder.mkdir(exist_ok=True)
    shutil.copy(capstone.library, folder)
    flags = (*objects.FLAGS, "-DMC_CODE_IN_PLACE=0")
    files = [objects.of_tests("test_count"), *CORE]
    copies = objects.program(tmp_path / "copies", files, flags, folder, {"decoder.c": capstone.flags})
    shutil.copy(capstone.library, tmp_path)
    shm = tmp_path / "shm"
    shm.mkdir()
    _run(copies, shm, scenario)


@pytest.mark.serial
def test_two_jobs_count_around_their_shutters(program, tmp_path):
    _run(program, tmp_path, "jobs")
