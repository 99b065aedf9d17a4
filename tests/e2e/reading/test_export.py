"""Exports of a real run, read by programs that know nothing of mpicoloc, compared with the profile."""

import json
import re
import shutil
import subprocess
from collections import Counter

import jobs
import pytest
from exported import N_RANKS, N_ROUNDS, N_STEPS, export

import mpicoloc

pytestmark = pytest.mark.e2e


def test_perfetto_has_every_call_with_its_time_bytes_and_peer(traced, events, tmp_path):
    page = json.loads(export(traced, "perfetto", tmp_path / "job.json").read_text())
    calls = [event for event in page["traceEvents"] if event["ph"] == "X" and event["cat"] == "mpi"]
    ranks = {
        (event["pid"], event["tid"]): int(event["args"]["name"].split()[1])
        for event in page["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name" and event["args"]["name"].startswith("rank")
    }
    origin_ns = int(events["t_ns"].min())
    found = sorted(
        (ranks[call["pid"], call["tid"]], call["name"], origin_ns + round(call["ts"] * 1000),
         round(call["dur"] * 1000), call["args"]["bytes"], call["args"].get("peer", -1))
        for call in calls
    )  # fmt: skip
    columns = ["rank", "call", "t_ns", "duration_ns", "bytes", "peer"]
    assert found == sorted(map(tuple, events[columns].values.tolist()))


def test_perfetto_joins_messages(traced, events, tmp_path):
    page = json.loads(export(traced, "chrome", tmp_path / "job.json").read_text())
    begins, ends = (
        {event["id"]: event for event in page["traceEvents"] if event["ph"] == kind} for kind in "sf"
    )
    assert len(begins) == len(ends) == N_RANKS * N_ROUNDS * 2
    for i, begin in begins.items():
        assert begin["ts"] <= ends[i]["ts"]
        assert begin["args"]["bytes"] in (40000, *range(100, 100 + N_ROUNDS))
        assert ends[i]["tid"] != begin["tid"]


def prv(path):
    """Records of a .prv by their kind, as lists of whole numbers; and its header."""
    header, *lines = path.read_text().splitlines()
    records = [list(map(int, line.split(":"))) for line in lines]
    return header, {kind: [record[1:] for record in records if record[0] == kind] for kind in (1, 2, 3)}


def labels(path):
    """Names of the values of each type of event in a .pcf."""
    found, types = {}, []
    for line in path.read_text().splitlines():
        words = line.split(None, 2)
        if line in ("EVENT_TYPE", "VALUES", ""):
            types = [] if line != "VALUES" else types
        elif len(words) == 3 and words[0] == "0" and words[1].isdigit():
            types.append(int(words[1]))
        elif types:
            found[types[-1], int(words[0])] = line.split(None, 1)[1]
    return found


def test_paraver_has_every_call_with_its_name_time_and_bytes(traced, events, tmp_path):
    out = export(traced, "paraver", tmp_path / "job.prv")
    header, records = prv(out)
    names = labels(out.with_suffix(".pcf"))
    found, since = [], {}
    for _, _, task, thread, at_ns, *pairs in records[2]:
        values = dict(zip(pairs[::2], pairs[1::2], strict=True))
        (call,) = [(kind, value) for kind, value in values.items() if kind < 50000006]
        if call[1]:
            since[task, thread] = (names[call], at_ns, values[99800001], values.get(99800002, 0) - 1)
        else:
            name, begin_ns, n_bytes, peer = since.pop((task, thread))
            found.append((task - 1, name, begin_ns, at_ns - begin_ns, n_bytes, peer))
    expected = events.assign(t_ns=events["t_ns"] - events["t_ns"].min())
    columns = ["rank", "call", "t_ns", "duration_ns", "bytes", "peer"]
    assert sorted(found) == sorted(map(tuple, expected[columns].values.tolist()))
    assert names[50000001, 1] == "MPI_Send" and names[50000002, 10] == "MPI_Allreduce"
    end_ns = (expected["t_ns"] + expected["duration_ns"]).max()
    assert f":{end_ns}_ns:1({N_RANKS}):1:{N_RANKS}({','.join(['1:1'] * N_RANKS)})" in header


def test_paraver_is_sorted_and_its_messages_lie_in_their_calls(traced, events, tmp_path):
    _, records = prv(export(traced, "paraver", tmp_path / "job.prv"))
    calls = {(row.rank, row.t_ns - events["t_ns"].min()): row for row in events.itertuples()}
    assert len(records[3]) == N_RANKS * N_ROUNDS * 2
    for _, _, src, _, send_ns, _, _, _, dst, _, begin_ns, end_ns, n_bytes, _ in records[3]:
        sent, taken = calls[src - 1, send_ns], calls[dst - 1, begin_ns]
        assert (sent.peer, taken.peer) == (dst - 1, src - 1)
        assert sent.bytes == taken.bytes == n_bytes and end_ns == begin_ns + taken.duration_ns
    times = [record[4] for record in records[2]]
    assert times == sorted(times)
    in_calls = sum(end - begin for *_, begin, end, state in records[1] if state != 1)
    assert in_calls == events["duration_ns"].sum()


@pytest.mark.skipif(shutil.which("otf2-print") is None, reason="no otf2-print here (Debian: otf2-tools)")
def test_otf2_has_every_call_and_message(traced, events, tmp_path):
    pytest.importorskip("otf2")
    out = export(traced, "otf2", tmp_path / "archive")
    command = ["otf2-print", out / "traces.otf2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=jobs.LIMIT_S, check=True)
    found, messages, since = [], Counter(), {}
    for kind, rank, at_ns, rest in re.findall(r"^(\w+) +(\d+) +(\d+)  (.*(?:\n +ADD.*)?)", done.stdout, re.M):
        if kind == "ENTER":
            since[rank] = (int(at_ns), int(re.search(r"UINT64; (\d+)", rest)[1]))
        elif kind == "LEAVE":
            begin_ns, n_bytes = since.pop(rank)
            found.append((int(rank), rest.split('"')[1], begin_ns, int(at_ns) - begin_ns, n_bytes))
        else:
            peer, size = (int(re.search(word, rest)[1]) for word in (r"(?:er): (\d+)", r"Length: (\d+)"))
            messages[kind, *((int(rank), peer) if kind == "MPI_SEND" else (peer, int(rank))), size] += 1
    expected = events.assign(t_ns=events["t_ns"] - events["t_ns"].min())
    columns = ["rank", "call", "t_ns", "duration_ns", "bytes"]
    assert sorted(found) == sorted(map(tuple, expected[columns].values.tolist()))
    sent = events[events["call"].isin(["MPI_Send", "MPI_Isend"])]
    rows = sent[["rank", "peer", "bytes"]].values.tolist()
    assert messages == Counter((kind, *row) for row in rows for kind in ("MPI_SEND", "MPI_RECV"))


def test_a_trace_of_everything_has_every_message_of_a_waitall(whole, tmp_path):
    """The last calls (--trace N) do not tell them apart."""
    expected = mpicoloc.open(whole).trace.frame()
    _, records = prv(export(whole, "paraver", tmp_path / "heat.prv"))
    pairs = Counter((record[2] - 1, record[8] - 1, record[12]) for record in records[3])
    around = [(rank, (rank + step) % N_RANKS) for rank in range(N_RANKS) for step in (1, -1)]
    assert {(src, dst) for src, dst, _ in pairs} == set(around) and set(pairs.values()) == {N_STEPS}
    assert len({n_bytes for *_, n_bytes in pairs}) == 1
    assert sum(1 for record in records[2] if record[6]) == len(expected)
    in_calls = sum(end - begin for *_, begin, end, state in records[1] if state != 1)
    assert in_calls == expected["duration_ns"].sum()
    parquet = pytest.importorskip("pyarrow.parquet")
    found = parquet.read_table(export(whole, "parquet", tmp_path / "tables") / "trace.parquet").to_pandas()
    assert found.astype({"call": str, "message": str}).equals(expected.astype({"call": str, "message": str}))
