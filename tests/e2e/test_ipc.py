"""The meter ipc on real programs, where there are hardware counters."""

import os

import jobs
import pytest

from mpicoloc.pmpi import contract

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.serial]

SECONDS = 15
CORUN_FEW, CORUN_MANY = 1.3, 3.0
"""Two jobs by turns on one processor are slowed by 2."""


@pytest.fixture(scope="module")
def mpi(tmp_path_factory):
    if reason := contract.why_no_counters():
        pytest.skip(reason)
    return jobs.need_mpi("mpich openmpi", tmp_path_factory.mktemp("life"))


def test_work_outside_mpi_tells_of_turns_on_one_processor(mpi, start):
    before = ["taskset", "-c", max(os.sched_getaffinity(0))]
    options = {"before": before, "n_ranks": 1, "env": {"MPICOLOC_METER": "ipc"}}
    running = [start(mpi, "preload", "finalize", SECONDS, name=name, **options) for name in ("a", "b")]
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
