"""Traces of real jobs: every call that was counted is in the file, or counted as dropped."""

import os
import signal

import jobs
import nodes
import numpy as np
import pytest

import mpicoloc
from mpicoloc.trace import reader

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(jobs.LIMIT_S + 20)]


@pytest.fixture(params=sorted(jobs.FAMILIES))
def mpi(request, tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOLOC_TRACE", "all")
    return jobs.need_mpi(request.param, tmp_path, "traced.c")


@pytest.mark.parametrize(("mpi", "way"), [("openmpi", "wrap"), ("mpich", "preload")], indirect=["mpi"])
def test_every_call_and_every_message_is_in_the_trace(start, mpi, way, shm_dir):
    n = 500
    job = start(mpi, way, n)
    assert job.wait() == 0, job.log
    job.profile()
    jobs.assert_nothing_left(shm_dir)
    opened = mpicoloc.open(job.out_path)
    ranks, found = opened.ranks.set_index("rank"), opened.trace
    assert found.notes == () and not ranks["n_events_dropped"].any()
    frame = found.frame()
    assert frame.groupby("rank").size().tolist() == ranks["n_calls"].tolist()
    by_site = frame.groupby(["rank", "call"], observed=True).size()
    counted = opened.call_sites.groupby(["rank", "call"])["n"].sum()
    assert by_site.to_dict() == counted.to_dict()
    assert frame.groupby("rank")["t_ns"].apply(lambda t: t.is_monotonic_increasing).all()

    messages = found.messages()
    sent, received = (messages[messages["message"] == word] for word in ("sent", "received"))
    key = ["rank", "peer", "bytes"]
    assert len(sent) == len(received) == 2 * n * 5 + n
    pairs = received.rename(columns={"rank": "peer", "peer": "rank"}).groupby(key).size()
    assert pairs.to_dict() == sent.groupby(key).size().to_dict()
    assert sent.groupby("rank").size().tolist() == ranks["n_sent"].tolist()
    # The i-th message of one size to come ends after the i-th has begun to be sent: one clock.
    ends = {key: np.sort(rows["end_ns"]) for key, rows in received.groupby(["peer", "rank", "bytes"])}
    for pair, rows in sent.groupby(key):
        assert (ends[pair] > np.sort(rows["begin_ns"])).all()


@pytest.mark.parametrize("mpi", ["openmpi"], indirect=True)
def test_what_does_not_fit_is_counted(start, mpi, monkeypatch):
    monkeypatch.setenv("MPICOLOC_TRACE_RING", "64")
    job = start(mpi, "wrap", 3000)
    assert job.wait() == 0, job.log
    job.profile()
    opened = mpicoloc.open(job.out_path)
    ranks, found = opened.ranks, opened.trace
    assert (ranks["n_events_dropped"] > 0).all()
    assert found.n_events == (ranks["n_events"] - ranks["n_events_dropped"]).sum()
    assert len(found.notes) == 2 and "dropped" in found.notes[0]


@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
def test_a_folder_that_cannot_be_made_costs_the_trace_only(start, mpi, tmp_path):
    (tmp_path / "job.trace").write_text("in the way")
    job = start(mpi, "preload", 100)
    assert job.wait() == 0, job.log
    profile = job.profile()
    assert not profile.partial
    assert any("trace" in note and "could not be written" in note for note in profile.notes)
    ranks = profile.tables["ranks"]
    assert (ranks["n_events"] == ranks["n_events_dropped"]).all()


@pytest.mark.parametrize("mpi", ["openmpi"], indirect=True)
def test_what_was_written_when_a_node_dies_can_be_read(start, mpi, tmp_path, shm_dir):
    job = start(mpi, "preload", 10**9)
    segments = jobs.wait_until(lambda: jobs.running_ranks(shm_dir, "job", 2), "both ranks to run")
    path = tmp_path / "job.trace" / "0.mct"
    jobs.wait_until(lambda: path.exists() and path.stat().st_size > 200_000, "a piece of the trace")
    (node,) = jobs.node_files(shm_dir, 1)
    keeper = jobs.wait_until(lambda: int(node["keeper_pid"]), "the keeper")
    for pid in (keeper, *(int(segment["pid"]) for segment in segments)):
        os.kill(pid, signal.SIGKILL)
    job.kill()
    found = reader.read_folder(path.parent)
    frame = found.frame()
    assert set(frame["rank"]) == {0, 1} and "MPI_Waitall" in set(frame["call"])
    assert len(frame) > 10_000


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.skipif(not nodes.can_be_made(), reason="this machine allows no namespaces")
@pytest.mark.parametrize("mpi", ["openmpi"], indirect=True)
def test_clocks_of_two_nodes_agree(mpi, tmp_path):
    with nodes.Cluster(tmp_path) as cluster:
        job = cluster.start(mpi, "job", cluster.names, [mpi.program, 400], MPICOLOC_TRACE="all")
        assert job.wait() == 0, job.log
        job.profile()
    found = mpicoloc.open(job.out_path).trace
    assert (len(found.files), found.ranks, found.notes) == (2, [0, 1], ())
    assert [file.hostname for file in found.files] == cluster.names
    assert found.alignment.n_messages > 2000 and found.alignment.n_after == 0
    messages = found.messages()
    assert abs(messages["begin_ns"].max() - messages["begin_ns"].min()) < 60e9  # not nodes.CLOCK_STEP_S
    sent, received = (messages[messages["message"] == word] for word in ("sent", "received"))
    for rank in (0, 1):
        begins = np.sort(sent.loc[sent["rank"] == rank, "begin_ns"])
        assert (np.sort(received.loc[received["peer"] == rank, "end_ns"]) >= begins).all()
    # Barriers are left by both at nearly one time.
    ends = (
        found.frame()
        .query("call == 'MPI_Barrier'")
        .assign(end_ns=lambda rows: rows["t_ns"] + rows["duration_ns"])
    )
    apart_ns = np.subtract(*(np.sort(ends.loc[ends["rank"] == rank, "end_ns"]) for rank in (0, 1)))
    assert np.median(np.abs(apart_ns)) < 1e6
