"""Recovery of a job that was killed or lost a node, from the last checkpoint of each node."""

import contextlib
import os
import signal
import time
from pathlib import Path

import jobs
import nodes
import processes
import pytest

from mpicoloc.cli.main import main
from mpicoloc.pmpi import contract
from mpicoloc.profile import hdf5
from mpicoloc.profile.collect import collect
from mpicoloc.profile.merge import merge

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(jobs.LIMIT_S + 60)]
LONG_S = 100
NAP_US = 2000
"""These jobs leave some."""


@pytest.fixture
def start(start, tmp_path, monkeypatch):
    def start_one(mpi, way, end, checkpoint_s=0.3, **options):
        monkeypatch.setenv("MPICOLOC_CHECKPOINT_S", str(checkpoint_s))
        return start(mpi, way, end, LONG_S, NAP_US, tmp_path / "end", **options)

    return start_one


def kill_all(word, pids=None):
    """Kill all processes that have `word` in their environment or arguments, keeper and all, at once."""
    found = processes.matching(
        lambda one: (one.name != str(os.getpid()) and
                     any(word in (one / file).read_bytes() for file in ("environ", "cmdline")))
    )  # fmt: skip
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in found if pids is None else set(found) & pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def hurry(tmp_path):
    """Give the checkpoints of the job there their share of the processors: others may leave them none."""
    out = b"MPICOLOC_OUT=" + os.fsencode(tmp_path / "job.h5")
    for pid in processes.matching(cmdline=[b"mpicoloc.profile.checkpoints"], environ=[out]):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text("0")
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


def first_part(tmp_path, rank=0):
    path = tmp_path / "job.parts" / f"{rank}.part"
    wait_for(tmp_path, path.exists)


def wait_for(tmp_path, condition):
    jobs.wait_until(lambda: hurry(tmp_path) or condition(), "a checkpoint", limit_s=jobs.LIMIT_S)


@pytest.mark.parametrize(("family", "way"), [("openmpi", "wrap"), ("mpich", "preload")])
def test_all_of_a_job_is_killed_at_once(start, family, way, tmp_path, shm_dir, capsys):
    job = start(jobs.need_mpi(family, tmp_path), way, "finalize")
    first_part(tmp_path)
    time.sleep(0.5)
    kill_all(b"MPICOLOC_SHM_DIR=" + os.fsencode(shm_dir))
    job.kill()
    assert not job.out_path.exists()

    assert main(["show", str(job.out_path)]) == 3
    assert f"mpicoloc recover {job.out_path}" in capsys.readouterr().err
    assert main(["recover", str(job.out_path)]) == 0
    assert capsys.readouterr().out == f"{job.out_path}\n"
    profile = hdf5.read(job.out_path)
    assert profile.partial
    assert (profile.job.id, profile.job.n_ranks, profile.job.mode) == ("job", 2, way)
    assert profile.mpi.n_calls > 10 and 0 < profile.mpi.time_frac <= 1
    assert profile.tables["ranks"]["state"].tolist() == [b"running"] * 2
    assert 0.3 < profile.job.wall_s < LONG_S
    assert any("from the last checkpoint" in note and "UTC" in note for note in profile.notes)
    # Again, and not in the place of a whole one.
    assert main(["recover", str(tmp_path / "job.parts")]) == 0


@pytest.mark.parametrize(
    ("way", "end"), [("wrap", "finalize"), ("preload", "finalize"), ("preload", "abort")]
)
def test_a_job_that_ends_leaves_no_parts(start, openmpi, way, end, tmp_path, shm_dir):
    """Whatever is being written when it ends."""
    job = start(openmpi, way, end, checkpoint_s=0.01)
    first_part(tmp_path)
    (tmp_path / "end").touch()
    assert (job.wait() == 0) == (end == "finalize"), job.log
    jobs.assert_nothing_left(shm_dir)
    assert not (tmp_path / "job.parts").exists()
    profile = job.profile()
    assert profile.partial == (end == "abort")
    assert not any("checkpoint" in note for note in profile.notes)


def test_checkpoints_that_cannot_be_written_are_told_in_the_profile(start, openmpi, tmp_path, shm_dir):
    (tmp_path / "job.parts").write_text("a file of that name")
    job = start(openmpi, "preload", "finalize", checkpoint_s=0.1)
    wait_for(tmp_path, lambda: list(shm_dir.glob("*.checkpoint")))
    (tmp_path / "end").touch()
    assert job.wait() == 0
    assert job.log == "computed with 2 ranks\n"
    (note,) = [note for note in job.profile().notes if "checkpoint could not be written" in note]
    assert note.endswith("Not a directory")
    jobs.assert_nothing_left(shm_dir)


def test_numbers_collected_while_the_job_runs_fit_together(start, openmpi, shm_dir):
    start(openmpi, "preload", "finalize", checkpoint_s=0)
    segment = jobs.wait_until(lambda: jobs.running_ranks(shm_dir, "job", 2), "both ranks to run")[0]

    def look():
        return merge([collect(contract.text(segment["key"]))], partial=True)

    # A rank runs before it leaves MPI_Init: nothing has been timed yet.
    jobs.wait_until(lambda: look().mpi.time_frac is not None, "the first call")
    n_before = 0
    for _ in range(30):
        profile = look()
        sites = profile.tables["call_sites"]
        assert set(sites["call"][sites["i_site"] > 0]) <= {b"MPI_Allreduce", b"MPI_Comm_rank",
                                                           b"MPI_Comm_size"}  # fmt: skip
        assert sites["n"].sum() == profile.mpi.n_calls >= n_before
        assert 0 <= profile.mpi.time_frac <= 1
        n_before = profile.mpi.n_calls
    assert n_before > 0


needs_nodes = pytest.mark.skipif(not nodes.can_be_made(), reason="this machine allows no namespaces")


@needs_nodes
def test_without_coordinators_nodes_come_together(openmpi, tmp_path):
    with nodes.Cluster(tmp_path) as cluster:
        command = [openmpi.program, "finalize", 1, NAP_US]
        job = cluster.start(openmpi, "job", cluster.names, command, way="preload")
        assert job.wait() == 0, job.log
        profile = job.profile()
    assert not profile.partial
    assert profile.tables["ranks"]["rank"].tolist() == [0, 1]
    assert profile.tables["nodes"]["hostname"].tolist() == [b"h0", b"h1"]
    assert not (tmp_path / "job.parts").exists()


@needs_nodes
@pytest.mark.parametrize("dying", [["h1"], ["h0", "h1"]], ids=["one", "both"])
def test_nodes_die(openmpi, tmp_path, dying):
    with nodes.Cluster(tmp_path) as cluster:
        command = [openmpi.program, "finalize", LONG_S, NAP_US]
        job = cluster.start(openmpi, "job", cluster.names, command, MPICOLOC_CHECKPOINT_S=0.3)
        for rank in (0, 1):
            first_part(tmp_path, rank)
        for name in dying:
            kill_all(b"MPICOLOC_JOB_ID=job", cluster.processes_on(name))
        job.process.wait(jobs.LIMIT_S)
        if len(dying) == 1:
            # The keeper of the other node finds the dead one's checkpoint.
            profile = job.profile()
        else:
            assert not job.out_path.exists()
            assert main(["recover", str(job.out_path)]) == 0
            profile = hdf5.read(job.out_path)
    assert profile.partial
    assert profile.tables["ranks"]["rank"].tolist() == [0, 1]
    assert profile.tables["nodes"]["hostname"].tolist() == [b"h0", b"h1"]
    assert (profile.tables["ranks"]["n_calls"] > 10).all()
    (note,) = [note for note in profile.notes if "last checkpoint" in note]
    assert note.startswith(f"made from the last checkpoints of {len(dying)} of 2 nodes")
