"""The meter count in real jobs: a program's results stay what they are, and its passes are in the profile."""

import os
import subprocess

import jobs
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.serial]


def alone(mpi):
    """What the program prints without mpicoloc."""
    command = [mpi.mpirun, *mpi.flags, "-n", "1", mpi.program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=jobs.LIMIT_S, check=True)
    return done.stdout


def two_beside_each_other(mpi, folder, started, **options):
    pair = []
    for name in ("a", "b"):
        env = {**os.environ, "MPICOLOC_OUT": str(folder / f"{name}.h5"), "MPICOLOC_JOB_ID": name, **options}
        shim = ["env", f"LD_PRELOAD={jobs.paths.find_shim(mpi.name)}"]
        log = folder / f"{name}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen([mpi.mpirun, *mpi.flags, "-n", "1", *shim, mpi.program], env=env,
                                       cwd=folder, stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        pair.append(jobs.Job(process, folder / f"{name}.h5", log))
    started += pair
    for job in pair:
        assert job.wait() == 0, job.log
    return pair


@pytest.fixture
def loops(tmp_path):
    for name in ("mpich", "openmpi"):
        found = jobs.find_mpi(name, tmp_path, "loops.c")
        if found is not None:
            return found
    pytest.skip("no MPI")


def test_a_program_whose_loops_are_counted_computes_what_it_did(loops, tmp_path, started):
    expected = alone(loops)
    pair = two_beside_each_other(loops, tmp_path, started, MPICOLOC_METER="count")
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


def test_code_stays_as_it_is_where_that_is_wished(loops, tmp_path, started):
    expected = alone(loops)
    pair = two_beside_each_other(loops, tmp_path, started, MPICOLOC_METER="count", MPICOLOC_PATCHING="0")
    assert [job.log for job in pair] == [expected] * 2
    for job in pair:
        profile = job.profile()
        assert len(profile.tables["counts"]) == 0
        assert b"option patching is 0" in profile.tables["nodes"]["meter_reason"][0]
