"""The switches of a machine as ``topology.conf`` of Slurm's plugin topology/tree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpicoloc.batch.allocation.virtual_blocks import virtual_switch_size
from mpicoloc.batch.machine import Machine
from mpicoloc.network.topology.hostlist import fold


def text(machine: Machine, *, is_cut: bool) -> str:
    """One line for each first-level switch and each subtree above, called ``s<level>_<number>``.

    Slurm wants one path between two switches, so all switches above the same nodes are one here.
    """
    lines = list(_first_level(machine, is_cut=is_cut))
    for level in range(2, machine.height + 1):
        below, above = machine.starts[level - 2], machine.subtree[level - 1]
        parent = above[below]
        for tree in range(int(parent.max()) + 1):
            children = (f"s{level - 1}_{child}" for child in np.flatnonzero(parent == tree).tolist())
            lines.append(f"SwitchName=s{level}_{tree} Switches={fold(children)}")
    return "\n".join(lines) + "\n"


def _first_level(machine: Machine, *, is_cut: bool) -> Iterator[str]:
    names = machine.node_names()
    part = virtual_switch_size(machine.switch_size)
    is_cut = is_cut and part < machine.switch_size
    for i, start in enumerate(machine.starts[0].tolist()):
        own = names[start : start + int(machine.switch_sizes[i])]
        if not is_cut:
            yield f"SwitchName=s1_{i} Nodes={fold(own)}"
            continue
        parts = {f"v{i}": own[:part], f"r{i}": own[part:]}
        yield from (f"SwitchName={name} Nodes={fold(nodes)}" for name, nodes in parts.items() if nodes)
        yield f"SwitchName=s1_{i} Switches={','.join(name for name, nodes in parts.items() if nodes)}"
