"""An uncertain number never travels as a bare float."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpicoloc.errors import DataError


@dataclass(frozen=True)
class Estimate:
    """A measured or predicted number with its 95 % interval.

    Parameters
    ----------
    value, low, high : float
        The number and the ends of its interval, ``low <= value <= high``, all finite.
    n : int
        Observations behind it (shutters, cycles); 0 if it needs none.
    unit : str
        "1" for a dimensionless number.
    method : str
        How it was obtained, for example "burst-matched".

    Raises
    ------
    DataError
        If a number is not finite or the interval does not hold the value.
    """

    value: float
    low: float
    high: float
    n: int
    unit: str
    method: str

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            number = float(getattr(self, name))
            if not math.isfinite(number):
                raise DataError(f"estimate: {name} must be finite, got {number}")
            object.__setattr__(self, name, number)
        if not self.low <= self.value <= self.high:
            raise DataError(f"estimate: need low <= value <= high, got {self.low}, {self.value}, {self.high}")
        if int(self.n) != self.n or self.n < 0:
            raise DataError(f"estimate: n must be an int >= 0, got {self.n}")
        object.__setattr__(self, "n", int(self.n))
