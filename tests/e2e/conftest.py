"""Jobs of one test, with Open MPI: they end with the test, whatever happens in it."""

import os
import tempfile
from pathlib import Path

import bubbled_jobs
import jobs
import pytest

from mpicoloc.bubble import calibrate


@pytest.fixture
def openmpi():
    """Open MPI, with the test program in a folder that every user may read."""
    with tempfile.TemporaryDirectory(prefix="mpicoloc-openmpi-") as folder:
        os.chmod(folder, 0o755)
        yield jobs.need_mpi("openmpi", Path(folder))


@pytest.fixture
def started():
    """Put the jobs that a test starts into this list."""
    found = []
    yield found
    for job in found:
        job.kill()


@pytest.fixture
def start(started, tmp_path, shm_dir):
    """Start a job in the test's folder: as `jobs.start`, but without that."""

    def start_one(mpi, way, *arguments, **options):
        started.append(jobs.start(mpi, tmp_path, way, *arguments, **options))
        return started[-1]

    return start_one


@pytest.fixture
def calibrated(tmp_path, monkeypatch):
    """The environment of a machine that is calibrated; returns a function that changes the calibration."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def write(**settings):
        calibrate.write_file(bubbled_jobs.calibration_of(**settings), calibrate.default_path())

    write()
    return write
