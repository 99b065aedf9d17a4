"""Coordinators of several nodes make one profile, where rank 0 of the application runs."""

import subprocess
import sys

import jobs
import pytest

from mpicoloc.profile import hdf5

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(jobs.LIMIT_S + 20)]


@pytest.mark.parametrize(("what", "n_ranks"), [("both", 2), ("first", 1)])
def test_parts_come_together_where_rank_0_runs(tmp_path, what, n_ranks):
    # Debian's MPICH has a library name that mpi4py does not know.
    name, commands = next(((n, c) for n in ("openmpi", "mpich") if (c := jobs.commands(n))), ("", None))
    if commands is None:
        pytest.skip("no MPI here")
    mpicc, mpirun = commands
    # mpi4py must load the library that belongs to the launcher.
    inner = ["env", f"MPI4PY_LIBMPI={jobs.library(mpicc)}", sys.executable, jobs.PROGRAMS / "two_nodes.py"]
    done = subprocess.run(
        [mpirun, *jobs.FAMILIES[name], "-n", "2", *inner, tmp_path, what],
        capture_output=True,
        text=True,
        timeout=jobs.LIMIT_S,
    )
    # Open MPI may put the line ends of two ranks behind both lines.
    assert "".join(done.stdout.split()) == 2 * "written", done.stderr
    profile = hdf5.read(tmp_path / "two.h5")
    assert (profile.job.n_ranks, profile.job.n_cores) == (2, n_ranks)
    assert profile.tables["ranks"]["rank"].tolist() == [0, 1][:n_ranks]
    assert profile.partial == (n_ranks < 2)
