"""Read a topology from any known form: the notation, YAML, Slurm's files, or output of ``ibnetdiscover``."""

from __future__ import annotations

import graphlib
import math
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mpicoloc.core.network import (
    EXAMPLE,
    Topology,
    is_notation,
    link_ends,
    link_ports,
    node_name,
    parse_xgft,
    shown,
)
from mpicoloc.errors import DataError, UsageError, missing_extra
from mpicoloc.network.topology.fabric import Fabric, recognise
from mpicoloc.network.topology.graph import Graph
from mpicoloc.network.topology.hostlist import expand

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
_WIDTH_AND_SPEED = re.compile(r"\b([0-9]{1,2})x([A-Z]+[0-9]*)\b")
_ASIDE = re.compile(
    r"Non-Chassis Nodes|Chassis [0-9]+( \(guid .*\))?|DR path .*"
    r"|(src/)?\w+\.c:[0-9]+; .*|ib(warn|panic|error): .*"
)
"""Lines to skip: headings (from ``--grouping``), progress reports (from ``--show``), and error messages about
single requests."""
_QUOTED = re.compile(r'"([^"]*)"')
_IN_SWITCH = "Aggregation Node"


@dataclass
class _Node:
    kind: str
    line: int
    title: str
    links: dict[int, tuple[str, int, float | None]] = field(default_factory=dict)
    port_guids: list[str] = field(default_factory=list)


def is_ibnetdiscover(text: str) -> bool:
    """Whether a text looks like the output of ``ibnetdiscover``."""
    return any(_HEAD.match(line.strip()) for line in text.split("\n"))


@dataclass(frozen=True)
class Wiring:
    """Links of each node by port, and names of nodes by the identifiers that other tools print.

    Parameters
    ----------
    neighbours : mapping of (str, int) to str
        Name of the node at the other end of each port, with the names of `parse_ibnetdiscover`.
    by_title, by_guid : mapping of str to str
        Name of each node by its description, if it is unique, and by the 16 digits of its GUID or of a port's
        GUID.
    """

    neighbours: Mapping[tuple[str, int], str]
    by_title: Mapping[str, str]
    by_guid: Mapping[str, str]

    def name(self, title: str, guid: str) -> str:
        """Name of the node with this description, else with this GUID; "" if unknown."""
        return self.by_title.get(title) or self.by_guid.get(guid.removeprefix("0x").lower().zfill(16), "")


def wiring(text: str, source: str) -> Wiring:
    """Ports and names of a fabric; parameters and errors as in `parse_ibnetdiscover`."""
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


def parse_ibnetdiscover(text: str, source: str) -> Graph:
    """Switches and hosts (channel adapters) of a fabric.

    A host's name is the first of these that is unique: the first word of its description, the whole
    description, its GUID. Reduction units inside switches are left out.

    Raises `DataError`, with the line, if the text is malformed, cut off or contradicts itself.
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
                raise DataError(
                    f"{where}: node {shown(head.group(2))} is described twice: give the output of a single "
                    "run"
                )
            nodes[head.group(2)] = node
        elif link := _LINK.fullmatch(line):
            if node is None:
                raise DataError(
                    f"{where}: a link comes before any node: the beginning of the output is missing"
                )
            port = int(link.group(1))
            if port in node.links:
                raise DataError(f"{where}: port {port} is described twice: give the output of a single run")
            own_guid, other, other_port, comment = link.group(2, 3, 4, 5)
            node.links[port] = (other, int(other_port), _rate_bps(comment or "", where))
            if own_guid:
                node.port_guids.append(own_guid)
        elif not (line.startswith("#") or _ASIDE.fullmatch(line) or _FACT.fullmatch(line.split("(")[0])):
            raise DataError(
                f"{where}: {shown(line)} is not a complete line of ibnetdiscover's output: run it again"
            )
    if not nodes:
        raise DataError(f"{source}: no line begins with Switch or Ca: give the output of ibnetdiscover")
    return nodes


def _rate_bps(comment: str, where: str) -> float | None:
    rate = _WIDTH_AND_SPEED.search(_QUOTED.sub("", comment))
    if not rate:
        return None
    width, speed = int(rate.group(1)), LANE_GBIT.get(rate.group(2))
    if not width or speed is None:
        raise DataError(
            f"{where}: link speed {shown(rate.group())} is unknown: the known speeds are "
            f"{', '.join(LANE_GBIT)}"
        )
    return width * speed * 1e9 / 8


def _check_both_ends(nodes: dict[str, _Node], name: str, source: str) -> None:
    """Check that each link is listed at both of its ends. If a link is not, the output was cut off."""
    for port, (other, other_port, _) in nodes[name].links.items():
        back = nodes[other].links.get(other_port) if other in nodes else None
        if back is None or back[:2] != (name, port):
            raise DataError(
                f"{source}, line {nodes[name].line}: port {port} of {shown(name)} leads to port {other_port} "
                f"of {shown(other)}, which does not lead back: the output is cut off; run ibnetdiscover again"
            )


def _labels(nodes: dict[str, _Node]) -> dict[str, str]:
    titles = {name: node.title for name, node in nodes.items()}
    words = {name: node.title.split(" ")[0] for name, node in nodes.items() if node.kind != "Switch"}
    labels: dict[str, str] = {}
    for choice in (titles, words):
        times = Counter(choice.values())
        labels.update({name: word for name, word in choice.items() if word and times[word] == 1})
    return labels


def ibnetdiscover_text(topology: Topology) -> str:
    """An XGFT in the form of ``ibnetdiscover``'s output, which ``ibsim`` accepts as its fabric.

    Nodes have the names of `core.network.node_name`. Port numbers are those of `core.network`, plus 1. Speeds
    are left out, so ``ibsim`` uses its own speeds.
    """
    rows: list[list[list[str]]] = [
        [[] for _ in range(topology.n_nodes(level))] for level in range(topology.height + 1)
    ]
    for level in range(1, topology.height + 1):
        _add_links(topology, level, rows)  # down-ports first
    records = []
    for level, nodes in enumerate(rows):
        for number, links in enumerate(nodes):
            kind = "Switch" if level else "Ca"
            records.append(f'{kind}\t{len(links)} "{node_name(level, number)}"\n' + "".join(links))
    return "\n".join(records)


def _add_links(topology: Topology, level: int, rows: list[list[list[str]]]) -> None:
    """Add the lines of the links below a level, at both ends."""
    ends, ports = link_ends(topology, level - 1), link_ports(topology, level - 1)
    n_down = topology.m[level - 2] if level > 1 else 0
    links = zip(*(array.tolist() for array in (*ends, *ports)), strict=True)
    for lower, upper, up_port, down_port in sorted(links, key=lambda link: (link[3], link[2])):
        low, high = up_port + n_down + 1, down_port + 1
        rows[level - 1][lower].append(f'[{low}]\t"{node_name(level, upper)}"[{high}]\n')
        rows[level][upper].append(f'[{high}]\t"{node_name(level - 1, lower)}"[{low}]\n')


_PAIR = re.compile(r"([A-Za-z]+)\s*=\s*(\S+)")
_KEYS = {"switchname", "switches", "nodes", "linkspeed"}


def parse(text: str, source: str) -> Graph:
    """Switches and hosts of a ``topology.conf``.

    Slurm requires a single path between two switches. Most files therefore have one switch in place of all
    roots, and lack the number of up-links. ``LinkSpeed`` is not used, because it has no unit.

    Raises `DataError`, with the line, if the file is malformed or contradicts itself.
    """
    lines = ((line, f"{source}, line {number}") for number, line in slurm_lines(text))
    rows = [(where, *_row(line, where)) for line, where in lines]
    if not rows:
        raise DataError(f"{source}: no line has SwitchName=: give a topology.conf for topology/tree")
    return _graph_of_rows(rows)


_SlurmRow = tuple[str, str, list[str], list[str]]
"""A switch: where the file describes it, its name, the switches below it, and its hosts."""


def _graph_of_rows(rows: Sequence[_SlurmRow]) -> Graph:
    children: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    hosts: dict[str, None] = {}
    for where, switch, below, leaves in rows:
        if switch in children:
            raise DataError(f"{where}: switch {shown(switch)} is described twice: join the two lines")
        children[switch], places[switch] = [*below, *leaves], where
        hosts.update(dict.fromkeys(leaves))
    _check_names(children, hosts, places)
    return _graph(children, hosts, places)


def _check_names(
    children: Mapping[str, Sequence[str]], hosts: Container[str], places: Mapping[str, str]
) -> None:
    for switch, below in children.items():
        for child in below:
            if child not in children and child not in hosts:
                raise DataError(
                    f"{places[switch]}: {shown(child)}, below switch {shown(switch)}, has no line: add one"
                )
            if child in children and child in hosts:
                raise DataError(
                    f"{places[child]}: {shown(child)} is both a switch and a host: rename one of the two"
                )


def slurm_lines(text: str) -> list[tuple[int, str]]:
    """Numbered lines of a Slurm file without comments and empty lines; a final backslash continues a line."""
    lines: list[tuple[int, str]] = []
    start, joined = 1, ""
    for number, line in enumerate(text.split("\n"), 1):
        if not joined:
            start = number
        joined += line.split("#", 1)[0].rstrip()
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        if joined.strip():
            lines.append((start, joined.strip()))
        joined = ""
    return [*lines, (start, joined.strip())] if joined.strip() else lines


def _row(line: str, where: str) -> tuple[str, list[str], list[str]]:
    """The switch of a line, the switches below it, and its hosts."""
    values: dict[str, str] = {}
    for match in _PAIR.finditer(line):
        key = match.group(1).lower()
        if key not in _KEYS:
            raise DataError(
                f"{where}: {shown(match.group(1))} is not a key of topology/tree: the keys are SwitchName, "
                "Switches, Nodes and LinkSpeed"
            )
        if key in values:
            raise DataError(
                f"{where}: {shown(match.group(1))} is given twice: join the two values with a comma"
            )
        values[key] = match.group(2)
    if _PAIR.sub("", line).strip() or "switchname" not in values:
        raise DataError(f"{where}: {shown(line)} is not of the form SwitchName=s0 Nodes=n[0-15]")
    return _switch(values["switchname"], values.get("switches"), values.get("nodes"), where)


def _switch(
    name: str, switches: str | None, nodes: str | None, where: str
) -> tuple[str, list[str], list[str]]:
    """A switch, the switches below it, and its hosts, from host lists."""
    names = expand(name, where)
    if len(names) != 1:
        raise DataError(f"{where}: each entry must name a single switch, got {shown(name)}")
    below, leaves = (expand(words, where) if words else [] for words in (switches, nodes))
    if bool(below) == bool(leaves):
        raise DataError(f"{where}: switch {shown(names[0])} must have either switches or nodes below it")
    return names[0], below, leaves


def _graph(children: dict[str, list[str]], hosts: dict[str, None], places: Mapping[str, str]) -> Graph:
    """The graph with links in both directions; links to parents are in the order of the file's lines."""
    levels = dict.fromkeys(hosts, 0)
    try:
        for switch in graphlib.TopologicalSorter(children).static_order():
            levels.setdefault(switch, 1 + max(map(levels.__getitem__, children.get(switch, ())), default=0))
    except graphlib.CycleError as error:
        first = error.args[1][0]
        raise DataError(f"{places[first]}: switch {shown(first)} is below itself: remove the cycle") from None
    ports: dict[str, list[tuple[str, None]]] = {node: [] for node in (*children, *hosts)}
    for switch, below in children.items():
        ports[switch].extend((child, None) for child in dict.fromkeys(below))
    for switch, below in children.items():
        for child in dict.fromkeys(below):
            ports[child].append((switch, None))
    return Graph(tuple(hosts), {node: tuple(row) for node, row in ports.items()}, {}, levels)


def parse_slurm_yaml(data: list[Any], source: str) -> tuple[str, Graph]:
    """Name and graph of the cluster's topology in the data of a ``topology.yaml`` (Slurm 25.05).

    The cluster's topology is the first with ``cluster_default: true``, or the only one.

    Raises `DataError` if the data has another form, or if the cluster's topology is not marked or has no
    switches.
    """
    named = [_keys_of(entry, "topology", _TOPOLOGY_KEYS, source) for entry in data]
    chosen = [entry for entry in named if str(entry.get("cluster_default")).lower() == "true"]
    if not chosen and len(named) != 1:
        raise DataError(
            f"{source}: {len(named)} topologies: mark the cluster's own with cluster_default: true"
        )
    found = (chosen or named)[0]
    where = f"{source}, topology {shown(found['topology'])}"
    if "tree" not in found:
        raise DataError(
            f"{where} is not a tree, so it names no switches: give the output of ibnetdiscover, or a "
            f"notation like {EXAMPLE}"
        )
    switches = found["tree"].get("switches") if isinstance(found["tree"], dict) else None
    if not isinstance(switches, list) or not switches or len(found["tree"]) != 1:
        raise DataError(f"{where}: tree must have one key, switches: a list with an entry for each switch")
    rows = []
    for entry in switches:
        row = _keys_of(entry, "switch", {"switch", "children", "nodes"}, where)
        place = f"{where}, switch {shown(row['switch'])}"
        rows.append((place, *_switch(row["switch"], row.get("children"), row.get("nodes"), place)))
    return found["topology"], _graph_of_rows(rows)


_TOPOLOGY_KEYS = {"topology", "cluster_default", "tree", "block", "flat"}


def _keys_of(entry: Any, first: str, known: Container[str], where: str) -> dict[str, Any]:
    """Check that an entry of a list has only known keys, and text values except for a topology's data."""
    if not isinstance(entry, dict) or not isinstance(entry.get(first), str):
        raise DataError(f"{where}: {shown(str(entry))} is not an entry like {first}: name")
    for key, value in entry.items():
        if key not in known or not (isinstance(value, str) or key in ("tree", "block", "flat")):
            raise DataError(
                f"{where}: {shown(str(key))} of {shown(entry[first])} is an unknown key, or its value is "
                "not a text"
            )
    return entry


_RATE = re.compile(
    r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)\s*((?:[KMGT]i|[kMGT])?)(bit|B)(?:/s|ps)?\s*", re.ASCII
)
_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PREFIX |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_YAML_KEYS = {"topology", "link_rate", "hosts"}


def rate_bps(text: str) -> float:
    """Bytes/s from a rate with its unit, for example ``10 Gbit/s`` or ``1.25 GiB/s``.

    Raises `UsageError` if the text is not a number above 0 with a unit.
    """
    match = _RATE.fullmatch(text[:80])
    value = float(match.group(1)) * _PREFIX[match.group(2)] if match else 0.0
    if not match or not (math.isfinite(value) and value > 0):
        raise UsageError(
            f"link rate {shown(text)} is not a rate: write it with its unit, like 10Gbit/s or 1.25GiB/s"
        )
    return value / 8 if match.group(3) == "bit" else value


def read(text: str, source: str, capacity_bps: float | Sequence[float]) -> Fabric:
    """The fabric that a text describes in any known form.

    The result has the hosts' names if the text has them. Raises `UsageError` if a notation is malformed, or
    the numbers of capacities and levels differ. Raises `DataError` if the text has no known form, is
    damaged, or describes a network that is not connected.
    """
    lines = [line.split("#", 1)[0].strip() for line in text.split("\n")]
    lines = [line for line in lines if line]
    if is_notation(" ".join(lines)):
        topology = parse_xgft(" ".join(lines), capacity_bps)
        return Fabric(topology, assumed_levels=tuple(range(topology.height)))
    if any(line.lower().startswith("switchname") for line in lines):
        return _of_slurm(parse(text, source), source, capacity_bps)
    if is_ibnetdiscover("\n".join(lines)):
        return _recognised(parse_ibnetdiscover(text, source), source, capacity_bps)
    if any(re.match(r"[-{]?\s*[\"']?[a-z_]+[\"']?\s*:", line) for line in lines):
        return _of_yaml(text, source, capacity_bps)
    raise DataError(
        f"{source}: {shown(text.strip())} describes no topology: give a notation like {EXAMPLE}, YAML, "
        "Slurm's topology.conf or topology.yaml, or the output of ibnetdiscover"
    )


def _of_slurm(graph: Graph, source: str, capacity_bps: float | Sequence[float]) -> Fabric:
    found = _recognised(graph, source, capacity_bps)
    return replace(found, assumes_up_links=_has_one_way_up(graph) and found.topology.height > 1)


def _has_one_way_up(graph: Graph) -> bool:
    """Whether the switches of a `topology.conf` form a tree, in which each has one link up."""
    switches = set(graph.ports).difference(graph.hosts)
    links = {frozenset((node, other)) for node in switches for other, _ in graph.ports[node]}
    return len([link for link in links if link <= switches]) == len(switches) - 1


def _recognised(graph: Graph, source: str, capacity_bps: float | Sequence[float]) -> Fabric:
    try:
        return recognise(graph, capacity_bps)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None


def fabric_of_text(text: str, source: str, link_rate: str, up_links: str | None) -> Fabric:
    """Like `read`, but with link rates and up-links as text from a user.

    Raises the errors of `read`, `rate_bps` and `with_up_links`.
    """
    rates = [rate_bps(word) for word in link_rate.split(",")]
    fabric = read(text, source, rates[0] if len(rates) == 1 else rates)
    if len(rates) not in (1, fabric.topology.height):
        raise UsageError(
            f"link rate {shown(link_rate)} has {len(rates)} rates, but {fabric.topology} has "
            f"{fabric.topology.height} levels: give one rate for all levels, or one per level"
        )
    return fabric if up_links is None else with_up_links(fabric, whole_numbers("up-links", up_links))


def whole_numbers(name: str, text: str) -> list[int]:
    """Whole numbers above 0, separated by commas.

    Raises `UsageError` if an entry is not such a number.
    """
    words = text.split(",")
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 10 and int(word) > 0):
            raise UsageError(f"{name} must be whole numbers above 0, separated by commas, got {shown(text)}")
    return [int(word) for word in words]


def with_up_links(fabric: Fabric, w: Sequence[int]) -> Fabric:
    """The same tree with these numbers of up-links, which Slurm's files do not contain.

    Raises `UsageError` if there are not `height` numbers, or a number is out of range.
    """
    topology = fabric.topology
    if not isinstance(topology, Topology):
        raise UsageError(
            f"up-links {','.join(map(str, w))} apply only to an XGFT, not to {topology}: leave them out, "
            "or give the notation of a similar fat-tree"
        )
    try:
        return replace(
            fabric, topology=replace(topology, w=tuple(w)), switch_names=(), assumes_up_links=False
        )
    except DataError as error:
        raise UsageError(f"up-links {','.join(map(str, w))} do not fit {topology}: {error}") from None


def _of_yaml(text: str, source: str, capacity_bps: float | Sequence[float]) -> Fabric:
    try:
        from mpicoloc.network.topology import yaml_mapping
    except ModuleNotFoundError as error:
        fault = missing_extra(error, f"{source}, a topology in YAML,")
        raise fault or error from error
    data = yaml_mapping.load(text, source)
    if isinstance(data, list):
        name, graph = parse_slurm_yaml(data, source)
        others = [shown(str(entry["topology"])) for entry in data if entry["topology"] != name]
        note = (f"{source}: topology {shown(name)} is used, not {', '.join(others)}",) if others else ()
        return replace(_of_slurm(graph, source, capacity_bps), file_notes=note)
    if not isinstance(data, dict) or not isinstance(data.get("topology"), str):
        raise DataError(f"{source}: needs a line like topology: {EXAMPLE}")
    unknown = [key for key in data if key not in _YAML_KEYS]
    if unknown:
        raise DataError(
            f"{source}: unknown key {shown(str(unknown[0]))}; the keys are {', '.join(sorted(_YAML_KEYS))}"
        )
    try:
        rates = [rate_bps(rate) for rate in _words(data, "link_rate", source)]
        topology = parse_xgft(data["topology"], rates[0] if len(rates) == 1 else rates or capacity_bps)
    except UsageError as error:
        raise DataError(f"{source}: {error}") from None
    assumed = () if rates else tuple(range(topology.height))
    return Fabric(topology, _host_names(data, topology, source), assumed_levels=assumed)


def _words(data: dict[str, Any], key: str, source: str) -> list[str]:
    """The texts of a key whose value is a text or a list of texts."""
    value = data.get(key, [])
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DataError(f"{source}: {key} must be one value or a list of values")
    return words


def _host_names(data: dict[str, Any], topology: Topology, source: str) -> tuple[str, ...]:
    names = [name for word in _words(data, "hosts", source) for name in expand(word, f"{source}, hosts")]
    if names and len(names) != topology.n_hosts:
        raise DataError(
            f"{source}: {len(names)} hosts, but {topology} has {topology.n_hosts}: name all hosts, in order"
        )
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(f"{source}: host {shown(twice[0])} is named twice")
    return tuple(names)
