"""Programs of ranks from SimGrid's time-independent traces, the input of ``smpirun -replay``.

Each line is ``RANK ACTION arguments``. Actions and their arguments are those of SimGrid 3.32
(``src/smpi/internals/smpi_replay.cpp``).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpicoloc.errors import DataError
from mpicoloc.network.traffic.collective import Collective, Library, Messages, pairwise
from mpicoloc.replay.native import ANY
from mpicoloc.replay.programs.builder import Program, ProgramBuilder, RankPrograms, blocks, of_each

_TYPE_BYTES = (8, 4, 1, 2, 8, 4, 1, 8, 1, 1, 2, 4, 8, 8, 4, 1, 1, 2, 4, 8, 1, 2, 4, 8, 8, 16, 32, 8, 8)
"""Bytes of SimGrid's datatypes by their numbers: MPI_DOUBLE, MPI_INT, MPI_CHAR ..."""
_DOUBLE, _BYTE = 0, 6
_MESSAGES = ("send", "recv", "isend", "irecv")
_IGNORED = {"comm_size", "comm_dup", "comm_split", "location", "finalize"}
_WORLD = 1


@dataclass
class _Action:
    """One line: its words, and its position in the file for error messages."""

    where: str
    name: str
    words: Sequence[str]
    default_type: int

    def check(self, n_ranks: int) -> None:
        """Refuse a line with too few or too many arguments."""
        fewest, most = _n_arguments(self.name, n_ranks)
        if fewest <= len(self.words) <= most:
            return
        needed = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        remedy = (
            ": traces from before SimGrid 3.20 have no tag; convert them with simgrid_convert_TI_traces"
            if self.name in _MESSAGES and len(self.words) < fewest
            else ""
        )
        raise DataError(
            f"{self.where}: {self.name} has {len(self.words)} arguments, but takes {needed}{remedy}"
        )

    def number(self, i: int) -> int:
        """Argument `i`, an integer of at least -1."""
        try:
            value = float(self.words[i])
        except IndexError:
            raise DataError(f"{self.where}: {self.name} lacks its argument {i + 1}") from None
        except ValueError:
            value = float("nan")
        if not value >= -1 or value != int(value):
            raise DataError(f"{self.where}: {self.words[i]!r} is not a whole number")
        return int(value)

    def amount(self, i: int, what: str) -> float:
        """Argument `i`, a number of at least 0."""
        try:
            value = float(self.words[i])
        except (IndexError, ValueError):
            value = float("nan")
        if not 0 <= value < float("inf"):
            raise DataError(f"{self.where}: {self.name} needs {what}")
        return value

    def type_bytes(self, i: int) -> int:
        """Size of the datatype in argument `i`; if there is no such argument, of the trace's default type."""
        number = self.number(i) if i < len(self.words) else self.default_type
        if not 0 <= number < len(_TYPE_BYTES):
            raise DataError(
                f"{self.where}: datatype {number} is unknown: give one from 0 to {len(_TYPE_BYTES) - 1}"
            )
        return _TYPE_BYTES[number]


@dataclass
class _Rank:
    """The state of a rank during reading."""

    actions: list[_Action] = field(default_factory=list)
    default_type: int = _BYTE


def programs(
    name: str,
    lines: Iterable[tuple[str, str]],
    flops_per_s: float,
    library: Library,
    cpu_speed: float = 1.0,
) -> RankPrograms:
    """Programs of the ranks of a trace.

    Raises `DataError` if a line is malformed, a rank is missing, or the ranks do not call the same
    collectives.
    """
    ranks = _read(lines)
    for rank in ranks:
        for action in rank.actions:
            action.check(len(ranks))
    collectives = [[action for action in rank.actions if action.name in _COLLECTIVES] for rank in ranks]
    _check_alike(collectives)
    made = _blocks(collectives, library)
    rank_programs = []
    for i, rank in enumerate(ranks):
        writer = _Writer(i, len(ranks), flops_per_s * cpu_speed)
        own = iter([members[i] for members in made])
        for action in rank.actions:
            writer.add(action, own)
        rank_programs.append(writer.build())
    return of_each(name, rank_programs)


def _read(lines: Iterable[tuple[str, str]]) -> list[_Rank]:
    ranks: defaultdict[int, _Rank] = defaultdict(_Rank)
    for where, line in lines:
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        number = words[0].removeprefix("p")
        if not (number.isascii() and number.isdigit()) or len(words) < 2:
            raise DataError(
                f"{where}: {line.strip()[:60]!r} is not an action of a rank: expected RANK ACTION ARGUMENTS"
            )
        rank = ranks[int(number)]
        action = _Action(where, words[1].lower(), words[2:], rank.default_type)
        if action.name == "init":
            rank.default_type = _DOUBLE if action.words else _BYTE
        elif action.name not in _IGNORED:
            rank.actions.append(action)
    if not ranks:
        raise DataError("the trace has no action in it")
    missing = next((i for i in range(max(ranks) + 1) if i not in ranks), None)
    if missing is not None:
        raise DataError(
            f"the trace has ranks up to {max(ranks)}, but no line of rank {missing}: give all files"
        )
    return [ranks[i] for i in range(len(ranks))]


_N_ARGUMENTS = {
    **dict.fromkeys(_MESSAGES, (3, 4)),
    **dict.fromkeys(("compute", "sleep"), (1, 1)),
    **dict.fromkeys(("wait", "test"), (3, 3)),
    "sendrecv": (4, 6),
    "bcast": (1, 3),
    "reduce": (2, 4),
    **dict.fromkeys(("allreduce", "scan", "exscan"), (2, 3)),
    **dict.fromkeys(("alltoall", "allgather"), (2, 4)),
    **dict.fromkeys(("gather", "scatter"), (2, 5)),
}
"""Least and largest number of arguments of an action, if they do not depend on the number of ranks."""


def _n_arguments(name: str, n_ranks: int) -> tuple[int, int]:
    of_vectors = {
        **dict.fromkeys(("gatherv", "scatterv"), (n_ranks + 1, n_ranks + 4)),
        "allgatherv": (n_ranks + 1, 2 * n_ranks + 3),
        "reducescatter": (n_ranks + 1, n_ranks + 2),
        "alltoallv": (2 * n_ranks + 2, 2 * n_ranks + 4),
    }
    return _N_ARGUMENTS.get(name) or of_vectors.get(name, (0, 1 << 30))


class _Writer:
    """Writes the program of one rank."""

    def __init__(self, rank: int, n_ranks: int, flops_per_s: float) -> None:
        self._rank, self._n_ranks, self._flops_per_s = rank, n_ranks, flops_per_s
        self._builder = ProgramBuilder()
        self._open: defaultdict[tuple[int, int, int], deque[int]] = defaultdict(deque)
        self._actions: Mapping[str, Callable[[_Action], None]] = {
            "compute": lambda action: self._compute_flops(action, 0),
            "sleep": lambda action: self._builder.compute(
                round(action.amount(0, "a number of seconds") * 1e9)
            ),
            "send": lambda action: self._builder.send(*self._message(action)),
            "recv": lambda action: self._builder.recv(*self._message(action)),
            "isend": lambda action: self._begin(action, is_send=True),
            "irecv": lambda action: self._begin(action, is_send=False),
            "sendrecv": self._sendrecv,
            "wait": self._wait,
            "waitall": lambda action: self._wait_all(),
            "test": lambda action: None,  # the trace lacks the test's result, but a wait follows
        }

    def build(self) -> Program:
        """The program, which at its end waits for all open requests."""
        self._wait_all()
        return self._builder.build()

    def add(self, action: _Action, collectives: Any) -> None:
        """Add the operations of a line; `collectives` yields the operations of the next collective."""
        if (add := self._actions.get(action.name)) is not None:
            add(action)
        elif action.name in _COLLECTIVES:
            self._builder.extend(next(collectives))
            if action.name in _COMPUTED:
                self._compute_flops(action, _COMPUTED[action.name](self._n_ranks))
        else:
            raise DataError(f"{action.where}: action {action.name!r} is unknown or cannot be replayed")

    def _compute_flops(self, action: _Action, i: int) -> None:
        flops = action.amount(i, f"a number of flops as its argument {i + 1}")
        self._builder.compute(round(flops / self._flops_per_s * 1e9))

    def _peer(self, action: _Action) -> int:
        peer = action.number(0)
        if not ANY <= peer < self._n_ranks:
            raise DataError(f"{action.where}: there is no rank {peer}: the trace has {self._n_ranks} ranks")
        return peer

    def _message(self, action: _Action) -> tuple[int, int, int]:
        return self._peer(action), max(action.number(2), 0) * action.type_bytes(3), action.number(1)

    def _begin(self, action: _Action, is_send: bool) -> None:
        peer, n_bytes, tag = self._message(action)
        begin = self._builder.isend if is_send else self._builder.irecv
        key = (self._rank, peer, tag) if is_send else (peer, self._rank, tag)
        self._open[key].append(begin(peer, n_bytes, tag))

    def _sendrecv(self, action: _Action) -> None:
        sent, dst, taken, src = (action.number(i) for i in range(4))
        with self._builder.call("MPI_Sendrecv"):
            requests = [
                self._builder.irecv(src, taken * action.type_bytes(5)),
                self._builder.isend(dst, sent * action.type_bytes(4)),
            ]
            self._builder.wait_all(requests)

    def _wait(self, action: _Action) -> None:
        key = (action.number(0), action.number(1), action.number(2))
        if not self._open[key]:
            raise DataError(
                f"{action.where}: rank {self._rank} waits for a message from {key[0]} to {key[1]} with tag "
                f"{key[2]}, but has started no such send or receive"
            )
        self._builder.wait_all([self._open[key].popleft()])

    def _wait_all(self) -> None:
        self._builder.wait_all([slot for slots in self._open.values() for slot in slots])
        self._open.clear()


def _check_alike(collectives: Sequence[Sequence[_Action]]) -> None:
    n = min(map(len, collectives))
    for rank, own in enumerate(collectives):
        for action, first in zip(own, collectives[0], strict=False):
            if action.name != first.name:
                raise DataError(
                    f"{action.where}: rank {rank} calls {action.name} where rank 0 calls {first.name} "
                    f"({first.where}): in this format, all ranks call the same collectives"
                )
        if len(own) > n:
            raise DataError(
                f"{own[n].where}: rank {rank} calls {own[n].name}, but other ranks do not: give the "
                "complete trace"
            )


def _blocks(collectives: Sequence[Sequence[_Action]], library: Library) -> list[Sequence[Program]]:
    """Operations of each rank, for each collective."""
    members = np.arange(len(collectives))
    known: dict[Any, Sequence[Program]] = {}
    blocks_of_call = []
    for actions in zip(*collectives, strict=True):
        key = (
            actions[0].name,
            tuple(tuple(action.words) for action in actions)
            if any(action.words != actions[0].words for action in actions)
            else tuple(actions[0].words),
        )
        if key not in known:
            made = _COLLECTIVES[actions[0].name](actions)
            messages = made if isinstance(made, Messages) else library.messages(made)
            known[key] = blocks(messages, members, _WORLD, key[0].replace("reducescatter", "reduce_scatter"))
        blocks_of_call.append(known[key])
    return blocks_of_call


def _call(
    actions: Sequence[_Action],
    size: int | Sequence[int],
    type_: int,
    root: int | None = None,
    name: str | None = None,
) -> Collective:
    """A collective from the arguments of rank 0; `size`: index of an argument, or the size of each part."""
    first = actions[0]
    i_root = first.number(root) if root is not None and root < len(first.words) else 0
    if not 0 <= i_root < len(actions):
        raise DataError(f"{first.where}: there is no rank {i_root}: the trace has {len(actions)} ranks")
    n_items, counts = (first.number(size), None) if isinstance(size, int) else (0, np.array(size, np.int64))
    return Collective(name or first.name, len(actions), n_items, first.type_bytes(type_), i_root, counts)


def _sizes(actions: Sequence[_Action], i: int) -> list[int]:
    """Argument `i` of each rank."""
    return [action.number(i) for action in actions]


def _alltoallv(actions: Sequence[_Action]) -> Messages:
    """A message for each part that is not empty."""
    p = len(actions)
    counts = np.array(
        [[action.number(1 + i) * action.type_bytes(2 + 2 * p) for i in range(p)] for action in actions]
    )
    return pairwise(counts)


_Made = Callable[[Sequence[_Action]], Collective | Messages]
_COLLECTIVES: Mapping[str, _Made] = {
    "barrier": lambda actions: Collective("barrier", len(actions)),
    "bcast": lambda actions: _call(actions, 0, 2, 1),
    "reduce": lambda actions: _call(actions, 0, 3, 2),
    "allreduce": lambda actions: _call(actions, 0, 2),
    "scan": lambda actions: _call(actions, 0, 2),
    "exscan": lambda actions: _call(actions, 0, 2),
    "alltoall": lambda actions: _call(actions, 0, 2),
    "alltoallv": _alltoallv,
    "gather": lambda actions: _call(actions, 0, 3, 2),
    "scatter": lambda actions: _call(actions, 0, 3, 2),
    "gatherv": lambda actions: _call(actions, _sizes(actions, 0), 2 + len(actions), 1 + len(actions)),
    "scatterv": lambda actions: _call(
        actions, _sizes(actions, len(actions)), 2 + len(actions), 1 + len(actions)
    ),
    "allgather": lambda actions: _call(actions, 0, 2),
    "allgatherv": lambda actions: _call(actions, _sizes(actions, 0), 1 + len(actions)),
    "reducescatter": lambda actions: _call(
        actions,
        [actions[0].number(i) for i in range(len(actions))],
        1 + len(actions),
        name="reduce_scatter",
    ),
}
_COMPUTED: Mapping[str, Callable[[int], int]] = {
    **dict.fromkeys(("reduce", "allreduce", "scan", "exscan"), lambda p: 1),
    "reducescatter": lambda p: p,
}
"""Index of the argument with the flops of a reduction, as a function of the number of ranks."""
