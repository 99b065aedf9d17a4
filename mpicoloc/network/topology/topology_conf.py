"""Slurm's ``topology.conf`` (topology/tree) as a graph."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

from mpicoloc.errors import DataError
from mpicoloc.network.topology.fabric import Graph
from mpicoloc.network.topology.hostlist import expand
from mpicoloc.network.topology.xgft import shown

_PAIR = re.compile(r"([A-Za-z]+)\s*=\s*(\S+)")
_KEYS = {"switchname", "switches", "nodes", "linkspeed"}


def parse(text: str, source: str) -> Graph:
    """Switches and hosts of a ``topology.conf``.

    Slurm requires a single path between two switches, so most files have one switch for all roots, and lack
    the number of up-links. ``LinkSpeed`` has no unit and is not used.

    Parameters
    ----------
    text : str
        Contents of the file.
    source : str
        Its name, for messages.

    Raises
    ------
    DataError
        With the line, if the file cannot be read or contradicts itself.
    """
    children: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    hosts: dict[str, None] = {}
    for number, line in _lines(text):
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


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers, without comments and empty lines; a final backslash continues a line."""
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
