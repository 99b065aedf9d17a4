"""Time-independent traces, which SimGrid's ``smpirun -replay`` runs on any platform.

What a rank did between its messages and collectives becomes a computation of as many flops as a processor of
1 Gflop/s does in that time. A receive is replayed where it was completed, and a send blocks only if its
receive had begun before it ended: so what a replay waits for has always begun earlier in the recorded run.
"""

from __future__ import annotations

import collections
import heapq
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from mpicoloc.core.tables import text
from mpicoloc.errors import DataError
from mpicoloc.network.traffic import call_bytes
from mpicoloc.profile.frames import Frames
from mpicoloc.show import outputs
from mpicoloc.trace.export import calls
from mpicoloc.trace.export.calls import Ints, Messages, Recording
from mpicoloc.trace.export.functions import is_communication

BYTE = 6
"""SimGrid's number of MPI_BYTE."""
_KNOWN = re.compile(
    r"MPI_I?(barrier|bcast|reduce|allreduce|alltoall[vw]?|gatherv?|scatterv?|allgatherv?"
    r"|reduce_scatter(_block)?)(_c)?",
    re.IGNORECASE,
)
_OTHERS = re.compile(
    r"MPI_I?((ex)?scan|neighbor_.*|.*(reduce|gather|scatter|alltoall|bcast|barrier).*_init)(_c)?",
    re.IGNORECASE,
)


class Collectives:
    """Which calls of a recording are collectives of all ranks, and the action of each.

    Attributes
    ----------
    notes : list of str
        What is left out, in words.

    Raises
    ------
    DataError
        If the ranks did not call the same ones in the same order, or one call before another had ended.
    """

    def __init__(self, recording: Recording) -> None:
        self.notes: list[str] = []
        kinds = [_KNOWN.fullmatch(name) for name in recording.names]
        partial = _of_parts(recording)
        self._names = [
            found[1].lower() if found and name not in partial else ""
            for name, found in zip(recording.names, kinds, strict=True)
        ]
        left_out = sorted({name for name in recording.names if name in partial or _OTHERS.fullmatch(name)})
        if left_out:
            self.notes.append(f"left out (not of all ranks, or unknown to SimGrid): {', '.join(left_out)}")
        self._roots = _roots(recording)
        rows = [self._rows(recording, rank) for rank in range(recording.n_ranks)]
        self._align(rows, recording)

    def _rows(self, recording: Recording, rank: int) -> Ints:
        """Number, function and bytes of each collective of a rank."""
        found, last_ns = [], 0
        for i, (begin_ns, end_ns, n_bytes, _, call) in enumerate(recording.in_order(rank)):
            if begin_ns < last_ns:
                raise DataError(_THREADS.format(rank))
            last_ns = end_ns
            if self._names[call]:
                found.append((i, call, n_bytes))
        return np.array(found, np.int64).reshape(-1, 3)

    def _align(self, rows: list[Ints], recording: Recording) -> None:
        n = min(map(len, rows))
        if n < max(map(len, rows)) and not (recording.is_cut or recording.profile.partial):
            raise DataError(_TROUBLE)
        # Of a trace that keeps the last calls, those that some rank has forgotten are first; of a job that
        # was killed, those that some rank never began are last.
        rows = [row[len(row) - n :] if recording.is_cut else row[:n] for row in rows]
        self._number = [row[:, 0] for row in rows]
        self._calls = rows[0][:, 1]
        if any((row[:, 1] != self._calls).any() for row in rows):
            raise DataError(_TROUBLE)
        self._bytes = np.stack([row[:, 2] for row in rows], axis=1)
        self._call_names = recording.names

    def of(self, rank: int) -> Mapping[int, str]:
        """Action of each collective of a rank, by the number of its call among the rank's."""
        return {
            int(number): self._action(int(call), self._bytes[i], rank)
            for i, (number, call) in enumerate(zip(self._number[rank], self._calls, strict=True))
        }

    def _action(self, call: int, n_bytes: Ints, rank: int) -> str:
        name = self._names[call]
        root = self._roots.get(self._call_names[call], -1)
        return _ACTIONS[re.sub(r"_block$|(?<=[rl])[vw]$", "", name)](n_bytes, root, rank)


_TROUBLE = (
    "the ranks do not call the same collectives in the same order: some are of parts of the ranks, which "
    "SimGrid's format does not know; export paraver or otf2"
)
_THREADS = "threads of rank {} call MPI at once, which SimGrid's format does not have; export paraver or otf2"


def _of_parts(recording: Recording) -> set[str]:
    """Functions that were called on less than all ranks."""
    groups, collectives = (recording.profile.tables[name] for name in ("groups", "collectives"))
    names, which = np.unique(groups["group"], return_inverse=True)
    n = np.bincount(which.ravel(), groups["n"], len(names)) if len(names) else np.zeros(0)
    whole = set(names[n == recording.n_ranks].tolist())
    return {text(row["call"]) for row in collectives if int(row["group"]) not in whole}


def _roots(recording: Recording) -> dict[str, int]:
    """Root of each function that always had the same."""
    found: dict[str, set[int]] = {}
    for row in recording.profile.tables["collectives"]:
        found.setdefault(text(row["call"]), set()).add(int(row["root"]))
    return {name: roots.pop() for name, roots in found.items() if len(roots) == 1}


def _barrier(n_bytes: Ints, root: int, rank: int) -> str:
    return "barrier"


def _bcast(n_bytes: Ints, root: int, rank: int) -> str:
    return f"bcast {n_bytes.max()} {max(root, 0)} {BYTE}"


def _reduce(n_bytes: Ints, root: int, rank: int) -> str:
    size, root = call_bytes.reduced(n_bytes, root)
    return f"reduce {size} 0 {root} {BYTE}"


def _allreduce(n_bytes: Ints, root: int, rank: int) -> str:
    return f"allreduce {n_bytes[rank] // 2} 0 {BYTE}"


def _alltoall(n_bytes: Ints, root: int, rank: int) -> str:
    """Parts of one size: of those of alltoallv only the sum is known."""
    part = call_bytes.exchanged_block_bytes(n_bytes)
    return f"alltoall {part} {part} {BYTE} {BYTE}"


def _gather(n_bytes: Ints, root: int, rank: int) -> str:
    parts, root = call_bytes.rooted_blocks(n_bytes, root)
    if _are_even(parts):
        return f"gather {parts[0]} {parts[0]} {root} {BYTE} {BYTE}"
    return f"gatherv {parts[rank]} {_words(parts)} {root} {BYTE} {BYTE}"


def _scatter(n_bytes: Ints, root: int, rank: int) -> str:
    parts, root = call_bytes.rooted_blocks(n_bytes, root)
    if _are_even(parts):
        return f"scatter {parts[0]} {parts[0]} {root} {BYTE} {BYTE}"
    return f"scatterv {_words(parts)} {parts[rank]} {root} {BYTE} {BYTE}"


def _allgather(n_bytes: Ints, root: int, rank: int) -> str:
    parts = call_bytes.own_blocks(n_bytes)
    if _are_even(parts):
        return f"allgather {parts[0]} {parts[0]} {BYTE} {BYTE}"
    return f"allgatherv {parts[rank]} {_words(parts)} {BYTE} {BYTE}"


def _reduce_scatter(n_bytes: Ints, root: int, rank: int) -> str:
    return f"reducescatter {_words(call_bytes.own_blocks(n_bytes))} 0 {BYTE}"


def _are_even(parts: Ints) -> bool:
    """Whether one number says it for all ranks, of which there may be thousands."""
    return bool((parts == parts[0]).all())


def _words(parts: Ints) -> str:
    return " ".join(map(str, parts.tolist()))


_ACTIONS: Mapping[str, Callable[[Ints, int, int], str]] = {
    "barrier": _barrier, "bcast": _bcast, "reduce": _reduce, "allreduce": _allreduce, "alltoall": _alltoall,
    "gather": _gather, "scatter": _scatter, "allgather": _allgather, "reduce_scatter": _reduce_scatter,
}  # fmt: skip


FLOPS_PER_NS = 1
_N_TAGS = 1 << 15
_PLATFORM = """\
<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<!-- Processors of 1 Gf: computations take as long as they did. The network is a guess. -->
<platform version="4.1">
  <cluster id="job" prefix="node-" suffix="" radical="0-{last}" speed="1Gf" core="{n_cores}"
           bw="12.5GBps" lat="1us" loopback_bw="10GBps" loopback_lat="0.2us"/>
</platform>
"""
Action = tuple[int, int, str, str]
"""Of a message, at one of its ends: begin of the call there, when the message was taken, what is done, and
what waits for its end if that does not."""


def write(job: Frames, out: str) -> list[str]:
    """Write the actions of each rank, a platform and a list of hosts to the folder `out`.

    Result: what is left out, in words.
    """
    recording = calls.recording(job)
    collectives = Collectives(recording)
    names = [f"rank-{rank}.txt" for rank in range(recording.n_ranks)]
    with outputs.folder(out) as folder:
        for rank, name in enumerate(names):
            with outputs.text_file(os.path.join(folder, name)) as file:
                messages = list(_messages(recording.messages, rank))
                for action in _actions(recording, rank, messages, collectives.of(rank)):
                    file.write(f"{rank} {action}\n")
        with outputs.text_file(os.path.join(folder, "trace.txt")) as file:
            file.writelines(f"{name}\n" for name in names)
        _write_platform(recording, folder)
    return [*recording.notes, *_left_out(recording), *collectives.notes]


def _actions(
    recording: Recording, rank: int, messages: Sequence[Action], rounds: Mapping[int, str]
) -> Iterator[str]:
    """What a rank does; `rounds` are its collectives, by the number of the call."""
    yield "init"
    is_waited = [is_communication(name) for name in recording.names]
    at = collections.defaultdict(list)
    for message in messages:
        at[message[0]].append(message)
    waits: list[tuple[int, str]] = []
    last_ns = None
    for i, (begin_ns, end_ns, _, _, call) in enumerate(recording.in_order(rank)):
        now = at.pop(begin_ns, ())
        if not (now or i in rounds or is_waited[call] or last_ns is None):
            continue
        if last_ns is not None and begin_ns > last_ns:
            yield f"compute {(begin_ns - last_ns) * FLOPS_PER_NS}"
        last_ns = max(last_ns or 0, end_ns)
        while waits and waits[0][0] <= begin_ns:
            yield heapq.heappop(waits)[1]
        for _, taken_ns, action, wait in now:
            yield action
            if wait:
                heapq.heappush(waits, (taken_ns, wait))
        if i in rounds:
            yield rounds[i]
    yield from (wait for _, wait in sorted(waits))
    yield "finalize"


def _messages(messages: Messages, rank: int) -> Iterator[Action]:
    """What a rank does for its messages; tags tell messages of two ranks apart."""
    as_sent, as_received = messages.of(rank)
    for sent, received, tag in _both_ends(messages, as_sent):
        (src, _, dst, n_bytes, begin_ns, end_ns), (*_, take_ns, taken_ns) = sent, received
        is_blocking = take_ns <= end_ns
        what, wait = ("send", "") if is_blocking else ("isend", f"wait {src} {dst} {tag}")
        yield begin_ns, taken_ns, f"{what} {dst} {tag} {n_bytes} {BYTE}", wait
    for sent, received, tag in _both_ends(messages, as_received):
        (src, _, _, n_bytes, _, _), (*_, take_ns, taken_ns) = sent, received
        yield take_ns, taken_ns, f"recv {src} {tag} {n_bytes} {BYTE}", ""


def _both_ends(messages: Messages, rows: Ints) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """Both ends of some messages, and the tag of each."""
    tags = (messages.place[rows] % _N_TAGS).tolist()
    return zip(messages.sent.take(rows).rows(), messages.received.take(rows).rows(), tags, strict=True)


def _left_out(recording: Recording) -> list[str]:
    """Messages of which one end is unknown."""
    n_sent, n_both = recording.messages.n_sent, len(recording.messages)
    if n_both == n_sent:
        return []
    return [f"{n_sent - n_both:,} of {n_sent:,} messages are left out: no receive was found for them"]


def _write_platform(recording: Recording, out: str) -> None:
    """Hosts like the nodes of the job, and the host of each rank."""
    nodes = recording.nodes
    n_of = collections.Counter(nodes.values())
    place = {i_node: i for i, i_node in enumerate(sorted(n_of))}
    with outputs.text_file(os.path.join(out, "platform.xml")) as file:
        file.write(_PLATFORM.format(last=len(place) - 1, n_cores=max(n_of.values())))
    with outputs.text_file(os.path.join(out, "hosts.txt")) as file:
        first = next(iter(nodes.values()))
        file.writelines(f"node-{place[nodes.get(rank, first)]}\n" for rank in range(recording.n_ranks))
