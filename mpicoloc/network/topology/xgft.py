"""Numbers and names of the nodes, links and ports of an XGFT, and its notation.

Let ``M_l = m1 ... ml`` and ``W_l = w1 ... wl``. Below one node of level l are ``M_l`` hosts, a *subtree*;
above the same hosts stand ``W_l`` nodes of level l, its *copies*.

* Host h is 0 .. n_hosts - 1; hosts of one first-level switch follow each other. Its subtree is ``h // M_l``.
* Node x of level l is ``x = subtree * W_l + copy``, copy in 0 .. W_l - 1. A host is a subtree of one copy, 0.
* Up-ports of a node of level l are 0 .. w_(l+1) - 1. Port q leads to copy ``copy + W_l * q`` above.
* Down-ports of a node of level l + 1 are 0 .. m_(l+1) - 1. Port c leads to its child subtree c.
* Link k of level l is ``k = subtree * W_(l+1) + upper copy``, where the subtree is the lower one. Its lower
  end is copy ``upper copy % W_l``, and its up-port ``upper copy // W_l``.
* In one row, a switch of level l has its down-ports first, 0 .. m_l - 1, then m_l .. m_l + w_(l+1) - 1 up.
  InfiniBand counts them from 1.

The copy that a message takes on the highest level fixes every switch below: on level l it passes copy
``path % W_l``, up and down. So one number, its *path* in 0 .. W_h - 1, is the whole route.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.topology import Hosts, Placement, Topology
from mpicoloc.errors import DataError, UsageError

EXAMPLE = "XGFT(3;16,16,8;1,8,8)"
_FORM = re.compile(r"\s*XGFT\s*\(([^;()]*);([^;()]*);([^;()]*)\)\s*", re.IGNORECASE)
_MAX_DIGITS = 10


def parse(notation: str, capacity_bps: float | Sequence[float]) -> Topology:
    """The topology that a notation like ``XGFT(3;16,16,8;1,8,8)`` names.

    Parameters
    ----------
    notation : str
        Height, children m1..mh and parents w1..wh; case and blanks do not matter.
    capacity_bps : float or sequence of float
        Bytes/s of one link in each direction: one number for all levels, or one for each, hosts' links first.

    Returns
    -------
    Topology

    Raises
    ------
    UsageError
        If the notation is wrong, or no tree has these numbers.
    """
    match = _FORM.fullmatch(notation)
    if not match:
        raise UsageError(f"topology {shown(notation)} is no notation of a fat-tree: write it like {EXAMPLE}")
    height, m, w = (_numbers(part, notation) for part in match.groups())
    if len(height) != 1 or not len(m) == len(w) == height[0]:
        raise UsageError(
            f"topology {shown(notation)}: h is {','.join(map(str, height))}, with {len(m)} numbers m and "
            f"{len(w)} numbers w: give h of each, like {EXAMPLE}"
        )
    capacities = (capacity_bps,) * len(m) if isinstance(capacity_bps, int | float) else tuple(capacity_bps)
    try:
        return Topology(m, w, capacities)
    except DataError as error:
        raise UsageError(str(error)) from None


def is_notation(text: str) -> bool:
    """Whether a text is meant as a notation, right or wrong, and not as the name of a file."""
    return re.match(r"\s*XGFT\s*\(", text, re.IGNORECASE) is not None


def shown(text: str, length: int = 60) -> str:
    """A foreign text for a message of one line."""
    return repr(text if len(text) <= length else text[:length] + "...")


def _numbers(part: str, notation: str) -> tuple[int, ...]:
    words = [word.strip() for word in part.split(",")]
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) <= _MAX_DIGITS):
            raise UsageError(
                f"topology {shown(notation)}: {shown(word)} is no number: write it like {EXAMPLE}"
            )
    return tuple(map(int, words))


def slimmed(topology: Topology, slimming: int) -> Topology:
    """The same tree with `slimming` up-links at every switch: w2 .. wh, the S of the thesis (Figure 3.1)."""
    return replace(topology, w=(topology.w[0], *(slimming,) * (topology.height - 1)))


def subtree(topology: Topology, level: int, hosts: Hosts) -> Hosts:
    """Number of the subtree of a level that each host is in; on level 1 that of its first-level switch."""
    return hosts // topology.subtree_hosts(level)


def climb(topology: Topology, src: Hosts, dst: Hosts) -> NDArray[np.int64]:
    """Levels that each message climbs: 0 within a host, 1 below one first-level switch, at most `height`."""
    levels = np.zeros(np.broadcast(src, dst).shape, dtype=np.int64)
    for level in range(topology.height):
        levels += subtree(topology, level, src) != subtree(topology, level, dst)
    return levels


def link_ends(topology: Topology, level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lower and upper node of every link of a level, in the order of the links' numbers."""
    below, above = topology.subtree_roots(level), topology.subtree_roots(level + 1)
    tree, copy = np.divmod(np.arange(topology.n_links(level)), above)
    return tree * below + copy % below, tree // topology.m[level] * above + copy


def link_ports(topology: Topology, level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Up-port at the lower end and down-port at the upper end of every link of a level."""
    above = topology.subtree_roots(level + 1)
    tree, copy = np.divmod(np.arange(topology.n_links(level)), above)
    return copy // topology.subtree_roots(level), tree % topology.m[level]


def parent(topology: Topology, level: int, node: int, up_port: int) -> int:
    """Node of the level above that an up-port leads to."""
    below, above = topology.subtree_roots(level), topology.subtree_roots(level + 1)
    tree, copy = divmod(node, below)
    return tree // topology.m[level] * above + copy + below * up_port


def child(topology: Topology, level: int, node: int, down_port: int) -> int:
    """Node of the level below that a down-port of a switch leads to."""
    below, above = topology.subtree_roots(level - 1), topology.subtree_roots(level)
    tree, copy = divmod(node, above)
    return (tree * topology.m[level - 1] + down_port) * below + copy % below


def name(level: int, node: int) -> str:
    """Name of a node: ``h12`` is host 12, ``s2-3`` switch 3 of level 2."""
    return f"s{level}-{node}" if level else f"h{node}"


def check_placement(topology: Topology, placement: Placement) -> None:
    """Check that all hosts of a placement exist.

    Raises
    ------
    DataError
        With the first rank whose host the topology does not have.
    """
    outside = np.flatnonzero(placement.hosts >= topology.n_hosts)
    if len(outside):
        rank = int(outside[0])
        raise DataError(
            f"placement: rank {rank} is on host {placement.hosts[rank]}, but {topology} has hosts 0 to "
            f"{topology.n_hosts - 1}: give another placement or a larger topology"
        )
