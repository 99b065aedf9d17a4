"""The tests of tests/ranks as an MPI job, with and without mpicoloc: the same world in both."""

import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

RANKS = Path(__file__).resolve().parents[1] / "ranks"
N_RANKS = 2


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_pytest_under_mpirun_and_under_mpicoloc(tmp_path, shm_dir):
    from mpicoloc.job import launcher, target

    found = target.find([sys.executable], os.environ)
    mpirun = launcher.find(found.abi, found.libmpi, found.file).path
    application = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(RANKS)]
    profile = tmp_path / "profile.h5"
    mpicoloc = [sys.executable, "-m", "mpicoloc", "run", "-n", str(N_RANKS), "--out", profile, "--"]
    for command in ([mpirun, "-n", str(N_RANKS), *application], [*mpicoloc, *application]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(re.findall("5 passed", done.stdout)) == N_RANKS
    with h5py.File(profile) as file:
        assert file.attrs["schema_version"] == 1
