"""Forwarding tables of InfiniBand's switches, as ``dump_fts`` prints and opensm dumps them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.errors import DataError
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.network.topology.infiniband import Wiring
from mpicoloc.network.topology.xgft import shown

_HEAD = re.compile(r"Unicast lids .* guid (0x[0-9a-fA-F]+) \((.*)\):")
_ENTRY = re.compile(r"0x[0-9a-fA-F]+\s+([0-9]{3})\s*[:#]\s*\(?(.*?) portguid (0x[0-9a-fA-F]+):? '([^']*)'\)?")
_ADAPTER = "Channel Adapter"


def parse(text: str, source: str, fabric: Fabric, wiring: Wiring) -> NDArray[Any]:
    """The node to which each switch sends what is for each host.

    Parameters
    ----------
    text : str
        What ``dump_fts`` printed, or opensm's ``opensm-lfts.dump``.
    source : str
        Name of the file, for messages.
    fabric : Fabric
        Of the output of ``ibnetdiscover``.
    wiring : Wiring
        Of the same output.

    Returns
    -------
    ndarray of int, shape (n_switches, n_hosts)
        Numbers of nodes: hosts first, then the switches of level 1, 2, ...; -1 to hosts that do not exist.

    Raises
    ------
    DataError
        If a switch, host or port is none of the fabric's, or a switch has no entry for a host.
    """
    names = (*fabric.host_names, *(name for row in fabric.switch_names for name in row))
    number = {name: i for i, name in enumerate(names) if name}
    n_hosts = fabric.topology.n_hosts
    table = np.full((len(names) - n_hosts, n_hosts), -1)
    switch = None
    for i_line, line in enumerate(text.split("\n"), 1):
        if head := _HEAD.match(line):
            switch = wiring.name(head[2].strip("'"), head[1])
            if number.get(switch, -1) < n_hosts:
                raise _unknown(source, i_line, "switch", head[2])
        elif (entry := _ENTRY.match(line)) and entry[2] == _ADAPTER and switch is not None:
            host = number.get(wiring.name(entry[4], entry[3]), n_hosts)
            if host >= n_hosts:
                raise _unknown(source, i_line, "host", entry[4])
            neighbour = wiring.neighbours.get((switch, int(entry[1])), "")
            if neighbour not in number:
                raise _unknown(source, i_line, f"link at port {int(entry[1])} of switch", switch)
            table[number[switch] - n_hosts, host] = number[neighbour]
    _check_all_routed(table, source, fabric, names)
    return table


def _unknown(source: str, i_line: int, what: str, name: str) -> DataError:
    return DataError(
        f"{source}, line {i_line}: the topology has no {what} {shown(name)}: give tables and a topology by "
        "ibnetdiscover of the same fabric at the same time"
    )


def _check_all_routed(table: NDArray[Any], source: str, fabric: Fabric, names: tuple[str, ...]) -> None:
    hosts = fabric.hosts()
    lacking = np.argwhere(table[:, hosts] < 0)
    if len(lacking):
        row, column = lacking[0]
        raise DataError(
            f"{source}: switch {shown(names[fabric.topology.n_hosts + row])} has no entry for host "
            f"{shown(names[hosts[column]])}: give all that dump_fts prints, or opensm-lfts.dump"
        )
