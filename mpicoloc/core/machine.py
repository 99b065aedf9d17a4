"""What machine a profile is of: slowdowns of one tell nothing of another."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import printable, text

_MEMORY_MARGIN = 0.05
"""What the kernel keeps for itself differs among nodes of one make."""


@dataclass(frozen=True)
class Machine:
    """Processor, number of processors and memory of each node of a job."""

    cpu_model: str
    n_cpus: int
    memory_bytes: float

    def __str__(self) -> str:
        return f"{printable(self.cpu_model)}, {self.n_cpus} CPUs, {self.memory_bytes / 2**30:.0f} GiB"

    def is_like(self, other: Machine) -> bool:
        """The same make."""
        same = (self.cpu_model, self.n_cpus) == (other.cpu_model, other.n_cpus)
        return same and math.isclose(self.memory_bytes, other.memory_bytes, rel_tol=_MEMORY_MARGIN)


def machine_of(profile: Profile) -> Machine | None:
    """The machine of a profile: of its first node, and the names of all kinds of processors.

    None where the profile does not tell, as those of earlier versions do not.
    """
    nodes = profile.tables["nodes"]
    if not len(nodes) or not nodes["cpu_model"][0]:
        return None
    first = nodes[0]
    if not (math.isfinite(first["n_cpus"]) and math.isfinite(first["memory_bytes"])):
        return None
    models = sorted({text(name) for name in nodes["cpu_model"]})
    return Machine(" + ".join(models), int(first["n_cpus"]), float(first["memory_bytes"]))


def machine_from(told: object) -> Machine | None:
    """A machine from plain values, as `dataclasses.asdict` makes them; None: not known.

    Raises
    ------
    TypeError, ValueError, KeyError
        If they are of none.
    """
    if told is None:
        return None
    if not isinstance(told, dict):
        raise TypeError("a machine that is none")
    return Machine(str(told["cpu_model"]), int(told["n_cpus"]), float(told["memory_bytes"]))
