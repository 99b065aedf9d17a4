"""Reading traces: whole, cut short, damaged, hostile."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import sample
import traces
from traces import BARRIER, RECV, SEND, WAITALL

from mpicoloc.core.profile import table
from mpicoloc.errors import DataError
from mpicoloc.profile import frames, hdf5
from mpicoloc.trace import node_file, reader

SENT, RECEIVED, MESSAGE = node_file.SENT, node_file.RECEIVED, node_file.MESSAGE
LANE = 1 << node_file.LANE_SHIFT


def write(folder, *blocks, name="0.mct"):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(b"".join(blocks))
    return path


def two_ranks(folder):
    return write(
        folder,
        traces.head(),
        traces.names(),
        traces.events(
            0, [1100, 1300, 2100], [50, 2**40, 7], [8, 2**33, 0], [1, 1, -1],
            [SEND | SENT, RECV | RECEIVED, BARRIER],
        ),
        traces.events(1, [1000, 1500], [400, 5], [8, 16], [0, 0], [RECV | RECEIVED, SEND | SENT], [5, 6]),
        traces.events(1, [3000], [1], [0], [-1], [BARRIER], [7]),
    )  # fmt: skip


def test_what_was_written_is_read(tmp_path):
    two_ranks(tmp_path / "x.trace")
    found = reader.read_folder(tmp_path / "x.trace")
    assert (found.n_events, found.ranks, found.notes, found.origin_ns) == (6, [0, 1], (), 1000)
    frame = found.frame()
    assert frame["rank"].tolist() == [0, 0, 0, 1, 1, 1]
    assert frame["t_ns"].tolist() == [1100, 1300, 2100, 1000, 1500, 3000]
    assert frame["duration_ns"].tolist() == [50, 2**40, 7, 400, 5, 1]
    assert frame["bytes"].tolist() == [8, 2**33, 0, 8, 16, 0]
    assert frame["peer"].tolist() == [1, 1, -1, 0, 0, -1]
    assert frame["call"].tolist() == ["MPI_Send", "MPI_Recv", "MPI_Barrier", "MPI_Recv", "MPI_Send",
                                      "MPI_Barrier"]  # fmt: skip
    assert frame["i_site"].tolist() == [0, 0, 0, 5, 6, 7]
    assert frame["message"].tolist() == ["sent", "received", "", "received", "sent", ""]


def test_ranks_and_times_are_chosen(tmp_path):
    two_ranks(tmp_path / "x.trace")
    found = reader.read_folder(tmp_path / "x.trace")
    assert found.frame(ranks=[1])["t_ns"].tolist() == [1000, 1500, 3000]
    assert found.frame(begin_s=300e-9, end_s=1.1e-6)["t_ns"].tolist() == [1300, 1500]
    assert found.frame(ranks=[1], begin_s=500e-9)["t_ns"].tolist() == [1500, 3000]
    assert found.frame(ranks=[7]).empty and found.frame(begin_s=1.0).empty
    assert found.frame(ranks=[7]).dtypes.equals(found.frame().dtypes)
    assert sum(len(piece) for piece in found.frames(ranks=[0])) == 3


def test_messages_of_one_call_belong_to_it_across_blocks_and_threads(tmp_path):
    more = RECEIVED | MESSAGE
    write(
        tmp_path / "x.trace",
        traces.head(),
        traces.names(),
        traces.events(
            0, [100, 110, 100, 130], [0, 5, 0, 3], [10, 7, 20, 4], [2, 9, 3, 8],
            [WAITALL | more, SEND | SENT, WAITALL | more, SEND | SENT], [0, LANE + 1, 0, LANE + 1],
        ),
        traces.events(0, [100, 400], [50, 10], [60, 5], [1, 4], [WAITALL | RECEIVED, SEND | SENT], [3, 4]),
    )  # fmt: skip
    found = reader.read_folder(tmp_path / "x.trace")
    assert len(found.frame()) == 4
    rows = found.messages().sort_values(["end_ns", "peer"])
    assert rows["peer"].tolist() == [9, 8, 1, 2, 3, 4]
    assert rows["bytes"].tolist() == [7, 4, 30, 10, 20, 5]
    assert rows["begin_ns"].tolist() == [110, 130, 100, 100, 100, 400]
    assert rows["end_ns"].tolist() == [115, 133, 150, 150, 150, 410]
    assert rows["message"].tolist() == ["sent", "sent", "received", "received", "received", "sent"]


def test_times_that_step_back_and_columns_of_any_width(tmp_path):
    rng = np.random.default_rng(1)
    n = 1000
    t = 10**14 + rng.integers(-500, 4000, n).cumsum()
    duration, n_bytes = (
        rng.integers(0, 2**63, n, np.uint64) >> rng.integers(0, 63, n, np.uint64) for _ in "12"
    )
    peer = rng.integers(-1, 300, n)
    blocks = [
        traces.events(width, t, duration, n_bytes, peer, BARRIER, widths=(width, width, width, max(width, 2)))
        for width in range(9)
    ]
    write(tmp_path / "x.trace", traces.head(), traces.names(), *blocks)
    frame = reader.read_folder(tmp_path / "x.trace").frame()
    for width in range(9):
        rows = frame[frame["rank"] == width]
        assert (rows["t_ns"] == t).all() and (rows["duration_ns"] == duration).all()
        assert (rows["bytes"] == n_bytes).all() and (rows["peer"] == peer).all()


def with_profile(folder, n_events=(3, 3), n_dropped=(0, 0)):
    profile = sample.profile()
    ranks = profile.tables["ranks"].copy()
    ranks["n_events"], ranks["n_events_dropped"] = n_events, n_dropped
    hdf5.write(replace(profile, tables={**profile.tables, "ranks": ranks}), folder / "x.h5")
    return frames.open_profile(folder / "x.h5")


def test_the_profile_finds_its_trace_and_says_what_is_missing(tmp_path):
    with pytest.raises(DataError, match="--trace all"):
        _ = with_profile(tmp_path).trace
    two_ranks(tmp_path / "x.trace")
    assert with_profile(tmp_path).trace.notes == ()
    notes = with_profile(tmp_path, (3, 10), (0, 5)).trace.notes
    assert notes == ("rank 1: 7 of 10 events are missing, 5 were dropped",)
    for head in (traces.head(job_id=b"other"), traces.head(start_ns=16 * 10**17)):
        write(tmp_path / "x.trace", head, traces.events(0, [5], [1], [0], [0], SEND))
        with pytest.raises(DataError, match="not of job 42"):
            _ = with_profile(tmp_path).trace


def test_files_of_an_earlier_run_are_left_out(tmp_path):
    two_ranks(tmp_path / "x.trace")
    old = traces.head(start_ns=10**18), traces.names()
    write(tmp_path / "x.trace", *old, traces.events(1, [5], [1], [0], [0], SEND), name="1.mct")
    write(
        tmp_path / "x.trace", traces.head(n_ranks=4), traces.events(3, [5], [1], [0], [0], SEND), name="3.mct"
    )
    found = with_profile(tmp_path).trace
    assert [len(found.files), found.n_events, found.notes] == [1, 6, ()]


def test_clocks_of_the_profile_are_applied(tmp_path):
    two_ranks(tmp_path / "x.trace")
    profile = with_profile(tmp_path).profile
    nodes = table("nodes", {"hostname": ["n1"], "clock_offset_s": [1e-7]})
    found = reader.read(tmp_path / "x.h5", replace(profile, tables={**profile.tables, "nodes": nodes}))
    assert found.frame()["t_ns"].tolist() == [1000, 1200, 2000, 900, 1400, 2900]
    assert found.frame(end_s=0.0)["t_ns"].tolist() == []


@pytest.mark.parametrize("n_lost", [1, 15, 16, 17, 60, 200])
def test_what_a_dead_node_left_is_read_and_told(tmp_path, n_lost):
    path = two_ranks(tmp_path / "x.trace")
    content = path.read_bytes()
    path.write_bytes(content[:-n_lost])
    found = reader.read_folder(tmp_path / "x.trace")
    assert 3 <= found.n_events < 6 and len(found.frame()) == found.n_events
    assert len(found.notes) == 1 and "not whole" in found.notes[0]
    path.write_bytes(content[:-n_lost] + b"\xff" * n_lost)  # the length is there, the content is not
    found = reader.read_folder(tmp_path / "x.trace")
    assert 3 <= found.n_events < 6 and len(found.frame()) == found.n_events
    assert len(found.notes) == 1


def test_foreign_files_are_refused(tmp_path):
    folder = tmp_path / "x.trace"
    with pytest.raises(DataError, match="not a folder"):
        reader.read_folder(folder)
    folder.mkdir()
    with pytest.raises(DataError, match="no file of a trace"):
        reader.read_folder(folder)
    for content in (b"", b"hello", traces.names(), traces.head()[:100]):
        write(folder, content)
        with pytest.raises(DataError):
            reader.read_folder(folder)
    write(folder, traces.block(node_file.HEAD, bytes(152), version=9))
    with pytest.raises(DataError, match="version 9"):
        reader.read_folder(folder)


def test_a_changed_byte_is_found(tmp_path):
    path = two_ranks(tmp_path / "x.trace")
    content = bytearray(path.read_bytes())
    content[len(traces.head() + traces.names()) + 16 + node_file.CHUNK.itemsize + 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged at byte"):
        reader.read_folder(tmp_path / "x.trace").frame()


def test_hostile_blocks_are_refused_within_a_bound_of_memory(tmp_path):
    rng = np.random.default_rng(7)
    whole = traces.payload(0, [1, 2, 3], [4, 2**50, 6], [7, 8, 9], [1, 2, 3], SEND | SENT)
    n_refused = n_read = 0
    tracemalloc.start()
    for _ in range(300):
        content = bytearray(whole)
        for place in rng.integers(0, len(content), rng.integers(1, 4)):
            content[place] = rng.choice([0, 1, 8, 255, rng.integers(256)])
        del content[len(content) - int(rng.integers(0, 9)) :]
        write(
            tmp_path / "x.trace",
            traces.head(),
            traces.names(),
            traces.block(node_file.EVENTS, bytes(content)),
        )
        try:
            found = reader.read_folder(tmp_path / "x.trace")
            found.frame(), found.messages(), found.frame(begin_s=0.0, end_s=1.0)
            n_read += 1
        except DataError:
            n_refused += 1
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n_refused > 20 and n_read > 20
    assert peak_bytes < 64 << 20


def test_clocks_of_nodes_are_corrected_by_their_messages(tmp_path):
    rng = np.random.default_rng(5)
    true = np.sort(rng.integers(0, 10**9, 300))
    there = true + 5 * 10**12 + true // 20_000  # another clock, that runs 50 us/s faster
    ends = [true + 3000, there + 3000]
    for node, (own, end) in enumerate([(true, ends[0]), (there, ends[1])]):
        sends = traces.events(node, own, 10, 8, 1 - node, SEND | SENT)
        receives = traces.events(node, end - 500, 500, 8, 1 - node, RECV | RECEIVED)
        head = traces.head(t_init=int(own[0]))
        write(tmp_path / "x.trace", head, traces.names(), sends, receives, name=f"{node}.mct")
    profile = with_profile(tmp_path, (600, 600)).profile
    nodes = table("nodes", {"hostname": ["n1", "n2"], "clock_offset_s": [0, 5000]})
    ranks = profile.tables["ranks"].copy()
    ranks["i_node"] = [0, 1]
    hdf5.write(replace(profile, tables={**profile.tables, "nodes": nodes, "ranks": ranks}), tmp_path / "x.h5")
    found = frames.open_profile(tmp_path / "x.h5").trace
    assert found.alignment.n_messages == 600 and found.notes == ()
    assert found.alignment.n_before > 0 and found.alignment.n_after == 0
    messages = found.messages()
    for rank in (0, 1):
        is_sent, is_received = messages["message"] == "sent", messages["message"] == "received"
        begins = messages.loc[is_sent & (messages["rank"] == rank), "begin_ns"].to_numpy()
        assert np.abs(begins - true).max() < 3000
        received = messages.loc[is_received & (messages["peer"] == rank), "end_ns"].to_numpy()
        assert (received >= begins).all()


def test_a_rank_with_a_hostile_number_costs_no_memory(tmp_path):
    for i, rank in enumerate((2**31 - 1, -(2**31))):
        events = traces.events(rank, [5], [1], [0], [2**31 - 1], SEND | SENT)
        write(tmp_path / "x.trace", traces.head(), events, name=f"{i}.mct")
    found = reader.aligned(reader.read_folder(tmp_path / "x.trace"))
    assert len(found.frame()) == 2 and found.alignment.n_messages == 0
