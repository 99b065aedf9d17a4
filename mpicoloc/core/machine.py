"""The machine that a profile is of: slowdowns measured on one machine do not hold for another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mpicoloc.core.plain_values import dataclass_from
from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import printable, text

_MEMORY_MARGIN = 0.05
"""Relative difference of memory among nodes of one make, as the kernel reserves a part for itself."""


@dataclass(frozen=True)
class Machine:
    """Processor, number of processors and memory of each node of a job."""

    cpu_model: str
    n_cpus: int
    memory_bytes: float

    def __str__(self) -> str:
        return f"{printable(self.cpu_model)}, {self.n_cpus} CPUs, {self.memory_bytes / 2**30:.0f} GiB"

    def is_like(self, other: Machine) -> bool:
        """Whether both are of the same make."""
        same = (self.cpu_model, self.n_cpus) == (other.cpu_model, other.n_cpus)
        return same and math.isclose(self.memory_bytes, other.memory_bytes, rel_tol=_MEMORY_MARGIN)


def machine_of(profile: Profile) -> Machine | None:
    """The machine of a profile's first node, with the processor models of all nodes.

    None if the profile does not have it, as those of earlier versions.
    """
    nodes = profile.tables["nodes"]
    if not len(nodes) or not nodes["cpu_model"][0]:
        return None
    first = nodes[0]
    if not (math.isfinite(first["n_cpus"]) and math.isfinite(first["memory_bytes"])):
        return None
    models = sorted({text(name) for name in nodes["cpu_model"]})
    return Machine(" + ".join(models), int(first["n_cpus"]), float(first["memory_bytes"]))


def machine_from_values(values: Any) -> Machine | None:
    """A machine from plain values, as `dataclasses.asdict` makes them; None: not known.

    Raises `TypeError`, `ValueError`, `KeyError` if they describe no machine.
    """
    return None if values is None else dataclass_from(Machine, values)
