"""What each rank does in a collective: the messages of an algorithm, in the order that they depend on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from mpicoloc.core.profile import Array
from mpicoloc.errors import UsageError
from mpicoloc.network.traffic import mpich, openmpi
from mpicoloc.network.traffic.collective import Collective, Library, Messages
from mpicoloc.replay.programs.builder import Program, ProgramBuilder

_Row = tuple[Array, Array, Array, Array]


def blocks(messages: Messages, members: Array, comm: int) -> list[Program]:
    """Operations of each member of a collective.

    Messages that were added at once are one round. Where they form a tree, a rank receives before it sends;
    else it does both at the same time and waits for both.

    Shapes: `members` (n_ranks,). Result: one for each rank of the communicator; requests are numbered from 0.

    The time that a reduction takes to add numbers is no part of it.
    """
    builders = [ProgramBuilder() for _ in members]
    for row in messages.rows:
        for part in _of_equal_numbers(row):
            _add_round(part, members, comm, builders)
    return [builder.build() for builder in builders]


def _of_equal_numbers(row: _Row) -> list[_Row]:
    """The messages of a round, those apart that are sent more often than others."""
    src, dst, n_bytes, n = row
    is_sent = (src != dst) & (n > 0)
    numbers = np.unique(n[is_sent])
    chosen = [is_sent & (n == k) for k in numbers]
    return [(src[rows], dst[rows], n_bytes[rows], n[rows]) for rows in chosen]


def _add_round(row: _Row, members: Array, comm: int, builders: Sequence[ProgramBuilder]) -> None:
    """Add messages that are all sent `n` times, each rank's in a loop."""
    src, dst, n_bytes, n = row
    n_times = int(n[0])
    after = _descendants(src, dst, len(members))
    is_ordered = after is not None
    # A rank serves the largest subtree first, as all libraries do.
    order = np.argsort(-after[dst], kind="stable") if after is not None else np.arange(len(src))
    out: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    into: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for i in order.tolist():
        out[int(src[i])].append((int(members[dst[i]]), int(n_bytes[i])))
        into[int(dst[i])].append((int(members[src[i]]), int(n_bytes[i])))
    for rank in sorted({*out, *into}):
        _add_rank(builders[rank], (into[rank], out[rank]), n_times, comm, is_ordered)


def _add_rank(
    builder: ProgramBuilder,
    ends: tuple[list[tuple[int, int]], list[tuple[int, int]]],
    n_times: int,
    comm: int,
    is_ordered: bool,
) -> None:
    """Receives and sends of one rank in one round; bytes that do not divide are in its first message."""
    into, out = ends
    rests = [[(peer, size // n_times + size % n_times) for peer, size in side] for side in ends]
    _exchange(builder, rests[0], rests[1], comm, is_ordered)
    if n_times > 1:
        parts = [[(peer, size // n_times) for peer, size in side] for side in (into, out)]
        with builder.loop(n_times - 1):
            _exchange(builder, parts[0], parts[1], comm, is_ordered)


def _exchange(
    builder: ProgramBuilder,
    into: Sequence[tuple[int, int]],
    out: Sequence[tuple[int, int]],
    comm: int,
    is_ordered: bool,
) -> None:
    if is_ordered and len(into) == 1:
        builder.recv(*into[0], comm=comm)
        into = ()
    if is_ordered and not into and len(out) == 1:
        builder.send(*out[0], comm=comm)
        return
    requests = [builder.irecv(peer, size, comm=comm) for peer, size in into]
    if is_ordered:
        builder.wait_all(requests)
        requests = []
    requests += [builder.isend(peer, size, comm=comm) for peer, size in out]
    builder.wait_all(requests)


def _descendants(src: Array, dst: Array, p: int) -> Array | None:
    """How many ranks get what passes through each rank, or None if the messages close a cycle."""
    receivers: defaultdict[int, list[int]] = defaultdict(list)
    for sender, receiver in zip(src.tolist(), dst.tolist(), strict=True):
        receivers[sender].append(receiver)
    n_served = np.ones(p, np.int64)
    try:
        for rank in TopologicalSorter(receivers).static_order():
            n_served[rank] += n_served[receivers.get(rank, [])].sum()
    except CycleError:
        return None
    return n_served


class Chosen:
    """A library whose algorithms a user has chosen for some collectives.

    Parameters
    ----------
    library : Library
        What decides on all others.
    choices : mapping of str to str
        Algorithm of collectives, by the names of `algorithms`.

    Raises
    ------
    UsageError
        If there is no such algorithm.
    """

    def __init__(self, library: Library, choices: Mapping[str, str]) -> None:
        self._library = library
        self._chosen = {}
        for name, algorithm in choices.items():
            known = algorithms(name)
            if algorithm not in known:
                what = f"algorithms of {name} are" if known else "collectives with algorithms are"
                words = ", ".join(known or sorted(_names()))
                raise UsageError(f"--algorithm {name}={algorithm}: {what} {words}")
            self._chosen[name] = known[algorithm]

    def messages(self, call: Collective) -> Messages:
        """Messages of the call by the algorithm that was chosen, or as the library sends them."""
        algorithm = self._chosen.get(call.name)
        has_bytes = call.name == "barrier" or call.parts.sum() * call.item_bytes > 0
        if algorithm is None or call.n_ranks < 2 or not has_bytes:
            return self._library.messages(call)
        return algorithm(call, self._library)

    def is_exchange(self, call: Collective) -> bool:
        """Whether each rank sends a message of the same size to each other rank."""
        return call.name not in self._chosen and self._library.is_exchange(call)


def _names() -> set[str]:
    """Collectives of which algorithms are known."""
    return {words.split(" ", 1)[0] for words in mpich.ALGORITHMS} | set(openmpi.ALGORITHMS)


def algorithms(name: str) -> dict[str, Any]:
    """Algorithms of a collective by their names: MPICH's, and Open MPI's as ``openmpi-N``."""
    of_mpich = {
        words.split(" ", 1)[1].replace(", ", "-"): algorithm
        for words, algorithm in mpich.ALGORITHMS.items()
        if words.startswith(f"{name} ")
    }
    of_openmpi = openmpi.ALGORITHMS.get(name, {})
    return of_mpich | {f"openmpi-{number}": algorithm for number, algorithm in of_openmpi.items()}
