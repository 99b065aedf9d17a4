"""The meter ipc on real programs, where there are hardware counters."""

import os
import subprocess
import sys

import jobs
import pytest

from mpicoloc.pmpi import contract, paths

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.serial]

SECONDS = 15
CORUN_FEW, CORUN_MANY = 1.3, 3.0
"""Two jobs by turns on one processor are slowed by 2."""


@pytest.fixture(scope="module")
def mpi(tmp_path_factory):
    if reason := contract.why_no_counters():
        pytest.skip(reason)
    for name in ("mpich", "openmpi"):
        found = jobs.find_mpi(name, tmp_path_factory.mktemp("life"))
        if found:
            return found
    pytest.skip("no MPI")


def test_work_outside_mpi_tells_of_turns_on_one_processor(mpi, shm_dir, tmp_path):
    processor = str(max(os.sched_getaffinity(0)))
    running = []
    for name in ("a", "b"):
        env = {**os.environ, "MPICOLOC_OUT": str(tmp_path / f"{name}.h5"), "MPICOLOC_JOB_ID": name,
               "MPICOLOC_PYTHON": sys.executable, "MPICOLOC_METER": "ipc"}  # fmt: skip
        command = ["taskset", "-c", processor, mpi.mpirun, *mpi.flags, "-n", "1", "env",
                   f"LD_PRELOAD={paths.find_shim(mpi.name)}",
                   mpi.program, "finalize", str(SECONDS)]  # fmt: skip
        log = tmp_path / f"{name}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(command, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        running.append(jobs.Job(process, tmp_path / f"{name}.h5", log))
    for job in running:
        assert job.wait() == 0, job.log
    for job in running:
        profile = job.profile()
        found, shutters = profile.interference, profile.tables["shutters"]
        methods = [found.slowdown.method, *(other.method for other in found.alternatives)]
        assert methods[0] == "ipc-progress" and "ipc-outside" in methods and "ipc-unfiltered" in methods, (
            found
        )
        assert found.slowdown.low < CORUN_MANY and found.slowdown.high > CORUN_FEW, found
        for when in ("before", "during", "after"):
            for what in ("instructions", "cycles"):
                assert (shutters[f"{when}_outside_{what}"] <= shutters[f"{when}_{what}"]).all()
        assert shutters["during_outside_instructions"].any()
