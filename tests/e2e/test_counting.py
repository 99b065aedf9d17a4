"""The meter count in real jobs: a program's results stay what they are, and its passes are in the profile.

Also of programs that are hard on whoever changes their code, while it is changed a hundred times a second.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import counting_keeper
import jobs
import pytest

from mpicoloc.core.profile import VERDICTS
from mpicoloc.profile.summary import co_runners

HEAT2D = Path(__file__).resolve().parents[2] / "examples" / "heat2d.c"
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.serial]


def alone(mpi):
    """Output of the program without mpicoloc."""
    command = [mpi.mpirun, *mpi.flags, "-n", "1", mpi.program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=jobs.LIMIT_S, check=True)
    return done.stdout


@pytest.fixture
def run_two(loops, start):
    """Run the program twice beside itself, with these options."""

    def run(**options):
        pair = [start(loops, "preload", n_ranks=1, name=name, env=options) for name in ("a", "b")]
        for job in pair:
            assert job.wait() == 0, job.log
        return pair

    return run


@pytest.fixture
def loops(tmp_path):
    return jobs.need_mpi("mpich openmpi", tmp_path, "loops.c")


def test_a_program_whose_loops_are_counted_computes_what_it_did(loops, run_two):
    expected = alone(loops)
    pair = run_two(MPICOLOC_METER="count")
    assert [job.log for job in pair] == [expected] * 2
    for job in pair:
        profile = job.profile()
        node, counts = profile.tables["nodes"][0], profile.tables["counts"]
        assert b"option meter is count" in node["meter_reason"]
        # On a crowded machine its threads may never be found together: then nothing is counted. What counts
        # add up to is tested in tests/c/agent/test_count.c.
        assert (node["meter"] == b"count") or len(counts) == 0
        assert {os.path.basename(path) for path in profile.tables["places"]["path"]} <= {b"loops"}
        assert set(counts["place"]) <= set(range(len(profile.tables["places"])))


def test_code_stays_as_it_is_where_that_is_wished(loops, run_two):
    expected = alone(loops)
    pair = run_two(MPICOLOC_METER="count", MPICOLOC_PATCHING="0")
    assert [job.log for job in pair] == [expected] * 2
    for job in pair:
        profile = job.profile()
        node = profile.tables["nodes"][0]
        assert node["n_hits"] == 0
        assert b"option patching is 0" in node["meter_reason"]


def test_loops_without_a_place_are_counted_by_a_register(start, tmp_path):
    """Also where code must not be changed."""
    plain = jobs.need_mpi("mpich openmpi", tmp_path, "plain.c")
    env = {"MPICOLOC_SHUTTER_PERIOD_S": "0.1", "MPICOLOC_SHUTTER_DUTY_FRAC": "0.1"}
    pair = [
        start(plain, "preload", 12, 32, n_ranks=1, name=name, env=env | {"MPICOLOC_PATCHING": patching})
        for name, patching in (("one", "1"), ("two", "0"))
    ]
    for job in pair:
        assert job.wait() == 0 and job.log == "ended 1\n", job.log
        profile = job.profile()
        node, counts = profile.tables["nodes"][0], profile.tables["counts"]
        assert b"by registers" in node["meter_reason"]
        assert len(counts) and counts["n_during"].any()
    assert node["n_hits"] == 0, "the last one's code was not to be changed"


def test_each_of_three_jobs_learns_what_the_others_cost(start, tmp_path):
    """They share the processors, and some of their shutters pause only one of the others."""
    heat2d = jobs.need_mpi("mpich openmpi", tmp_path, str(HEAT2D))
    env = {"MPICOLOC_SHUTTER_PERIOD_S": "0.1", "MPICOLOC_SHUTTER_DUTY_FRAC": "0.1"}
    trio = [start(heat2d, "preload", 900, 6000, n_ranks=1, name=name, env=env) for name in "abc"]
    for job in trio:
        assert job.wait() == 0, job.log
    n_partial = 0
    for profile in (job.profile() for job in trio):
        rows = profile.tables["shutters"]
        partial = rows[rows["verdict"] == VERDICTS.index("partial")]
        n_partial += len(partial)
        assert all(spared & present == spared in (1, 2) for spared, present in partial[["spared", "present"]])
        costs = [one.slowdown.value - 1 for one in co_runners(profile) if one.slowdown]
        if len(costs) == 2:
            assert sum(costs) == pytest.approx(profile.interference.slowdown.value - 1)
    assert n_partial >= 3, [job.log for job in trio]


FOLDER = jobs.PROGRAMS.parents[1] / "mpi" / "programs" / "counted"
SALTS = {"a": "0x11000000u", "b": "0x23000000u"}
CASES = {"exceptions.cpp": 5, "timers.c": 0, "children.c": 0, "unload.c": 0, "leaps.c": 9, "teams.c": 0,
         "fields.f90": 0}  # fmt: skip
"""Sources, and how the programs exit."""


def compiled(mpicc, source, folder):
    """The command that runs the program of this source."""
    name = {".c": "mpicc", ".cpp": "mpicxx", ".f90": "mpif90"}[(FOLDER / source).suffix]
    compiler = mpicc.replace("mpicc", name)
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    program = str(folder / "program")
    flags = ["-O2", "-fopenmp", "-o", program, str(FOLDER / source), "-ldl", "-lm"]
    subprocess.run([compiler, *flags], check=True, cwd=folder, timeout=jobs.LIMIT_S)
    if source != "unload.c":
        return [program]
    for library, salt in SALTS.items():
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-DSALT={salt}", "-o", f"{folder}/{library}.so",
                        str(FOLDER / "hot_library.c")], check=True, timeout=jobs.LIMIT_S)  # fmt: skip
    return [program, *(f"{folder}/{library}.so" for library in SALTS)]


@pytest.fixture
def openmpi_commands():
    return jobs.need_commands("openmpi")


@pytest.fixture(scope="module")
def always_counting_shim(tmp_path_factory):
    if jobs.paths.find_shim("openmpi") is None:
        pytest.skip("no shim for Open MPI")
    return counting_keeper.shim(tmp_path_factory.mktemp("always"), "openmpi")


def run(mpirun, command, folder, **options):
    env = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", **options}
    command = [mpirun, *jobs.FAMILIES["openmpi"], "-n", "1", *command]
    done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=jobs.LIMIT_S)  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize("how", ["change", "stay"])
@pytest.mark.parametrize("source", CASES)
def test_results_are_those_of_a_bare_run(openmpi_commands, always_counting_shim, tmp_path, source, how):
    mpicc, mpirun = openmpi_commands
    command = compiled(mpicc, source, tmp_path)
    bare = run(mpirun, command, tmp_path)
    assert bare[0] == CASES[source], bare
    profile = tmp_path / "counted.h5"
    counted = run(
        mpirun,
        command,
        tmp_path,
        LD_PRELOAD=str(always_counting_shim),
        COUNT_ALWAYS=how,
        MPICOLOC_PYTHON=sys.executable,
        MPICOLOC_OUT=str(profile),
        MPICOLOC_METER="count",
    )
    assert counted == bare
    jobs.wait_until(profile.exists, f"{profile} to appear")
    told = jobs.hdf5.read(profile).tables["nodes"]["meter_reason"][0].decode()
    found = re.match(r"counted always: (\d+) changes", told)
    if found is None or found[1] == "0":
        pytest.skip(f"its threads were never found together, or may not be sampled: {told}")
