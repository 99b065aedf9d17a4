"""The end of a job: what ranks do while the profile is written, and what its writer imports."""

import re
import sys

import jobs
import pytest

WAIT_S = 3.0
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2 * jobs.LIMIT_S)]


@pytest.fixture(params=sorted(jobs.FAMILIES))
def mpi(request, tmp_path):
    return jobs.need_mpi(request.param, tmp_path, "finalize.c")


def test_ranks_sleep_until_the_profile_is_written(start, mpi, tmp_path):
    """Also those that the first one is not, which would spin in MPI_Finalize until it comes."""
    late = tmp_path / "late_python"
    late.write_text(f'#!/bin/sh\nsleep {WAIT_S}\nexec "{sys.executable}" "$@"\n')
    late.chmod(0o755)
    job = start(mpi, "preload", env={"MPICOLOC_PYTHON": late})
    assert job.wait() == 0, job.log
    used_s = {int(rank): float(s) for rank, s in re.findall(r"rank (\d) used (\S+) s", job.log)}
    assert sorted(used_s) == [0, 1] and max(used_s.values()) < WAIT_S / 2
    assert not job.profile().partial


@pytest.mark.parametrize("way", ["wrap", "preload"])
def test_files_of_the_jobs_folder_take_no_librarys_place(start, mpi, tmp_path, way):
    for name in ("numpy", "random", "mpicoloc"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of the job')\n")
    safe = {"PYTHONSAFEPATH": "1"} if way == "wrap" else {}  # the user's own `python -m mpicoloc.wrap`
    job = start(mpi, way, env=safe)
    assert job.wait() == 0, job.log
    assert not job.profile().partial
