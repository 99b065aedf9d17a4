"""However a job ends, it leaves a profile, no shared memory, and its co-runner unharmed."""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import jobs
import pytest

from mpicoloc.job import live
from mpicoloc.pmpi import contract, paths
from mpicoloc.profile import hdf5

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(jobs.LIMIT_S + 20)]
WAYS = ["wrap", "preload"]
NAP_US = 2000


@pytest.fixture(params=sorted(jobs.FAMILIES))
def mpi(request, tmp_path):
    return jobs.need_mpi(request.param, tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_ends_well(start, mpi, way, shm_dir):
    job = start(mpi, way, "seven", 1)
    assert job.wait() == 7, job.log
    assert job.log.strip().splitlines()[0] == "computed with 2 ranks"
    profile = job.profile()
    assert not profile.partial
    assert (profile.job.n_ranks, profile.job.n_cores, profile.job.mode) == (2, min(2, os.cpu_count()), way)
    assert profile.tables["ranks"]["state"].tolist() == [b"finalized"] * 2
    assert profile.interference.slowdown.value == 1.0
    assert profile.price.discount_frac == 0.0
    jobs.assert_nothing_left(shm_dir)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("end", "state"), [("abort", b"aborted"), ("exit", b"exited")])
def test_a_job_that_ends_badly(start, mpi, way, end, state, shm_dir):
    job = start(mpi, way, end, 0.5)
    assert job.wait() != 0
    profile = job.profile()
    assert profile.partial
    assert state in profile.tables["ranks"]["state"].tolist()
    assert profile.mpi.n_calls > 0
    jobs.assert_nothing_left(shm_dir)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_is_killed(start, mpi, way, victim, shm_dir):
    job = start(mpi, way, "finalize", 30)
    ranks = jobs.wait_until(lambda: jobs.running_ranks(shm_dir, "job", 2), "both ranks to run")
    time.sleep(0.3)
    os.kill(int(ranks[victim]["pid"]), signal.SIGKILL)
    assert job.wait() != 0
    profile = job.profile()
    assert profile.partial
    assert profile.tables["ranks"]["state"][victim] == b"lost"
    jobs.assert_nothing_left(shm_dir)


def test_the_coordinator_is_killed(start, mpi, shm_dir):
    job = start(mpi, "wrap", "finalize", 30)
    ranks = jobs.wait_until(lambda: jobs.running_ranks(shm_dir, "job", 2), "both ranks to run")
    time.sleep(0.3)
    os.kill(jobs.coordinator_of(ranks[0]), signal.SIGKILL)
    job.wait()  # the launcher ends a job that lost a process
    assert job.profile().partial
    jobs.assert_nothing_left(shm_dir)


def test_the_whole_job_is_killed(start, openmpi, shm_dir):
    job = start(openmpi, "wrap", "finalize", 30)
    ranks = jobs.wait_until(lambda: jobs.running_ranks(shm_dir, "job", 2), "both ranks to run")
    time.sleep(0.3)
    for rank in ranks:
        os.kill(int(rank["pid"]), signal.SIGKILL)
    job.kill()
    assert job.profile().partial
    jobs.assert_nothing_left(shm_dir)


def test_an_application_that_never_uses_mpi(start, mpi, shm_dir, tmp_path):
    job = start(mpi, "wrap", "no-mpi")
    assert job.wait() == 5, job.log
    assert not list(tmp_path.glob("*.h5"))
    jobs.assert_nothing_left(shm_dir)


@pytest.mark.parametrize("way", WAYS)
def test_two_jobs_share_a_node(start, openmpi, way, shm_dir, tmp_path):
    until_end = ["finalize", jobs.LIMIT_S, NAP_US, tmp_path / "end"]
    first = start(openmpi, way, *until_end, name="first")
    second = start(openmpi, way, *until_end, name="second")
    nodes = jobs.node_files(shm_dir, 2)
    jobs.wait_until(lambda: all(node["n_shutters"] for node in nodes), "a shutter of each")
    (tmp_path / "end").touch()
    for job, other in ((first, b"second"), (second, b"first")):
        assert job.wait() == 0, job.log
        profile = job.profile()
        assert not profile.partial
        assert other in profile.tables["corunners"]["job_id"].tolist()
        assert profile.interference.shared_s > 0
        assert profile.interference.n_taken > 0
    jobs.assert_nothing_left(shm_dir)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_co_runner_survives_its_neighbour(start, openmpi, way, shm_dir, tmp_path):
    until_end = ["finalize", jobs.LIMIT_S, NAP_US, tmp_path / "end"]
    survivor = start(openmpi, way, *until_end, name="survivor")
    victim = start(openmpi, way, "finalize", 30, NAP_US, name="victim")
    jobs.wait_until(lambda: jobs.running_ranks(shm_dir, "survivor", 2), "the survivor to run")
    ranks = jobs.wait_until(lambda: jobs.running_ranks(shm_dir, "victim", 2), "the victim to run")
    time.sleep(1.0)
    # Whoever looks at jobs while they run sees both, and neither notices.
    seen = {job.id: job for job in live.jobs()}
    assert set(seen) == {"survivor", "victim"} and seen["victim"].counts.n_ranks == 2
    for rank in ranks:
        os.kill(int(rank["pid"]), signal.SIGKILL)
    assert victim.wait() != 0
    (tmp_path / "end").touch()
    assert survivor.wait() == 0, survivor.log
    assert victim.profile().partial
    assert not survivor.profile().partial
    assert survivor.profile().interference.overhead_frac < 0.1
    jobs.assert_nothing_left(shm_dir)


def test_two_jobs_of_one_id_are_told_apart(start, openmpi, shm_dir, tmp_path):
    twins = [
        start(openmpi, "preload", "finalize", 30, name="twin", n_ranks=n, out=tmp_path / f"{n}.h5")
        for n in (1, 2)
    ]
    jobs.wait_until(lambda: jobs.running_ranks(shm_dir, "twin", 3), "both to run")

    def seen():
        found = live.jobs()
        return found if len(found) == 2 and all(job.counts for job in found) else None

    found = jobs.wait_until(seen, "both on the board")
    assert {job.id for job in found} == {"twin"} and len({job.owner for job in found}) == 2
    assert sorted((job.n_ranks, job.counts.n_ranks) for job in found) == [(1, 1), (2, 2)]
    twins[0].kill()
    left = jobs.wait_until(lambda: len(now := live.jobs()) == 1 and now, "one to be left")
    assert left[0].owner in {job.owner for job in found}


@pytest.mark.parametrize("way", WAYS)
def test_a_profile_that_cannot_be_written_where_it_should(
    start, openmpi, way, shm_dir, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    job = start(openmpi, way, "seven", 0.2, out="/proc/nowhere/lost.h5")
    assert job.wait() == 7
    assert "/proc/nowhere/lost.h5" in job.log
    assert not hdf5.read(tmp_path / "lost.h5").partial
    jobs.assert_nothing_left(shm_dir)


def test_no_shared_memory(start, openmpi, shm_dir, monkeypatch):
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(shm_dir / "missing"))
    job = start(openmpi, "wrap", "seven", 0.2)
    assert job.wait() == 7, job.log
    own = [line for line in job.log.splitlines() if line.startswith("mpicoloc")]
    assert len(own) == 1
    assert not job.out_path.exists()


def test_without_a_keeper_nothing_is_left(start, openmpi, shm_dir, tmp_path):
    alone = replace(openmpi, shim=shutil.copy(openmpi.shim, tmp_path))
    job = start(alone, "preload", "seven", 0.2)
    assert job.wait() == 7, job.log
    own = [line for line in job.log.splitlines() if line.startswith("mpicoloc")]
    assert len(own) == 1
    jobs.assert_nothing_left(shm_dir)


def test_a_damaged_board(start, openmpi, shm_dir):
    board = Path(contract.board_path())
    board.write_bytes(b"not a board" * 1000)
    job = start(openmpi, "wrap", "seven", 0.5)
    assert job.wait() == 7, job.log
    profile = job.profile()
    assert not profile.partial
    assert profile.interference.slowdown is None
    assert profile.price.discount_frac == 0.0
    assert any("board" in note for note in profile.notes)
    assert board.read_bytes() == b"not a board" * 1000


def test_a_coordinator_without_mpi4py_ends_the_job(start, mpi, tmp_path, shm_dir, monkeypatch):
    """It cannot join the world, and the application would wait for it in MPI_Init for good."""
    broken = tmp_path / "broken" / "mpi4py"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('broken on purpose')\n")
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    job = start(mpi, "wrap", "seven", 1)
    assert job.wait() != 0
    assert "cannot load this job's MPI (broken on purpose)" in job.log
    jobs.assert_nothing_left(shm_dir)


@pytest.mark.parametrize("family, other", [("openmpi", "mpich"), ("mpich", "openmpi"), ("openmpi", "abi")])
def test_a_library_for_another_mpi_is_left_out(tmp_path, shm_dir, family, other):
    """Its wrappers would cut the handles of this MPI: the program runs as if nothing had been preloaded."""
    mpi = jobs.need_mpi(family, tmp_path)
    shim = paths.find_shim(other) or pytest.skip(f"no shim for {other}")
    command = [mpi.mpirun, *mpi.flags, "-n", "2", "env", f"LD_PRELOAD={shim}", mpi.program, "seven", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=jobs.LIMIT_S)
    assert done.returncode == 7, done.stderr
    assert "computed with 2 ranks" in done.stdout
    assert "is for another MPI" in done.stderr
