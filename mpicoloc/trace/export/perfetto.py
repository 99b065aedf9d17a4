"""Trace-event JSON for ui.perfetto.dev and chrome://tracing.

Each node is a process, with a thread for each track of calls and one for the shutters. Messages are flows,
the slowdown is a counter. Times are in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mpicoloc.core.profile import VERDICTS, text
from mpicoloc.profile.frames import Frames
from mpicoloc.profile.summary import summary
from mpicoloc.show import outputs
from mpicoloc.trace.export import calls
from mpicoloc.trace.export.calls import Ints, Messages, Recording

_JOB_PID = 1
_SHUTTERS_TID = 1
_FIRST_TID = 2


def write(job: Frames, out: str) -> Sequence[str]:
    """Write the trace of `job` to the file `out`.

    Result: sentences on data that the trace lacks.
    """
    return write_recording(calls.recording(job), out)


def write_recording(recording: Recording, out: str) -> Sequence[str]:
    """Write calls that were read before or simulated; see `write`."""
    with outputs.text_file(out) as file:
        facts = json.dumps(summary(recording.profile), allow_nan=False)
        file.write(f'{{"displayTimeUnit":"ns","otherData":{facts},"traceEvents":[\n')
        for i, line in enumerate(_events(recording)):
            file.write(",\n" + line if i else line)
        file.write("\n]}\n")
    return recording.notes


def _events(recording: Recording) -> Iterator[str]:
    place = _places(recording)
    yield from _names(recording, place)
    yield from _slowdown(recording)
    yield from _shutters(recording)
    for key in recording.tracks:
        yield from _calls(recording, key, place[key])
    yield from _messages(recording.messages, place)


def _messages(messages: Messages, place: Mapping[tuple[int, int], tuple[int, int]]) -> Iterator[str]:
    """Messages as arrows from call to call.

    Perfetto draws each arrow from the slice that began first. A receive that waited for its senders began
    before the sends. So such a receive gets an inner slice that begins when the last sender arrived, and the
    arrows end at this slice.
    """
    arrival_ns, rows, since_ns = _waits(messages)
    waits = messages.received.take(rows)
    for (_, end_ns, _, _, rank, track), begin_ns in zip(waits.rows(), map(int, since_ns), strict=True):
        pid, tid = place[rank, track]
        yield (
            f'{{"ph":"X","cat":"message","name":"sender there","pid":{pid},"tid":{tid},"ts":{_us(begin_ns)},'
            f'"dur":{_us(end_ns - begin_ns)}}}'
        )
    for i, (sent, received) in enumerate(messages.rows()):
        for kind, (begin_ns, _, n_bytes, _, rank, track) in (("s", sent), ("f", received)):
            pid, tid = place[rank, track]
            at = begin_ns if kind == "s" else int(arrival_ns[i])
            yield (
                f'{{"ph":"{kind}","bp":"e","cat":"message","name":"message","id":{i},"pid":{pid},"tid":{tid},'
                f'"ts":{_us(at)},"args":{{"bytes":{n_bytes}}}}}'
            )


def _waits(messages: Messages) -> tuple[Ints, Ints, Ints]:
    """Arrival time of each message, inside the call that received it; and the calls that waited for senders.

    Each of these calls is given by the index of one of its messages, and the time when the last sender
    arrived.
    """
    taken = messages.received
    if not len(messages):
        return taken.begin_ns, taken.begin_ns, taken.begin_ns
    order = np.lexsort((taken.begin_ns, taken.track, taken.rank))
    columns = (taken.rank[order], taken.track[order], taken.begin_ns[order])
    is_first = np.any([np.diff(column, prepend=-1) != 0 for column in columns], axis=0)
    first = np.flatnonzero(is_first)
    last_ns = np.maximum.reduceat(messages.sent.begin_ns[order], first)
    since_ns = np.minimum(last_ns + 1, taken.end_ns[order[first]])
    has_waited = last_ns >= columns[2][first]
    # One nanosecond before the end: at the end the next call may begin.
    arrival_ns = np.maximum(taken.begin_ns, taken.end_ns - 1)
    call = np.cumsum(is_first) - 1
    arrival_ns[order] = np.where(has_waited[call], since_ns[call], arrival_ns[order])
    return arrival_ns, order[first[has_waited]], since_ns[has_waited]


def _calls(recording: Recording, key: tuple[int, int], place: tuple[int, int]) -> Iterator[str]:
    pid, tid = place
    names = [json.dumps(name) for name in recording.names]
    for piece in recording.calls(*key):
        for begin_ns, end_ns, n_bytes, peer, call in piece.rows():
            more = f',"peer":{peer}' if peer >= 0 else ""
            yield (
                f'{{"ph":"X","cat":"mpi","name":{names[call]},"pid":{pid},"tid":{tid},"ts":{_us(begin_ns)},'
                f'"dur":{_us(end_ns - begin_ns)},"args":{{"bytes":{n_bytes}{more}}}}}'
            )


def _us(time_ns: int) -> str:
    """Nanoseconds as microseconds, without rounding."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _places(recording: Recording) -> dict[tuple[int, int], tuple[int, int]]:
    """Process and thread of each track."""
    node = recording.nodes
    return {key: (_pid(node[key[0]]), _FIRST_TID + i) for i, key in enumerate(recording.tracks)}


def _pid(i_node: int) -> int:
    return _JOB_PID + 1 + i_node


def _names(recording: Recording, place: dict[tuple[int, int], tuple[int, int]]) -> Iterator[str]:
    profile = recording.profile
    hosts = [text(row["hostname"]) for row in profile.tables["nodes"]]
    used = {pid for pid, _ in place.values()}
    processes = {_JOB_PID: f"job {profile.job.id}: {profile.job.command}"}
    processes |= {_pid(i): f"node {host}" for i, host in enumerate(hosts)}
    processes |= {_pid(len(hosts)): "node unknown"} if _pid(len(hosts)) in used else {}
    for pid, name in processes.items():
        yield _meta("process_name", pid, 0, {"name": name})
        yield _meta("process_sort_index", pid, 0, {"sort_index": pid})
    for i in sorted(set(profile.tables["shutters"]["i_node"].tolist())):
        yield _meta("thread_name", _pid(i), _SHUTTERS_TID, {"name": "shutters: sampling windows"})
    for (rank, track), (pid, tid) in place.items():
        name = f"rank {rank}" + (f", thread {track}" if track else "")
        yield _meta("thread_name", pid, tid, {"name": name})
        yield _meta("thread_sort_index", pid, tid, {"sort_index": tid})


def _meta(name: str, pid: int, tid: int, args: dict[str, object]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args})


def _slowdown(recording: Recording) -> Iterator[str]:
    """The slowdown of the whole job, as a constant counter from begin to end."""
    found = recording.profile.interference.slowdown
    if found is None:
        return
    args = {name: getattr(found, name) for name in ("value", "low", "high")}
    for at_ns in (0, recording.end_ns):
        yield json.dumps(
            {"ph": "C", "name": "slowdown", "pid": _JOB_PID, "tid": 0, "ts": at_ns / 1000, "args": args}
        )


def _shutters(recording: Recording) -> Iterator[str]:
    """The sampling window of each shutter, and the number of valid shutters so far."""
    rows = recording.profile.tables["shutters"]
    begins, ends = (recording.shutters_ns(name).tolist() for name in ("t0_ns", "t1_ns"))
    n_valid = 0
    for row, begin_ns, end_ns in sorted(zip(rows, begins, ends, strict=True), key=lambda item: item[1]):
        verdict = VERDICTS[row["verdict"]] if row["verdict"] < len(VERDICTS) else VERDICTS[0]
        args = {name: int(row[name]) for name in ("epoch", "n_corunners", "moved_ns")}
        place = f'"pid":{_pid(int(row["i_node"]))},"tid":{_SHUTTERS_TID},"ts":{_us(begin_ns)}'
        yield (
            f'{{"ph":"X","cat":"shutter","name":"{verdict}",{place},"dur":{_us(max(0, end_ns - begin_ns))},'
            f'"args":{json.dumps(args)}}}'
        )
        n_valid += verdict == "valid"
        yield json.dumps(
            {"ph": "C", "name": "valid shutters", "pid": _JOB_PID, "tid": 0, "ts": begin_ns / 1000,
             "args": {"n": n_valid}}
        )  # fmt: skip
