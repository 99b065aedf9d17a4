"""Programs of ranks from GOAL texts, which LogGOPSim and ATLAHS simulate.

A rank is a graph of operations: ``calc T``, ``send Nb to R tag T`` and ``recv Nb from R tag T``, with labels
and lines ``a requires b`` (b must have ended) and ``a irequires b`` (b must have begun). Times are ns. A
program runs them in an order that keeps the graph: what needs no wait comes first, so only waits that the
graph has remain.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from mpicoloc.errors import DataError
from mpicoloc.replay.programs.builder import Program, ProgramBuilder, RankPrograms, of_each

_HEAD = re.compile(r"num_ranks\s+(\d{1,9})")
_RANK = re.compile(r"rank\s+(\d{1,9})\s*\{")
_OPERATION = re.compile(
    r"(?:(?P<label>\w+)\s*:\s*)?(?:calc\s+(?P<calc>\d{1,18})|(?P<what>send|recv)\s+(?P<bytes>\d{1,18})b?"
    r"\s+(?:to|from)\s+(?P<peer>\d{1,9})(?:\s+tag\s+(?P<tag>\d{1,10}))?)(?P<places>(?:\s+(?:cpu|nic)\s+\d+)*)"
)
_PLACE = re.compile(r"(cpu|nic)\s+(\d+)")
_NEEDS = re.compile(r"(\w+)\s+(i?requires)\s+(\w+)")


@dataclass
class _Node:
    """An operation, where it stands, and what must have ended or begun before it."""

    kind: str
    peer: int
    value: int
    tag: int
    where: str
    after_end: list[int] = field(default_factory=list)
    after_begin: list[int] = field(default_factory=list)


@dataclass
class _Graph:
    nodes: list[_Node] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


def programs(name: str, lines: Iterable[tuple[str, str]], cpu_speed: float = 1.0) -> RankPrograms:
    """Programs of the ranks of a GOAL text.

    Raises `DataError` if a line is wrong, a rank is missing or twice there, or operations of a rank need each
    other.
    """
    n_ranks, graphs = _read(lines)
    missing = next((rank for rank in range(n_ranks) if rank not in graphs), None)
    if missing is not None:
        raise DataError(f"the text has no rank {missing}, of num_ranks {n_ranks}")
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
                raise DataError(f"{where}: rank {number} is there twice, or not below num_ranks ({n_ranks})")
            graph = graphs[number] = _Graph()
        elif text == "}" and graph is not None:
            graph = None
        elif graph is not None and n_ranks is not None:
            _add(graph, text, where, n_ranks)
        else:
            raise DataError(
                f"{where}: {text[:60]!r} is no line of GOAL: it has 'num_ranks N' and 'rank R {{'"
            )
    if n_ranks is None:
        raise DataError("the text has no line 'num_ranks N': it is no GOAL")
    return n_ranks, graphs


def _add(graph: _Graph, text: str, where: str, n_ranks: int) -> None:
    if (needs := _NEEDS.fullmatch(text)) is not None:
        for label in (needs[1], needs[3]):
            if label not in graph.labels:
                raise DataError(f"{where}: there is no operation {label!r} above in this rank")
        node, before = graph.nodes[graph.labels[needs[1]]], graph.labels[needs[3]]
        (node.after_end if needs[2] == "requires" else node.after_begin).append(before)
        return
    match = _OPERATION.fullmatch(text)
    if match is None:
        raise DataError(f"{where}: {text[:60]!r} is no operation of GOAL: calc, send or recv")
    _check_place(graph, dict(_PLACE.findall(match["places"])), where)
    if match["label"]:
        graph.labels[match["label"]] = len(graph.nodes)
    if match["calc"] is not None:
        graph.nodes.append(_Node("calc", 0, int(match["calc"]), 0, where))
        return
    if int(match["peer"]) >= n_ranks:
        raise DataError(f"{where}: there is no rank {match['peer']}: num_ranks is {n_ranks}")
    graph.nodes.append(
        _Node(match["what"], int(match["peer"]), int(match["bytes"]), int(match["tag"] or 0), where)
    )


def _check_place(graph: _Graph, given: dict[str, str], where: str) -> None:
    """Refuse a rank with several processors or interfaces, whose operations would run side by side."""
    for kind in ("cpu", "nic"):
        number = given.get(kind, "0")
        if int(graph.places.setdefault(kind, number)) != int(number):
            raise DataError(
                f"{where}: {kind} {number} in a rank with {kind} {graph.places[kind]}: operations of a rank "
                "run one after the other here; give each of its processors a rank of its own"
            )


def _program(graph: _Graph, cpu_speed: float) -> Program:
    """The operations in an order that keeps what they need."""
    builder = ProgramBuilder()
    requests: dict[int, int] = {}
    for i in _order(graph):
        node = graph.nodes[i]
        builder.wait_all([requests.pop(j) for j in dict.fromkeys(node.after_end) if j in requests])
        if node.kind == "calc":
            builder.compute(round(node.value / cpu_speed))
        else:
            begin = builder.isend if node.kind == "send" else builder.irecv
            requests[i] = begin(node.peer, node.value, node.tag)
    builder.wait_all([*requests.values()])
    return builder.build()


def _order(graph: _Graph) -> list[int]:
    """Numbers of the operations: first those that need no wait, receives before sends before computation."""
    nodes = graph.nodes
    sorter = TopologicalSorter({i: (*one.after_end, *one.after_begin) for i, one in enumerate(nodes)})
    try:
        sorter.prepare()
    except CycleError as error:
        where = nodes[min(error.args[1])].where
        raise DataError(f"{where}: this operation needs one that needs it: no order keeps both") from None
    waited: set[int] = set()
    ready: list[tuple[tuple[bool, int], int]] = []
    order = []
    while sorter.is_active():
        for i in sorter.get_ready():
            heapq.heappush(ready, (_key(nodes[i], waited), i))
        key, i = heapq.heappop(ready)
        if (now := _key(nodes[i], waited)) != key:
            heapq.heappush(ready, (now, i))
            continue
        order.append(i)
        waited.update(nodes[i].after_end)
        if nodes[i].kind == "calc":
            waited.add(i)
        sorter.done(i)
    return order


def _key(node: _Node, waited: set[int]) -> tuple[bool, int]:
    must_wait = any(before not in waited for before in node.after_end)
    return must_wait, ("recv", "send", "calc").index(node.kind)
