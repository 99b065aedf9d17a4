"""InfiniBand: the output of ``ibnetdiscover`` as a graph, and an XGFT in the same form for ``ibsim``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from mpicoloc.core.topology import Topology
from mpicoloc.errors import DataError
from mpicoloc.network.topology import xgft
from mpicoloc.network.topology.fabric import Graph
from mpicoloc.network.topology.xgft import shown

LANE_GBIT = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 14.0625 * 64 / 66,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""Data rate of one lane, Gbit/s, without the overhead of the line's encoding."""

_NODE = re.compile(r'(Switch|Ca|Hca|Rt)\s+[0-9]{1,4}\s+"([^"]+)"\s*(?:#\s*(.*))?')
_LINK = re.compile(
    r"\[([0-9]{1,4})\](?:\[ext [^\]]*\])?(?:\(([0-9a-fA-F]*)\))?\s+"
    r'"([^"]+)"\[([0-9]{1,4})\](?:\[ext [^\]]*\])?(?:\([0-9a-fA-F]*\))?\s*(?:#\s*(.*))?'
)
_HEAD = re.compile(r'(Switch|H?[Cc]a|Rt)\s+[0-9]+\s+"')
_FACT = re.compile(r"[A-Za-z]+=\S*")
_RATE = re.compile(r"\b([0-9]{1,2})x([A-Z]+[0-9]*)\b")
_ASIDE = re.compile(
    r"Non-Chassis Nodes|Chassis [0-9]+( \(guid .*\))?|DR path .*"
    r"|(src/)?\w+\.c:[0-9]+; .*|ib(warn|panic|error): .*"
)
"""Headings of ``--grouping``, progress of ``--show``, and errors of single requests in between."""
_QUOTED = re.compile(r'"([^"]*)"')
_IN_SWITCH = "Aggregation Node"


@dataclass
class _Node:
    kind: str
    line: int
    title: str
    links: dict[int, tuple[str, int, float | None]] = field(default_factory=dict)
    port_guids: list[str] = field(default_factory=list)


def is_output(text: str) -> bool:
    """Whether a text looks like the output of ``ibnetdiscover``."""
    return any(_HEAD.match(line.strip()) for line in text.split("\n"))


@dataclass(frozen=True)
class Wiring:
    """What leads where, and the names of nodes by what other tools print of them.

    Parameters
    ----------
    neighbours : mapping of (str, int) to str
        Name of the node at the other end of each port, by the names that `parse` gives users.
    by_title, by_guid : mapping of str to str
        Name of each node by its description, if no other has it, and by the 16 digits of its GUID or of
        one of its ports'.
    """

    neighbours: Mapping[tuple[str, int], str]
    by_title: Mapping[str, str]
    by_guid: Mapping[str, str]

    def name(self, title: str, guid: str) -> str:
        """Name of a node with this description, or else GUID; "" of an unknown one."""
        return self.by_title.get(title) or self.by_guid.get(guid.removeprefix("0x").lower().zfill(16), "")


def wiring(text: str, source: str) -> Wiring:
    """Ports and names of a fabric; parameters and errors as of `parse`."""
    nodes = _nodes(text, source)
    labels = _labels(nodes)
    titles = Counter(node.title or name for name, node in nodes.items())
    return Wiring(
        {
            (labels.get(name, name), port): labels.get(other, other)
            for name, node in nodes.items()
            for port, (other, _, _) in node.links.items()
        },
        {
            title: labels.get(name, name)
            for name, node in nodes.items()
            if titles[title := node.title or name] == 1
        },
        {
            guid.lower().zfill(16): labels.get(name, name)
            for name, guid in (
                *((name, name[-16:]) for name in nodes),
                *((name, guid) for name, node in nodes.items() for guid in node.port_guids),
            )
        },
    )


def parse(text: str, source: str) -> Graph:
    """Switches and hosts (channel adapters) of a fabric.

    A host's name is the first word of its description if no other host has it, else the whole description if
    that is unique, else its GUID. Reduction units inside switches are left out.

    Raises `DataError` with the line, if the text cannot be read, is cut off or contradicts itself.
    """
    nodes = _nodes(text, source)
    for name in [name for name, node in nodes.items() if node.kind != "Switch" and _IN_SWITCH in node.title]:
        for other, port, _ in nodes.pop(name).links.values():
            if other in nodes:
                nodes[other].links.pop(port, None)
    hosts = tuple(name for name, node in nodes.items() if node.kind != "Switch" and node.links)
    ports = {}
    for name, node in nodes.items():
        _check_both_ends(nodes, name, source)
        if node.links:
            ports[name] = tuple((node.links[port][0], node.links[port][2]) for port in sorted(node.links))
    return Graph(hosts, ports, _labels(nodes))


def _nodes(text: str, source: str) -> dict[str, _Node]:
    nodes: dict[str, _Node] = {}
    node: _Node | None = None
    for number, line in enumerate(text.split("\n"), 1):
        line, where = line.strip(), f"{source}, line {number}"
        if not line:
            node = None
        elif head := _NODE.fullmatch(line):
            title = _QUOTED.search(head.group(3) or "")
            node = _Node(head.group(1), number, title.group(1) if title else "")
            if head.group(2) in nodes:
                raise DataError(f"{where}: node {shown(head.group(2))} is described twice: two outputs?")
            nodes[head.group(2)] = node
        elif link := _LINK.fullmatch(line):
            if node is None:
                raise DataError(f"{where}: a link before any node: the beginning of the output is missing")
            port = int(link.group(1))
            if port in node.links:
                raise DataError(f"{where}: port {port} is described twice")
            own_guid, other, other_port, comment = link.group(2, 3, 4, 5)
            node.links[port] = (other, int(other_port), _rate_bps(comment or "", where))
            if own_guid:
                node.port_guids.append(own_guid)
        elif not (line.startswith("#") or _ASIDE.fullmatch(line) or _FACT.fullmatch(line.split("(")[0])):
            raise DataError(f"{where}: {shown(line)} is no line of ibnetdiscover, or cut off: run it again")
    if not nodes:
        raise DataError(f"{source}: no line with Switch or Ca: is it what ibnetdiscover printed?")
    return nodes


def _rate_bps(comment: str, where: str) -> float | None:
    rate = _RATE.search(_QUOTED.sub("", comment))
    if not rate:
        return None
    width, speed = int(rate.group(1)), LANE_GBIT.get(rate.group(2))
    if not width or speed is None:
        raise DataError(f"{where}: link speed {shown(rate.group())} is none of {', '.join(LANE_GBIT)}")
    return width * speed * 1e9 / 8


def _check_both_ends(nodes: dict[str, _Node], name: str, source: str) -> None:
    """Check that each link is listed at both of its ends, which it is unless the output was cut off."""
    for port, (other, other_port, _) in nodes[name].links.items():
        back = nodes[other].links.get(other_port) if other in nodes else None
        if back is None or back[:2] != (name, port):
            raise DataError(
                f"{source}, line {nodes[name].line}: port {port} of {shown(name)} leads to port {other_port} "
                f"of {shown(other)}, which does not say so: the output is cut off, run ibnetdiscover again"
            )


def _labels(nodes: dict[str, _Node]) -> dict[str, str]:
    titles = {name: node.title for name, node in nodes.items()}
    words = {name: node.title.split(" ")[0] for name, node in nodes.items() if node.kind != "Switch"}
    labels: dict[str, str] = {}
    for choice in (titles, words):
        times = Counter(choice.values())
        labels.update({name: word for name, word in choice.items() if word and times[word] == 1})
    return labels


def write(topology: Topology) -> str:
    """An XGFT in the form of ``ibnetdiscover``'s output, which ``ibsim`` takes for its fabric.

    Names are those of `xgft.name`, ports those of `xgft` plus 1. Speeds are left to ``ibsim``.
    """
    rows: list[list[list[str]]] = [
        [[] for _ in range(topology.n_nodes(level))] for level in range(topology.height + 1)
    ]
    for level in range(1, topology.height + 1):
        _write_links(topology, level, rows)  # down-ports first
    records = []
    for level, nodes in enumerate(rows):
        for number, links in enumerate(nodes):
            kind = "Switch" if level else "Ca"
            records.append(f'{kind}\t{len(links)} "{xgft.name(level, number)}"\n' + "".join(links))
    return "\n".join(records)


def _write_links(topology: Topology, level: int, rows: list[list[list[str]]]) -> None:
    """Lines of the links below a level, at both ends."""
    ends, ports = xgft.link_ends(topology, level - 1), xgft.link_ports(topology, level - 1)
    n_down = topology.m[level - 2] if level > 1 else 0
    links = zip(*(array.tolist() for array in (*ends, *ports)), strict=True)
    for lower, upper, up_port, down_port in sorted(links, key=lambda link: (link[3], link[2])):
        low, high = up_port + n_down + 1, down_port + 1
        rows[level - 1][lower].append(f'[{low}]\t"{xgft.name(level, upper)}"[{high}]\n')
        rows[level][upper].append(f'[{high}]\t"{xgft.name(level - 1, lower)}"[{low}]\n')
