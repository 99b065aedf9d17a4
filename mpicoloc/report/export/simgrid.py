"""Time-independent traces, which SimGrid's ``smpirun -replay`` runs on any platform.

What a rank did between its messages and collectives becomes a computation of as many flops as a processor of
1 Gflop/s does in that time. A receive is replayed where it was completed, and a send blocks only if its
receive had begun before it ended: so what a replay waits for has always begun earlier in the recorded run.
"""

from __future__ import annotations

import collections
import heapq
import os
from collections.abc import Iterator, Mapping, Sequence

from mpicoloc.profile.frames import Frames
from mpicoloc.profile.recording import calls
from mpicoloc.profile.recording.calls import Recording
from mpicoloc.profile.recording.functions import is_communication
from mpicoloc.profile.recording.messages import Ints, Messages
from mpicoloc.report.export import outputs
from mpicoloc.report.export.simgrid_collectives import BYTE, Collectives

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

    Returns
    -------
    list of str
        What is left out, in words.
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
