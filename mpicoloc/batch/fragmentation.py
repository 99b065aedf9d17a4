"""Fragmentation: whether jobs use more first-level switches than they need (Jokanovic 2014, section 4.1)."""

from __future__ import annotations

import numpy as np

from mpicoloc.batch.inputs import NO_JOB, JobLog, Machine
from mpicoloc.core.profile import Ints
from mpicoloc.errors import DataError
from mpicoloc.network.topology import hostlist

CLASSES = {"1": 1, "2-4": 4, "5-16": 16}
"""Most switches that the jobs of a class need, by the name of the class (Figures 4.1, 4.2 and 4.3)."""


def compact_frac(n_nodes: Ints, n_switches: Ints, switch_size: int) -> dict[str, float | None]:
    """By class, the fraction of its jobs that have no more switches than the largest of them needs.

    Jobs whose number of switches is below 1 are left out. None: the class has no job.
    """
    found: dict[str, float | None] = {}
    least = -(-n_nodes // switch_size)
    above = 0
    for name, most in CLASSES.items():
        own = n_switches[(above < least) & (least <= most) & (n_switches > 0)]
        found[name] = float((own <= most).mean()) if len(own) else None
        above = most
    return found


def of_log(log: JobLog, machine: Machine) -> Ints | None:
    """Number of switches of each job in the log; -1: not known. None: it names no node of the machine."""
    if log.node_list is None or not machine.host_names:
        return None
    switch = dict(zip(machine.host_names, machine.subtree[0].tolist(), strict=True))
    texts = log.node_list.tolist()
    n_of_text = {text: _n_switches(text, switch) for text in set(texts)}
    n_switches = np.array([n_of_text[text] for text in texts])
    return n_switches if (n_switches > 0).any() else None


def _n_switches(text: str, switch: dict[str, int]) -> int:
    try:
        names = hostlist.expand(text, "NodeList")
    except DataError:
        return NO_JOB
    found = {switch.get(name, NO_JOB) for name in names}
    return NO_JOB if NO_JOB in found else len(found)
