"""A topology from any known description: the notation, YAML, Slurm's ``topology.conf``, ``ibnetdiscover``."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from mpicoloc.core.topology import Topology
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network.topology import infiniband, xgft
from mpicoloc.network.topology.fabric import Fabric, Graph, recognise
from mpicoloc.network.topology.hostlist import expand
from mpicoloc.network.topology.xgft import shown


class _Loader(yaml.BaseLoader):
    """Refuses duplicate keys, of which PyYAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value} twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def load(text: str, source: str) -> Any:
    """The data of a text, in which every scalar is a str.

    Raises `DataError` if the text is no valid YAML.
    """
    try:
        # BaseLoader leaves every scalar as text, and guesses no number, date or "no".
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DataError(f"{source}, line {line}: no YAML ({shown(error.problem or 'wrong')})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"{source}: no YAML ({shown(type(error).__name__)})") from None


_PAIR = re.compile(r"([A-Za-z]+)\s*=\s*(\S+)")
_KEYS = {"switchname", "switches", "nodes", "linkspeed"}


def parse(text: str, source: str) -> Graph:
    """Switches and hosts of a ``topology.conf``.

    Slurm requires a single path between two switches, so most files have one switch for all roots, and lack
    the number of up-links. ``LinkSpeed`` has no unit and is not used.

    Raises `DataError` with the line, if the file cannot be read or contradicts itself.
    """
    children: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    hosts: dict[str, None] = {}
    for number, line in slurm_lines(text):
        where = f"{source}, line {number}"
        switch, below, leaves = _row(line, where)
        if switch in children:
            raise DataError(f"{where}: switch {shown(switch)} is described twice: join the two lines")
        children[switch], places[switch] = [*below, *leaves], where
        hosts.update(dict.fromkeys(leaves))
    if not children:
        raise DataError(f"{source}: no line with SwitchName=: is it a topology.conf of topology/tree?")
    _check_names(children, hosts, places)
    return _graph(children, hosts)


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
                    f"{places[child]}: {shown(child)} is both a switch and a host: give one another name"
                )


def slurm_lines(text: str) -> list[tuple[int, str]]:
    """Numbered lines of a file of Slurm without comments and empty ones; a final backslash continues one."""
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
                f"{where}: {shown(match.group(1))} is no key of topology/tree: only SwitchName, Switches, "
                "Nodes and LinkSpeed are read"
            )
        if key in values:
            raise DataError(f"{where}: {shown(match.group(1))} is given twice: join the two with a comma")
        values[key] = match.group(2)
    if _PAIR.sub("", line).strip() or "switchname" not in values:
        raise DataError(f"{where}: {shown(line)} is not of the form SwitchName=s0 Nodes=n[0-15]")
    names = expand(values["switchname"], where)
    if len(names) != 1:
        raise DataError(f"{where}: SwitchName must be one name, got {shown(values['switchname'])}")
    below, leaves = (expand(values[key], where) if key in values else [] for key in ("switches", "nodes"))
    if bool(below) == bool(leaves):
        raise DataError(f"{where}: switch {shown(names[0])} must have Switches= or Nodes=, one of them")
    return names[0], below, leaves


def _graph(children: dict[str, list[str]], hosts: dict[str, None]) -> Graph:
    """The graph with links in both directions; those to parents are in the order of the lines."""
    ports: dict[str, list[tuple[str, None]]] = {node: [] for node in (*children, *hosts)}
    for switch, below in children.items():
        ports[switch].extend((child, None) for child in dict.fromkeys(below))
    for switch, below in children.items():
        for child in dict.fromkeys(below):
            ports[child].append((switch, None))
    return Graph(tuple(hosts), {node: tuple(row) for node, row in ports.items()}, {})


_RATE = re.compile(
    r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)\s*((?:[KMGT]i|[kMGT])?)(bit|B)(?:/s|ps)?\s*", re.ASCII
)
_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PREFIX |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_YAML_KEYS = {"topology", "link_rate", "hosts"}


def rate_bps(text: str) -> float:
    """Bytes/s of a rate that a user wrote with its unit, like ``10 Gbit/s`` or ``1.25 GiB/s``.

    Raises `UsageError` if there is no number above 0, or no unit.
    """
    match = _RATE.fullmatch(text[:80])
    value = float(match.group(1)) * _PREFIX[match.group(2)] if match else 0.0
    if not match or not (math.isfinite(value) and value > 0):
        raise UsageError(
            f"link rate {shown(text)} is no rate: write it with its unit, like 10Gbit/s or 1.25GiB/s"
        )
    return value / 8 if match.group(3) == "bit" else value


def read(text: str, source: str, capacity_bps: float | Sequence[float]) -> Fabric:
    """The topology that a text describes in any known form.

    Result: with the hosts' names, if the text has them. Raises `UsageError` if a notation is wrong, or there
    are not as many capacities as levels. Raises `DataError` if the text has no known form, is damaged, or
    describes a network that is no XGFT.
    """
    lines = [line.split("#", 1)[0].strip() for line in text.split("\n")]
    lines = [line for line in lines if line]
    if xgft.is_notation(" ".join(lines)):
        topology = xgft.parse(" ".join(lines), capacity_bps)
        return Fabric(topology, assumed_levels=tuple(range(topology.height)))
    if any(line.lower().startswith("switchname") for line in lines):
        found = _recognised(parse(text, source), source, capacity_bps)
        return replace(found, assumes_up_links=set(found.topology.w[1:]) == {1})
    if infiniband.is_output("\n".join(lines)):
        return _recognised(infiniband.parse(text, source), source, capacity_bps)
    if any(re.match(r"\{?\s*[\"']?[a-z_]+[\"']?\s*:", line) for line in lines):
        return _of_yaml(text, source, capacity_bps)
    raise DataError(
        f"{source}: {shown(text.strip())} describes no topology: give a notation like {xgft.EXAMPLE}, YAML, "
        "a topology.conf of Slurm or the output of ibnetdiscover"
    )


def _recognised(graph: Graph, source: str, capacity_bps: float | Sequence[float]) -> Fabric:
    try:
        return recognise(graph, capacity_bps)
    except DataError as error:
        raise DataError(
            f"{source}: {error}; mend the file, or give the notation of a fat-tree that is like it"
        ) from None


def fabric_of_text(text: str, source: str, link_rate: str, up_links: str | None) -> Fabric:
    """`read`, with link rates and up-links as a user writes them.

    Raises `UsageError`, `DataError` as of `read`, `rate_bps` and `with_up_links`.
    """
    rates = [rate_bps(word) for word in link_rate.split(",")]
    fabric = read(text, source, rates[0] if len(rates) == 1 else rates)
    if len(rates) not in (1, fabric.topology.height):
        raise UsageError(
            f"link rate {shown(link_rate)} has {len(rates)} rates, {fabric.topology} has "
            f"{fabric.topology.height} levels: give one for all, or one per level"
        )
    return fabric if up_links is None else with_up_links(fabric, whole_numbers("up-links", up_links))


def whole_numbers(name: str, text: str) -> list[int]:
    """Whole numbers above 0, separated by commas.

    Raises `UsageError` if a word is no such number.
    """
    words = text.split(",")
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 10 and int(word) > 0):
            raise UsageError(f"{name} must be whole numbers above 0 with commas between, got {shown(text)}")
    return [int(word) for word in words]


def with_up_links(fabric: Fabric, w: Sequence[int]) -> Fabric:
    """The same tree with other numbers of up-links, which Slurm's files lack.

    Raises `UsageError` if there are not `height` numbers, or one is out of range.
    """
    topology = fabric.topology
    try:
        return replace(
            fabric, topology=replace(topology, w=tuple(w)), switch_names=(), assumes_up_links=False
        )
    except DataError as error:
        raise UsageError(f"up-links {','.join(map(str, w))} do not fit {topology}: {error}") from None


def _of_yaml(text: str, source: str, capacity_bps: float | Sequence[float]) -> Fabric:
    data = load(text, source)
    if not isinstance(data, dict) or not isinstance(data.get("topology"), str):
        raise DataError(f"{source}: needs a line like topology: {xgft.EXAMPLE}")
    unknown = [key for key in data if key not in _YAML_KEYS]
    if unknown:
        raise DataError(
            f"{source}: unknown key {shown(str(unknown[0]))}; known are {', '.join(sorted(_YAML_KEYS))}"
        )
    try:
        rates = [rate_bps(rate) for rate in _words(data, "link_rate", source)]
        topology = xgft.parse(data["topology"], rates[0] if len(rates) == 1 else rates or capacity_bps)
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
            f"{source}: {len(names)} hosts, but {topology} has {topology.n_hosts}: name them all, in order"
        )
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(f"{source}: host {shown(twice[0])} is named twice")
    return tuple(names)
