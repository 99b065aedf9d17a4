"""A topology from any known description: the notation, YAML, Slurm's ``topology.conf``, ``ibnetdiscover``."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mpicoloc import extras
from mpicoloc.core.topology import Topology
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network.topology import infiniband, topology_conf, xgft
from mpicoloc.network.topology.fabric import Fabric, Graph, recognise
from mpicoloc.network.topology.hostlist import expand
from mpicoloc.network.topology.xgft import shown

_RATE = re.compile(
    r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)\s*((?:[KMGT]i|[kMGT])?)(bit|B)(?:/s|ps)?\s*", re.ASCII
)
_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PREFIX |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_YAML_KEYS = {"topology", "link_rate", "hosts"}


def rate_bps(text: str) -> float:
    """Bytes/s of a rate that a user wrote with its unit, like ``10 Gbit/s`` or ``1.25 GiB/s``.

    Raises
    ------
    UsageError
        If there is no number above 0, or no unit.
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

    Parameters
    ----------
    text : str
        A notation, or the contents of a file.
    source : str
        Where it is from, for messages.
    capacity_bps : float or sequence of float
        Bytes/s of links that have no rate in the text: one number, or one for each level, hosts' links first.

    Returns
    -------
    Fabric
        With the hosts' names, if the text has them.

    Raises
    ------
    UsageError
        If a notation is wrong, or there are not as many capacities as levels.
    DataError
        If the text has no known form, is damaged, or describes a network that is no XGFT.
    """
    lines = [line.split("#", 1)[0].strip() for line in text.split("\n")]
    lines = [line for line in lines if line]
    if xgft.is_notation(" ".join(lines)):
        topology = xgft.parse(" ".join(lines), capacity_bps)
        return Fabric(topology, assumed_levels=tuple(range(topology.height)))
    if any(line.lower().startswith("switchname") for line in lines):
        found = _recognised(topology_conf.parse(text, source), source, capacity_bps)
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

    Parameters
    ----------
    text, source : str
        As of `read`.
    link_rate : str
        One rate, or one for each level, separated by commas.
    up_links : str or None
        w1 to wh separated by commas, instead of those in the text.

    Raises
    ------
    UsageError, DataError
        As of `read`, `rate_bps` and `with_up_links`.
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

    Raises
    ------
    UsageError
        If a word is no such number.
    """
    words = text.split(",")
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 10 and int(word) > 0):
            raise UsageError(f"{name} must be whole numbers above 0 with commas between, got {shown(text)}")
    return [int(word) for word in words]


def with_up_links(fabric: Fabric, w: Sequence[int]) -> Fabric:
    """The same tree with other numbers of up-links, which Slurm's files lack.

    Raises
    ------
    UsageError
        If there are not `height` numbers, or one is out of range.
    """
    topology = fabric.topology
    try:
        return replace(
            fabric, topology=replace(topology, w=tuple(w)), switch_names=(), assumes_up_links=False
        )
    except DataError as error:
        raise UsageError(f"up-links {','.join(map(str, w))} do not fit {topology}: {error}") from None


def _of_yaml(text: str, source: str, capacity_bps: float | Sequence[float]) -> Fabric:
    try:
        from mpicoloc.network import yaml_mapping
    except ModuleNotFoundError as error:
        fault = extras.missing_extra(error, f"{source}, a topology in YAML,")
        raise fault or error from error
    data = yaml_mapping.load(text, source)
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
