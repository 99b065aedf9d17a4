"""The files that tell Slurm to do what was simulated, as far as it can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc.batch.machine import Machine
from mpicoloc.batch.partition import Partition
from mpicoloc.batch.slurm_plan import nodes, scheduler, switches
from mpicoloc.batch.slurm_plan.demand import Demand
from mpicoloc.batch.slurm_plan.nodes import Layout, Queue
from mpicoloc.network.topology.hostlist import fold

SETTINGS, SWITCHES = "slurm-plan.conf", "topology.conf"
_OVERSUBSCRIBE = {"none": "EXCLUSIVE", "blind": "FORCE:2"}
_PAIRS = "`mpicoloc pair --watch` moves pairs into the partitions whose names end in _shared."
_SHARING = {
    "blind": "Which jobs share a node is for Slurm to choose; idle nodes do not always come first.",
    "model": f"Slurm has no slowdown model: {_PAIRS}",
    "service": _PAIRS,
}


@dataclass(frozen=True)
class Policies:
    """What was simulated, by its names on the command line."""

    order: str
    allocation: str
    sharing: str


def files(
    machine: Machine,
    cores_per_node: int,
    policies: Policies,
    demand: Demand,
    partitions: Sequence[Partition] = (),
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Texts of the files by name, and what Slurm will do otherwise than the simulation."""
    layout = nodes.layout(policies.allocation, machine, demand)
    if partitions:
        layout = _with_partitions(layout, partitions)
    differences = _differences(policies, demand, layout)
    lines = [
        f"# Written by `mpicoloc batch --slurm`, to be included by slurm.conf. Machine: {machine.name}.",
        f"# Order {policies.order}, allocation {policies.allocation}, sharing {policies.sharing}.",
        *(f"# Otherwise than simulated: {line}" for line in differences),
        *_settings(machine, cores_per_node, policies, demand, layout),
    ]
    found = {SETTINGS: "\n".join(lines) + "\n"}
    if layout.has_tree:
        found[SWITCHES] = switches.text(machine, is_cut=layout.is_cut)
    return found, differences


def _differences(policies: Policies, demand: Demand, layout: Layout) -> tuple[str, ...]:
    of_sharing = () if policies.sharing == "none" else (_SHARING[policies.sharing],)
    of_order = scheduler.differences(policies.order, demand)
    return (*of_order, *layout.queue_differences, *layout.differences, *of_sharing)


def _settings(
    machine: Machine, cores_per_node: int, policies: Policies, demand: Demand, layout: Layout
) -> Iterator[str]:
    """Lines that are no comments."""
    yield from scheduler.lines(policies.order, demand)
    yield "SelectType=select/cons_tres"
    yield "SelectTypeParameters=CR_Core"
    if layout.has_tree:
        yield "TopologyPlugin=topology/tree"
    yield from _nodes(machine, layout, cores_per_node)
    yield from _partitions(machine, layout, policies.sharing)


def _with_partitions(layout: Layout, partitions: Sequence[Partition]) -> Layout:
    """The partitions of the site in place of those that the allocation wants."""
    queues = []
    for own in partitions:
        words = [f"MaxNodes={own.max_nodes}", f"PriorityTier={own.priority}"]
        if np.isfinite(own.max_s):
            words.append(f"MaxTime={_duration(own.max_s)}")
        if own.is_default:
            words.append("Default=YES")
        queues.append(Queue(own.name, own.nodes, " ".join(words)))
    found = replace(layout, queues=tuple(queues))
    if len(layout.queues) > 1:
        difference = "Partitions are those of --partitions: big and small jobs are not kept apart."
        found = replace(found, weights=np.ones_like(layout.weights), queue_differences=(difference,))
    return found


def _duration(seconds_s: float) -> str:
    minutes, rest = divmod(round(seconds_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24:02d}:{minutes:02d}:{rest:02d}"


def _nodes(machine: Machine, layout: Layout, cores_per_node: int) -> Iterator[str]:
    names = np.array(machine.node_names(), dtype=object)
    weights = np.unique(layout.weights).tolist()
    for weight in weights:
        words = f" Weight={weight}" if len(weights) > 1 else ""
        yield f"NodeName={fold(names[layout.weights == weight])} CPUs={cores_per_node}{words} State=UNKNOWN"


def _partitions(machine: Machine, layout: Layout, sharing: str) -> Iterator[str]:
    """Partitions, and those that `mpicoloc pair` moves pairs into, where it makes them."""
    names = np.array(machine.node_names(), dtype=object)
    for own in layout.queues:
        words = own.words if len(layout.queues) > 1 or "Default" in own.words else f"{own.words} Default=YES"
        line = f"PartitionName={own.name} Nodes={fold(names[own.nodes])} {words.strip()}"
        yield f"{line} OverSubscribe={_OVERSUBSCRIBE.get(sharing, 'EXCLUSIVE')} State=UP"
        if sharing not in _OVERSUBSCRIBE:
            limits = " ".join(word for word in own.words.split() if word[:7] not in ("Default", "Priorit"))
            line = f"PartitionName={own.name}_shared Nodes={fold(names[own.nodes])} {limits}".rstrip()
            yield f"{line} PriorityTier=10 OverSubscribe=FORCE:2 State=UP"
