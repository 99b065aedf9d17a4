"""Features of Open MPI 5 that rule out a coordinator in the program's world."""

import os
import subprocess
import sys

import pytest

from mpicoloc.profile import hdf5

LINES = ["rank 0: 3 of 2", "rank 1: 3 of 2"]
PYTHON = """
from array import array
from mpi4py import MPI
world, values = MPI.COMM_WORLD, array("i", range(4))
request = (world.Precv_init if world.rank else world.Psend_init)(values, 4, 1 - world.rank, 5)
request.Start()
if world.rank == 0:
    request.Pready_range(0, 3)
request.Wait()
print(f"rank {world.rank}: {values[3]} of {world.size}")
"""


@pytest.fixture
def openmpi5(make_mpi):
    return make_mpi("openmpi5")


def call(folder, *words, **env):
    return subprocess.run(
        [*map(str, words)],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def run(family, folder, *words, flags=(), **env):
    options = ["-n", "2", "--mpirun", family.mpirun[0], "--mpirun-arg=--oversubscribe", "--out", "job.h5"]
    return call(folder, sys.executable, "-m", "mpicoloc", "run", *options, *flags, "--", *words, **env)


def test_run_starts_no_coordinator(openmpi5, tmp_path):
    done = run(openmpi5, tmp_path, openmpi5.compile("partitioned.c"))
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, LINES), done.stderr
    assert hdf5.read(tmp_path / "job.h5").job.mode == "preload"
    shown = run(openmpi5, tmp_path, openmpi5.compile("partitioned.c"), flags=["--show-command"])
    done = call(tmp_path, "sh", "-c", shown.stdout)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, LINES), done.stderr


def test_wrap_says_what_to_use(openmpi5, tmp_path):
    wrap = [sys.executable, "-m", "mpicoloc.wrap"]
    done = call(tmp_path, *openmpi5.mpirun, "-n", 3, *wrap, openmpi5.compile("partitioned.c"))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("LD_PRELOAD=$(mpicoloc preload APP)") == 1


def test_a_job_whose_program_cannot_be_read_is_ended(openmpi5, tmp_path):
    (tmp_path / "program.py").write_text(PYTHON)
    library = os.path.join(os.path.dirname(os.path.dirname(openmpi5.mpirun[0])), "lib", "libmpi.so.40")
    done = run(openmpi5, tmp_path, sys.executable, "program.py", MPI4PY_LIBMPI=library)
    assert done.returncode != 0 and done.stdout == ""
    assert "mpicoloc: a rank uses partitioned communication" in done.stderr
    assert "the job is ended" in done.stderr
