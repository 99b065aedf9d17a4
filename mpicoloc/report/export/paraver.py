"""Paraver traces: records in the .prv, names of values in the .pcf, names of ranks and nodes in the .row."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from mpicoloc.core.tables import VERDICTS, printable, text
from mpicoloc.profile.frames import Frames
from mpicoloc.profile.recording import calls
from mpicoloc.profile.recording.calls import Recording
from mpicoloc.report.export import outputs
from mpicoloc.report.export.paraver_values import COLOURS, RUNNING, STATES, TYPES, Functions
from mpicoloc.report.export.sorting import in_order

BYTES_TYPE, PEER_TYPE, SHUTTER_TYPE = 99800001, 99800002, 99800003
_TIME_FIELD = 6
"""Where the time stands by which records are sorted, counted from 1, in those of every kind."""
_OWN_TYPES = {
    BYTES_TYPE: "Bytes of the MPI call",
    PEER_TYPE: "Peer of the MPI call (rank + 1)",
    SHUTTER_TYPE: "Shutter (sampling window)",
}
_HEAD = """\
DEFAULT_OPTIONS

LEVEL               THREAD
UNITS               NANOSEC
LOOK_BACK           100
SPEED               1
FLAG_ICONS          ENABLED
NUM_OF_STATE_COLORS 1000
YMAX_SCALE          37

DEFAULT_SEMANTIC

THREAD_FUNC          State As Is

STATES
"""


@dataclass(frozen=True)
class _Layout:
    """Where each track runs: "processor:application:task:thread", and how many there are.

    `place` is for lines; `nodes` has the tracks of each node, those of unknown ones at the end.
    """

    place: dict[tuple[int, int], str]
    nodes: list[list[tuple[int, int]]]
    hosts: list[str]


def write(job: Frames, out: str) -> list[str]:
    """Write the trace of `job` to the files `out` (.prv, or .prv.gz), .pcf and .row.

    Returns
    -------
    list of str
        What is missing in the trace, in words.
    """
    return write_recording(calls.recording(job), out)


def write_recording(recording: Recording, out: str) -> list[str]:
    """The same of calls that are read already, or simulated."""
    end = ".prv.gz" if out.endswith(".gz") else ".prv"
    base = out.removesuffix(".gz").removesuffix(".prv")
    layout, functions = _layout(recording), Functions(recording.names)
    streams = [_calls(recording, key, layout.place[key], functions) for key in recording.tracks]
    streams += [_messages(recording, layout), _shutters(recording, layout)]
    with outputs.text_file(f"{base}.pcf") as file:
        file.write(_names(functions))
    with outputs.text_file(f"{base}.row") as file:
        file.write(_rows(recording, layout))
    with outputs.text_file(f"{base}{end}") as file:
        file.write(_header(recording, layout))
        file.writelines(in_order(itertools.chain(*streams), _TIME_FIELD, os.path.dirname(out) or "."))
    return recording.notes


def _calls(recording: Recording, key: tuple[int, int], place: str, functions: Functions) -> Iterator[str]:
    """States and events of a track: running, and the call."""
    last_ns = 0
    for piece in recording.calls(*key):
        for begin_ns, end_ns, n_bytes, peer, call in piece.rows():
            if begin_ns > last_ns:
                yield f"1:{place}:{last_ns}:{begin_ns}:{RUNNING}\n"
            type_ = functions.types[call]
            more = f":{PEER_TYPE}:{peer + 1}" if peer >= 0 else ""
            yield f"1:{place}:{begin_ns}:{end_ns}:{functions.states[call]}\n"
            yield f"2:{place}:{begin_ns}:{type_}:{functions.values[call]}:{BYTES_TYPE}:{n_bytes}{more}\n"
            zero = f":{PEER_TYPE}:0" if more else ""
            yield f"2:{place}:{end_ns}:{type_}:0:{BYTES_TYPE}:0{zero}\n"
            last_ns = end_ns


def _messages(recording: Recording, layout: _Layout) -> Iterator[str]:
    for sent, received in recording.messages.rows():
        (src, src_track, _, n_bytes, send_ns, _), (dst, dst_track, _, _, begin_ns, end_ns) = sent, received
        source, target = layout.place[src, src_track], layout.place[dst, dst_track]
        yield f"3:{source}:{send_ns}:{send_ns}:{target}:{begin_ns}:{end_ns}:{n_bytes}:0\n"


def _shutters(recording: Recording, layout: _Layout) -> Iterator[str]:
    """Events of the first track of the node: 1 + the verdict, and 0 at the end."""
    begins, ends = (recording.shutters_ns(name).tolist() for name in ("t0_ns", "t1_ns"))
    rows = recording.profile.tables["shutters"]
    for row, begin_ns, end_ns in zip(rows, begins, ends, strict=True):
        if 0 <= row["i_node"] < len(layout.nodes) and layout.nodes[row["i_node"]]:
            place = layout.place[layout.nodes[row["i_node"]][0]]
            for at_ns, value in ((begin_ns, 1 + int(row["verdict"])), (max(begin_ns, end_ns), 0)):
                yield f"2:{place}:{at_ns}:{SHUTTER_TYPE}:{value}\n"


def _layout(recording: Recording) -> _Layout:
    """Processors are numbered node by node, and each track has one."""
    hosts = [printable(text(row["hostname"])) for row in recording.profile.tables["nodes"]]
    nodes: list[list[tuple[int, int]]] = [[] for _ in range(len(hosts) + 1)]
    for key in recording.tracks:
        nodes[recording.nodes[key[0]]].append(key)
    order = [key for node in nodes for key in node]
    place = {(rank, track): f"{i}:1:{rank + 1}:{track + 1}" for i, (rank, track) in enumerate(order, 1)}
    return _Layout(place, nodes, [*hosts, "unknown"])


def _header(recording: Recording, layout: _Layout) -> str:
    """Date, length, processors of each node, and threads and node of each rank."""
    started = time.localtime(max(0.0, min(recording.profile.job.start_unix_s, 1e11)))
    node_of = {rank: i for i, node in enumerate(_used(layout), 1) for rank, _ in node}
    cpus = ",".join(str(len(node)) for node in _used(layout))
    tasks = ",".join(f"{n}:{node_of.get(rank, 1)}" for rank, n in _n_threads(recording).items())
    end_ns = max([recording.end_ns, *recording.shutters_ns("t1_ns").tolist()])
    date = time.strftime("%d/%m/%Y at %H:%M", started)
    n_nodes = len(_used(layout))
    return f"#Paraver ({date}):{end_ns}_ns:{n_nodes}({cpus}):1:{recording.n_ranks}({tasks})\n"


def _n_threads(recording: Recording) -> dict[int, int]:
    """Threads of each rank of the job; one of those without a call."""
    found = dict.fromkeys(range(recording.n_ranks), 1)
    for rank, track in recording.tracks:
        found[rank] = max(found[rank], track + 1)
    return found


def _used(layout: _Layout) -> list[list[tuple[int, int]]]:
    return [node for node in layout.nodes if node]


def _names(functions: Functions) -> str:
    lines = [_HEAD, *(f"{i}    {name}\n" for i, name in enumerate(STATES)), "\n\nSTATES_COLOR\n"]
    lines += (f"{i}    {{{red},{green},{blue}}}\n" for i, (red, green, blue) in enumerate(COLOURS))
    tables = [
        (type_, TYPES[type_], {0: "Outside MPI", **labels}) for type_, labels in functions.labels.items()
    ]
    verdicts = {0: "none", **{1 + i: name for i, name in enumerate(VERDICTS)}}
    tables += [(type_, name, verdicts if type_ == SHUTTER_TYPE else {}) for type_, name in _OWN_TYPES.items()]
    for type_, name, labels in tables:
        lines.append(f"\n\nEVENT_TYPE\n0    {type_}    {name}\n")
        if labels:
            lines += ["VALUES\n", *(f"{value}      {label}\n" for value, label in labels.items())]
    return "".join(lines)


def _rows(recording: Recording, layout: _Layout) -> str:
    """Names of processors, nodes and threads."""
    used = [(host, node) for host, node in zip(layout.hosts, layout.nodes, strict=True) if node]
    cpus = [f"{i}.{host}" for host, node in used for i in range(1, len(node) + 1)]
    threads = [
        f"rank {rank}" + (f" thread {track}" if track else "")
        for rank, n in _n_threads(recording).items()
        for track in range(n)
    ]
    levels = {"CPU": cpus, "NODE": [host for host, _ in used], "THREAD": threads}
    return "\n".join(
        f"LEVEL {level} SIZE {len(names)}\n" + "".join(f"{name}\n" for name in names)
        for level, names in levels.items()
    )
