"""Building blocks of trace exports: tracks on one clock, and pairs of sends and receives."""

import json

import numpy as np
import pytest
import traces
from exports import job_of

from mpicoloc.errors import DataError
from mpicoloc.profile.frames import Frames
from mpicoloc.trace import node_file
from mpicoloc.trace.export import calls, perfetto
from mpicoloc.trace.export.calls import Side, matched


def side(*rows):
    """Rows of rank, peer, bytes, begin and end."""
    rank, peer, n_bytes, begin, end = np.array(rows, np.int64).reshape(-1, 5).T
    return Side(begin, end, n_bytes, peer, rank, np.zeros_like(rank))


def test_calls_that_overlap_lie_on_tracks_of_their_own():
    begin, end = np.array([[0, 10], [5, 7], [6, 12], [8, 9], [10, 11], [20, 21]]).T
    assert calls.tracks_of(begin, end).tolist() == [0, 1, 2, 1, 0, 0]


def test_calls_of_nodes_are_on_one_clock():
    job = job_of(
        events={
            "rank": [0, 1, 1], "t_ns": [10**9, 5 * 10**9 + 300, 5 * 10**9 + 100], "duration_ns": [50, 60, 70],
            "call": ["MPI_Recv", "MPI_Send", "MPI_Init"], "peer": [1, 0, -1], "bytes": [8, 8, 0],
        },
        nodes={"hostname": ["a", "b"], "clock_offset_s": [0.0, 4.0]},
        ranks={"rank": [0, 1], "i_node": [0, 1]},
    )  # fmt: skip
    found = calls.recording(job)
    assert found.tracks == [(0, 0), (1, 0)] and found.end_ns == 360
    (piece,) = found.calls(1, 0)
    assert [found.names[i] for i in piece.call] == ["MPI_Init", "MPI_Send"]
    assert piece.begin_ns.tolist() == [100, 300] and piece.end_ns.tolist() == [170, 360]
    assert len(found.messages) == 0, "the receive was over before the send began"


def test_a_trace_of_every_call_is_taken_from_its_files(tmp_path):
    profile = job_of(
        nodes={"hostname": ["a"]}, ranks={"rank": [0, 1], "n_events": [2, 1], "i_node": [0, 0]}
    ).profile
    (tmp_path / "x.trace").mkdir()
    send, receive = traces.SEND | node_file.SENT, traces.RECV | node_file.RECEIVED
    (tmp_path / "x.trace" / "0.mct").write_bytes(
        traces.head(profile.job.id.encode(), n_ranks=profile.job.n_ranks)
        + traces.names()
        + traces.events(0, [100, 200], [5, 6], [8, 0], [1, -1], [send, traces.BARRIER])
        + traces.events(1, [90], [30], [8], [0], receive)
    )
    found = calls.recording(Frames(profile, tmp_path / "x.h5"))
    assert found.tracks == [(0, 0), (1, 0)] and not found.is_cut
    (piece,) = found.calls(0, 0)
    assert [found.names[i] for i in piece.call] == ["MPI_Send", "MPI_Barrier"]
    assert piece.begin_ns.tolist() == [10, 110] and piece.end_ns.tolist() == [15, 116]
    assert len(found.messages) == 1


def test_messages_pair_in_order_by_ranks_and_bytes():
    sent = side((0, 1, 8, 10, 11), (0, 1, 8, 20, 21), (0, 1, 4, 5, 6), (2, 1, 8, 0, 1))
    received = side((1, 0, 8, 12, 14), (1, 0, 8, 20, 25), (1, 0, 4, 30, 31), (1, 2, 8, 40, 41))
    pairs = [(s[0], r[1]) for s, r in matched(sent, received, 3, is_cut=False).rows()]
    assert pairs == [(0, 41), (5, 31), (10, 14), (20, 25)]


@pytest.mark.parametrize(
    ("is_cut", "is_whole", "expected"),
    [(False, False, []), (True, False, [(20, 25)]), (False, True, [(10, 25)])],
)
def test_a_send_too_many_pairs_from_the_end_that_is_there(is_cut, is_whole, expected):
    sent, received = side((0, 1, 8, 10, 11), (0, 1, 8, 20, 21)), side((1, 0, 8, 20, 25))
    assert [(s[0], r[1]) for s, r in matched(sent, received, 2, is_cut, is_whole).rows()] == expected


def test_ranks_that_the_job_does_not_have_are_damage():
    with pytest.raises(DataError, match="damaged"):
        calls.recording(job_of(events={"rank": [7], "call": ["MPI_Send"]}, ranks={"rank": [0, 1]}))


def test_no_trace_is_told_with_the_remedy():
    with pytest.raises(DataError, match="run the job with --trace"):
        calls.recording(job_of(ranks={"rank": [0, 1]}))


@pytest.mark.parametrize("number", [2**64 - 1, 2**63, 0])
def test_times_and_bytes_of_a_hostile_file_overflow_nothing(number):
    numbers = {"t_ns": [number, 5], "duration_ns": [number] * 2, "bytes": [number] * 2}
    events = {"rank": [0, 0], "call": ["x"] * 2} | {n: np.array(a, np.uint64) for n, a in numbers.items()}
    found = calls.recording(job_of(events=events, ranks={"rank": [0]}))
    for key in found.tracks:
        for piece in found.calls(*key):
            assert (piece.begin_ns >= 0).all() and (piece.bytes >= 0).all()
            assert (piece.end_ns >= piece.begin_ns).all()


def test_arrows_of_perfetto_go_from_the_sender_to_a_receiver_that_waited(tmp_path):
    """Perfetto lets them begin at the slice that does."""
    events = {"rank": [0, 1, 0, 1], "t_ns": [30, 10, 60, 65], "duration_ns": [5, 40, 5, 10],
              "peer": [1, 0] * 2, "bytes": [8] * 4, "call": ["MPI_Send", "MPI_Recv"] * 2}  # fmt: skip
    perfetto.write(job_of(events=events, ranks={"rank": [0, 1]}), str(tmp_path / "x.json"))
    page = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    (wait,) = [event for event in page if event["name"] == "sender there"]
    assert (wait["ts"], wait["dur"]) == (0.021, 0.019), "from the send at 20 on, after the receive began at 0"
    ends = [event["ts"] for event in page if event["ph"] == "f"]
    assert ends == [0.021, 0.064], "inside the call, at the end of which the next one may begin"
