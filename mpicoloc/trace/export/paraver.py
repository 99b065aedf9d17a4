"""Paraver traces: records in the .prv, names of values in the .pcf, names of ranks and nodes in the .row."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mpicoloc.core.profile import VERDICTS, text
from mpicoloc.errors import EnvironmentFault, printable
from mpicoloc.profile.frames import Frames
from mpicoloc.show import outputs
from mpicoloc.trace.export import calls
from mpicoloc.trace.export.calls import STATES, Recording, bare, event_of

_IN_ORDER = """
    Send Recv Isend Irecv Wait Waitall Bcast Barrier Reduce Allreduce Alltoall Alltoallv Gather Gatherv
    Scatter Scatterv Allgather Allgatherv Comm_rank Comm_size Comm_create Comm_dup Comm_split Comm_group
    Comm_free Comm_remote_group Comm_remote_size Comm_test_inter Comm_compare Scan Init Finalize Bsend
    Ssend Rsend Ibsend Issend Irsend Test Cancel Sendrecv Sendrecv_replace Cart_create Cart_shift
    Cart_coords Cart_get Cart_map Cart_rank Cart_sub Cartdim_get Dims_create Graph_get Graph_map
    Graph_create Graph_neighbors Graphdims_get Graph_neighbors_count Topo_test Waitany Waitsome Probe
    Iprobe Win_create Win_free Put Get Accumulate Win_fence Win_start Win_complete Win_post Win_wait
    Win_test Win_lock Win_unlock Pack Unpack Op_create Op_free Reduce_scatter Attr_delete Attr_get
    Attr_put Group_difference Group_excl Group_free Group_incl Group_intersection Group_rank
    Group_range_excl Group_range_incl Group_size Group_translate_ranks Group_union Group_compare
    Intercomm_create Intercomm_merge Keyval_free Keyval_create Abort Error_class Errhandler_create
    Errhandler_free Errhandler_get Error_string Errhandler_set Get_processor_name Initialized Wtick
    Wtime Address Bsend_init Buffer_attach Buffer_detach Request_free Recv_init Send_init Get_count
    Get_elements Pack_size Rsend_init Ssend_init Start Startall Testall Testany Test_cancelled Testsome
    Type_commit Type_contiguous Type_extent Type_free Type_hindexed Type_hvector Type_indexed Type_lb
    Type_size Type_struct Type_ub Type_vector File_open File_close File_read File_read_all File_write
    File_write_all File_read_at File_read_at_all File_write_at File_write_at_all Comm_spawn
    Comm_spawn_multiple Request_get_status Ireduce Iallreduce Ibarrier Ibcast Ialltoall Ialltoallv
    Iallgather Iallgatherv Igather Igatherv Iscatter Iscatterv Ireduce_scatter Iscan
    Reduce_scatter_block Ireduce_scatter_block Alltoallw Ialltoallw Get_accumulate
"""
VALUES = {name: i for i, name in enumerate(_IN_ORDER.split(), 1)}
TYPES = {
    50000001: "MPI Point-to-point",
    50000002: "MPI Collective Comm",
    50000003: "MPI Other",
    50000004: "MPI One-sided",
    50000005: "MPI I/O",
}
COLOURS = (
    (117, 195, 255), (0, 0, 255), (255, 255, 255), (255, 0, 0), (255, 0, 174), (179, 0, 0), (0, 255, 0),
    (255, 255, 0), (235, 0, 0), (0, 162, 0), (255, 0, 255), (100, 100, 177), (172, 174, 41), (255, 144, 26),
    (2, 255, 177), (192, 224, 0), (66, 66, 66),
)  # fmt: skip
"""Red, green and blue of each state, as in Paraver's own traces."""
RUNNING = STATES.index("Running")
_FIRST_OWN_VALUE = 1000


class Functions:
    """Type, value and state of each function of a recording, by its index.

    Attributes
    ----------
    events : list of (int, int, int)
    labels : dict
        Names of the values of each type.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.events: list[tuple[int, int, int]] = []
        self.labels: dict[int, dict[int, str]] = {type_: {} for type_ in TYPES}
        own_values = itertools.count(_FIRST_OWN_VALUE)
        for name in names:
            type_, state = event_of(name)
            value = VALUES.get(bare(name)) or next(own_values)
            self.events.append((type_, value, state))
            self.labels[type_].setdefault(value, printable(name))


_MEMORY = "256M"


def in_order(lines: Iterable[str], field: int, folder: str) -> Iterator[str]:
    """Lines sorted by one of their fields, a whole number; lines with equal numbers stay in order.

    The system's ``sort`` does the work with 256 MiB of memory and temporary files in `folder`.

    Raises `EnvironmentFault` if there is no ``sort``, or it cannot write.
    """
    key = ["-s", "-t:", f"-k{field},{field}n"]
    try:
        sort = subprocess.Popen(
            ["sort", *key, "-S", _MEMORY, "-T", folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, encoding="utf-8", errors="replace", env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
    except OSError as error:
        raise EnvironmentFault(f"cannot run sort, which is in coreutils: {error.strerror}") from None
    assert sort.stdin and sort.stdout and sort.stderr
    try:
        # If sort ends early, its stderr says why.
        with contextlib.suppress(BrokenPipeError), sort.stdin:
            sort.stdin.writelines(lines)
        yield from sort.stdout
    except BaseException:
        sort.kill()
        raise
    finally:
        with sort.stdout, sort.stderr:
            trouble = sort.stderr.read().strip()
            sort.wait()
    if sort.returncode:
        raise EnvironmentFault(f"{trouble}: make room in {folder}, or choose another place with --out")


BYTES_TYPE, PEER_TYPE, SHUTTER_TYPE = 99800001, 99800002, 99800003
_TIME_FIELD = 6
"""Number of the field with the time, counted from 1, by which records of all kinds are sorted."""
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
    """Place of each track: `place` has its "processor:application:task:thread" for the lines of the trace.

    `nodes` has the tracks of each node; the last entry has those of unknown nodes.
    """

    place: dict[tuple[int, int], str]
    nodes: list[list[tuple[int, int]]]
    hosts: list[str]


def write(job: Frames, out: str) -> Sequence[str]:
    """Write the trace of `job` to the files `out` (.prv or .prv.gz), .pcf and .row.

    Result: sentences on data that the trace lacks.
    """
    return write_recording(calls.recording(job), out)


def write_recording(recording: Recording, out: str) -> Sequence[str]:
    """Write calls that were read before or simulated; see `write`."""
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
    """States and events of a track: the state of each call, and running between the calls."""
    last_ns = 0
    for piece in recording.calls(*key):
        for begin_ns, end_ns, n_bytes, peer, call in piece.rows():
            if begin_ns > last_ns:
                yield f"1:{place}:{last_ns}:{begin_ns}:{RUNNING}\n"
            type_, value, state = functions.events[call]
            more = f":{PEER_TYPE}:{peer + 1}" if peer >= 0 else ""
            yield f"1:{place}:{begin_ns}:{end_ns}:{state}\n"
            yield f"2:{place}:{begin_ns}:{type_}:{value}:{BYTES_TYPE}:{n_bytes}{more}\n"
            zero = f":{PEER_TYPE}:0" if more else ""
            yield f"2:{place}:{end_ns}:{type_}:0:{BYTES_TYPE}:0{zero}\n"
            last_ns = end_ns


def _messages(recording: Recording, layout: _Layout) -> Iterator[str]:
    for sent, received in recording.messages.rows():
        (send_ns, _, n_bytes, _, src, src_track), (begin_ns, end_ns, _, _, dst, dst_track) = sent, received
        source, target = layout.place[src, src_track], layout.place[dst, dst_track]
        yield f"3:{source}:{send_ns}:{send_ns}:{target}:{begin_ns}:{end_ns}:{n_bytes}:0\n"


def _shutters(recording: Recording, layout: _Layout) -> Iterator[str]:
    """Events of each shutter on the first track of its node: 1 + verdict at the begin, 0 at the end."""
    begins, ends = (recording.shutters_ns(name).tolist() for name in ("t0_ns", "t1_ns"))
    rows = recording.profile.tables["shutters"]
    for row, begin_ns, end_ns in zip(rows, begins, ends, strict=True):
        if 0 <= row["i_node"] < len(layout.nodes) and layout.nodes[row["i_node"]]:
            place = layout.place[layout.nodes[row["i_node"]][0]]
            for at_ns, value in ((begin_ns, 1 + int(row["verdict"])), (max(begin_ns, end_ns), 0)):
                yield f"2:{place}:{at_ns}:{SHUTTER_TYPE}:{value}\n"


def _layout(recording: Recording) -> _Layout:
    """Give each track a processor of its own, numbered node by node."""
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
    """Number of threads of each rank; 1 for ranks without a call."""
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
