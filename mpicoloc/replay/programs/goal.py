"""Programs of ranks from GOAL texts, the input of LogGOPSim and ATLAHS.

A rank is a graph of operations: ``calc T``, ``send Nb to R tag T`` and ``recv Nb from R tag T``, each on a
processor (``cpu N``). Lines ``a requires b`` (b must have ended) and ``a irequires b`` (b must have begun)
refer to labels of operations. Times are in ns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from mpicoloc.errors import DataError
from mpicoloc.replay.native import Operation
from mpicoloc.replay.programs.builder import Program, ProgramBuilder, RankPrograms, of_each

_HEAD = re.compile(r"num_ranks\s+(\d{1,9})")
_RANK = re.compile(r"rank\s+(\d{1,9})\s*\{")
_OPERATION = re.compile(
    r"(?:(?P<label>\w+)\s*:\s*)?(?:calc\s+(?P<calc>\d{1,18})|(?P<what>send|recv)\s+(?P<bytes>\d{1,18})b?"
    r"\s+(?:to|from)\s+(?P<peer>\d{1,9})(?:\s+tag\s+(?P<tag>\d{1,10}))?)(?P<places>(?:\s+(?:cpu|nic)\s+\d{1,18})*)"
)
_MAX_TAG = 2**31 - 1
_PLACE = re.compile(r"(cpu|nic)\s+(\d+)")
_NEEDS = re.compile(r"(\w+)\s+(i?requires)\s+(\w+)")


@dataclass
class _Node:
    """An operation, its position in the text, and the operations that require its end or start."""

    kind: Operation
    peer: int
    value: int
    tag: int
    where: str
    cpu: int
    after_end: list[int] = field(default_factory=list)
    after_begin: list[int] = field(default_factory=list)


@dataclass
class _Graph:
    nodes: list[_Node] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    cpus: dict[int, int] = field(default_factory=dict)
    nic: int | None = None


def programs(name: str, lines: Iterable[tuple[str, str]], cpu_speed: float = 1.0) -> RankPrograms:
    """Programs of the ranks of a GOAL text.

    Raises `DataError` if a line is malformed, a rank is missing or appears twice, or operations of a rank
    require each other.
    """
    n_ranks, graphs = _read(lines)
    missing = next((rank for rank in range(n_ranks) if rank not in graphs), None)
    if missing is not None:
        raise DataError(f"rank {missing} is missing, though num_ranks is {n_ranks}")
    return of_each(name, [_program(graphs[rank], cpu_speed) for rank in range(n_ranks)])


def _read(lines: Iterable[tuple[str, str]]) -> tuple[int, dict[int, _Graph]]:
    n_ranks: int | None = None
    graphs: dict[int, _Graph] = {}
    graph: _Graph | None = None
    for where, line in lines:
        text = re.sub(r"(#|//).*", "", line).strip().rstrip(";").strip()
        if not text:
            continue
        if (head := _HEAD.fullmatch(text)) is not None:
            n_ranks = int(head[1])
        elif (rank := _RANK.fullmatch(text)) is not None and graph is None:
            number = int(rank[1])
            if n_ranks is None or number >= n_ranks or number in graphs:
                raise DataError(
                    f"{where}: rank {number} is defined twice, or is not below num_ranks ({n_ranks})"
                )
            graph = graphs[number] = _Graph()
        elif text == "}" and graph is not None:
            graph = None
        elif graph is not None and n_ranks is not None:
            _add(graph, text, where, n_ranks)
        else:
            raise DataError(
                f"{where}: {text[:60]!r} is not a line of GOAL: expected 'num_ranks N' or 'rank R {{'"
            )
    if n_ranks is None:
        raise DataError("the text has no line 'num_ranks N': it is not GOAL")
    return n_ranks, graphs


def _add(graph: _Graph, text: str, where: str, n_ranks: int) -> None:
    if (needs := _NEEDS.fullmatch(text)) is not None:
        for label in (needs[1], needs[3]):
            if label not in graph.labels:
                raise DataError(f"{where}: no operation {label!r} is defined before this line in this rank")
        later, node = graph.labels[needs[1]], graph.nodes[graph.labels[needs[3]]]
        (node.after_end if needs[2] == "requires" else node.after_begin).append(later)
        return
    match = _OPERATION.fullmatch(text)
    if match is None:
        raise DataError(f"{where}: {text[:60]!r} is not an operation of GOAL: expected calc, send or recv")
    places = {kind: int(number) for kind, number in _PLACE.findall(match["places"])}
    cpu = graph.cpus.setdefault(places.get("cpu", 0), len(graph.cpus))
    nic = places.get("nic", 0)
    graph.nic = nic if graph.nic is None else graph.nic
    if graph.nic != nic:
        raise DataError(
            f"{where}: this rank uses nic {nic} and nic {graph.nic}, but simulated hosts have one network "
            "interface: give each interface a rank of its own"
        )
    if match["label"]:
        graph.labels[match["label"]] = len(graph.nodes)
    if match["calc"] is not None:
        graph.nodes.append(_Node(Operation.COMPUTE, 0, int(match["calc"]), 0, where, cpu))
        return
    if int(match["peer"]) >= n_ranks:
        raise DataError(f"{where}: there is no rank {match['peer']}: num_ranks is {n_ranks}")
    kind = Operation.SEND if match["what"] == "send" else Operation.RECV
    peer, n_bytes, tag = int(match["peer"]), int(match["bytes"]), int(match["tag"] or 0)
    if tag > _MAX_TAG:
        raise DataError(f"{where}: tag {tag} is above {_MAX_TAG}: give the messages lower tags")
    graph.nodes.append(_Node(kind, peer, n_bytes, tag, where, cpu))


def _program(graph: _Graph, cpu_speed: float) -> Program:
    """The operations in the order of the text, each followed by the list of operations that require it."""
    _check_order(graph)
    builder = ProgramBuilder()
    if not graph.nodes:
        return builder.build()
    rows, n_rows = [], 1
    for node in graph.nodes:
        rows.append(n_rows)
        n_rows += 1 + len(node.after_end) + len(node.after_begin)
    builder.raw(Operation.GRAPH, n=len(graph.cpus))
    for node in graph.nodes:
        value = round(node.value / cpu_speed) if node.kind == Operation.COMPUTE else node.value
        builder.raw(node.kind, peer=node.peer, tag=node.tag, request=node.cpu, value=value)
        for is_begin, followers in enumerate((node.after_end, node.after_begin)):
            for later in followers:
                builder.raw(Operation.THEN, request=rows[later], n=is_begin)
    return builder.build()


def _check_order(graph: _Graph) -> None:
    """Refuse operations that require each other."""
    sorter = TopologicalSorter({i: (*one.after_end, *one.after_begin) for i, one in enumerate(graph.nodes)})
    try:
        sorter.prepare()
    except CycleError as error:
        where = graph.nodes[min(error.args[1])].where
        raise DataError(
            f"{where}: this operation is in a cycle of dependencies: remove one of them"
        ) from None
