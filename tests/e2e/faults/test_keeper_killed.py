"""A job whose keeper is killed: nothing is claimed that nobody saw, and nothing stays in memory."""

import os
import signal
import subprocess
import sys
import time

import jobs
import pytest

from mpicoloc.profile import hdf5

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(jobs.LIMIT_S + 20)]


@pytest.mark.parametrize("name", sorted(jobs.FAMILIES))
def test_the_keeper_is_killed(name, tmp_path, shm_dir):
    mpi = jobs.find_mpi(name, tmp_path)
    if mpi is None:
        pytest.skip(f"no {name} here, or no shim for it")
    out = tmp_path / "job.h5"
    command = [sys.executable, "-m", "mpicoloc", "run", "-n", "2", "--mpirun", mpi.mpirun, "--out", out]
    process = subprocess.Popen([*command, mpi.program, "seven", "5"], cwd=tmp_path)
    try:
        jobs.wait_until(lambda: jobs.running_ranks(shm_dir, str(process.pid), 2), "both ranks to run")
        keeper = jobs.wait_until(lambda: jobs.keeper_of(shm_dir), "the keeper")
        time.sleep(0.5)
        os.kill(keeper, signal.SIGKILL)
        assert process.wait(jobs.LIMIT_S) == 7
    finally:
        process.kill()
    profile = hdf5.read(out)
    assert profile.interference.slowdown is None
    assert "keeper" in profile.interference.reason
    assert profile.price.discount_frac == 0.0
    assert not [path for path in shm_dir.iterdir() if path.suffix != ".board"]
