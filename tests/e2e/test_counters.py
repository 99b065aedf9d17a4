"""Counters of each rank in the profile of a job; page faults stand in for hardware events."""

import subprocess
from dataclasses import replace

import jobs
import numpy as np
import pytest

from mpicoloc.core.profile import text

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(jobs.LIMIT_S + 20)]
N_PAGES = 6000
SLACK = N_PAGES / 3
"""Faults of the library itself, and of MPI."""


@pytest.fixture
def mpi(request, tmp_path):
    return jobs.need_mpi(request.param, tmp_path, "faults.c")


@pytest.mark.parametrize("way", ["wrap", "preload"])
@pytest.mark.parametrize("mpi", sorted(jobs.FAMILIES), indirect=True)
def test_each_ranks_faults_from_init_to_finalize(mpi, way, shm_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOLOC_COUNTERS", "page-faults,major-faults")
    job = jobs.start(mpi, tmp_path, way, N_PAGES)
    assert job.wait() == 0, job.log
    profile = job.profile()
    rows = profile.tables["counters"]
    if not len(rows):
        pytest.skip("perf_event_open is refused here")
    assert [text(event) for event in rows["event"]] == ["page-faults", "major-faults"] * 2
    faults = rows[rows["event"] == b"page-faults"]
    for rank, row in enumerate(faults):
        assert row["rank"] == rank
        assert (rank + 1) * N_PAGES <= row["value"] <= (rank + 1) * N_PAGES + SLACK
        assert 0 < row["running_s"] == row["enabled_s"]
        # Only part of the run: ten times as much was touched before.
        assert row["cpu_s"] < profile.tables["ranks"]["cpu_s"][rank] + 0.02
    jobs.assert_nothing_left(shm_dir)


@pytest.mark.parametrize("way", ["wrap", "preload"])
@pytest.mark.parametrize("mpi", sorted(jobs.FAMILIES), indirect=True)
def test_what_a_rank_used_is_of_its_run_alone_whoever_started_it(mpi, way, shm_dir, tmp_path):
    job = jobs.start(mpi, tmp_path, way, N_PAGES)
    assert job.wait() == 0, job.log
    ranks = job.profile().tables["ranks"]
    n_pages = N_PAGES * np.array([1, 2])
    assert (n_pages <= ranks["minor_faults"]).all()
    assert (ranks["minor_faults"] <= n_pages + SLACK).all()
    # A timer may fire before a busy processor lets the thread sleep. Waits for others in MPI_Init and
    # MPI_Finalize are thousands.
    assert (0.5 * n_pages / 10 <= ranks["voluntary_switches"]).all()
    assert (ranks["voluntary_switches"] <= (n_pages + SLACK) / 10).all()
    assert (ranks["cpu_s"] > 0).all()
    assert (ranks["cpu_s"] <= 2 * ranks["wall_s"]).all()  # of two threads
    jobs.assert_nothing_left(shm_dir)


@pytest.mark.parametrize(
    ("answer", "n_ranks"),
    [("SECCOMP_RET_ERRNO+EPERM", 0), ("SECCOMP_RET_KILL_PROCESS", 0), ("SECCOMP_RET_ALLOW", 2)],
    ids=["refused", "killed", "allowed"],
)
@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
def test_where_the_kernel_filters_ranks_count_if_it_lets_them_and_nothing_else_changes(
    mpi, answer, n_ranks, shm_dir, tmp_path, monkeypatch
):
    monkeypatch.setenv("MPICOLOC_COUNTERS", "page-faults,major-faults")
    forbid = tmp_path / "no_perf"
    source = str(jobs.PROGRAMS / "no_perf.c")
    subprocess.run(["cc", f"-DANSWER=({answer})", source, "-o", str(forbid)], check=True, timeout=60)
    refused = replace(mpi, program=str(forbid))
    job = jobs.start(refused, tmp_path, "preload", mpi.program, N_PAGES)
    assert job.wait() == 0
    assert job.log == ""
    profile = job.profile()
    assert not profile.partial
    # The node's agent lives too, and measures without counters.
    assert ("(seccomp) died" in profile.interference.meter_reason) == ("KILL" in answer)
    rows = profile.tables["counters"]
    if n_ranks and not len(rows):
        pytest.skip("perf_event_open is refused here")
    assert [text(event) for event in rows["event"]] == ["page-faults", "major-faults"] * n_ranks
    jobs.assert_nothing_left(shm_dir)
