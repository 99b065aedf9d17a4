"""What a scheduler knows of one job before it shares its nodes: the input of every slowdown model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from mpicoloc.errors import DataError

_INTERPRETERS = ("python", "perl", "ruby", "julia", "Rscript", "bash", "sh", "java")


def program_name(command: str) -> str:
    """Name of the program in a command line: of the script, where an interpreter runs one."""
    words = command.split() or ["unknown"]
    name = words[0].rpartition("/")[2]
    if is_interpreter(name):
        scripts = [word for word in words[1:] if not word.startswith("-")]
        name = scripts[0].rpartition("/")[2] if scripts else name
    return name or "unknown"


def is_interpreter(word: str) -> bool:
    """Whether a word of a command line runs the script whose name follows it."""
    return word.rpartition("/")[2].rstrip("0123456789.") in _INTERPRETERS


def kind_of(program: str, n_ranks: int) -> str:
    """Program and size as text, which is the same for all users and machines."""
    return f"{program} x{n_ranks}"


@dataclass(frozen=True)
class JobFeatures:
    """One job, as measured in runs without co-runners.

    Parameters
    ----------
    id : str
        Number of the job in the queue, or its name.
    program : str
        Name of what it runs. Jobs of one program count as one application when a model is evaluated.
    runtime_s : float
        Its run time without co-runners, above 0, s.
    n_cores, n_ranks : int
        Its size, at least 1.
    values : mapping of str to float
        Features by name (`mpicoloc.pairing.features.FEATURES`), finite. A feature that was not measured is
        absent, never 0. Empty: the job has no profile.

    Raises
    ------
    DataError
        If a number is not finite or out of range.
    """

    id: str
    program: str
    runtime_s: float
    n_cores: int
    n_ranks: int
    values: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.runtime_s) and self.runtime_s > 0):
            raise DataError(f"job {self.id}: runtime_s must be above 0, got {self.runtime_s}")
        for name in ("n_cores", "n_ranks"):
            if getattr(self, name) < 1:
                raise DataError(f"job {self.id}: {name} must be at least 1, got {getattr(self, name)}")
        wrong = next((name for name, value in self.values.items() if not math.isfinite(value)), None)
        if wrong is not None:
            raise DataError(
                f"job {self.id}: feature {wrong} must be finite, got {self.values[wrong]}; "
                "leave out what was not measured"
            )
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    @property
    def kind(self) -> str:
        """Program and size: jobs of one kind are taken to behave alike."""
        return kind_of(self.program, self.n_ranks)
