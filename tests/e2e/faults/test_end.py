"""The end of a job: what ranks do while the profile is written, and what its writer imports."""

import re
import sys

import jobs
import pytest

WAIT_S = 3.0
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2 * jobs.LIMIT_S)]


@pytest.fixture(params=sorted(jobs.FAMILIES))
def mpi(request, tmp_path):
    found = jobs.find_mpi(request.param, tmp_path, "finalize.c")
    if found is None:
        pytest.skip(f"no {request.param} here, or no shim for it")
    return found


def test_ranks_sleep_until_the_profile_is_written(started, mpi, tmp_path, shm_dir):
    """Also those that the first one is not, which would spin in MPI_Finalize until it comes."""
    late = tmp_path / "late_python"
    late.write_text(f'#!/bin/sh\nsleep {WAIT_S}\nexec "{sys.executable}" "$@"\n')
    late.chmod(0o755)
    started.append(jobs.start(mpi, tmp_path, "preload", env={"MPICOLOC_PYTHON": str(late)}))
    assert started[0].wait() == 0, started[0].log
    used_s = {int(rank): float(s) for rank, s in re.findall(r"rank (\d) used (\S+) s", started[0].log)}
    assert sorted(used_s) == [0, 1] and max(used_s.values()) < WAIT_S / 2
    assert not started[0].profile().partial


@pytest.mark.parametrize("way", ["wrap", "preload"])
def test_files_of_the_jobs_folder_take_no_librarys_place(started, mpi, tmp_path, shm_dir, way):
    for name in ("numpy", "random", "mpicoloc"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of the job')\n")
    safe = {"PYTHONSAFEPATH": "1"} if way == "wrap" else {}  # the user's own `python -m mpicoloc.wrap`
    started.append(jobs.start(mpi, tmp_path, way, env=safe))
    assert started[0].wait() == 0, started[0].log
    assert not started[0].profile().partial
