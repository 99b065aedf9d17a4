"""Virtual lanes of simulated links: buffers, service levels and arbitration, as InfiniBand has them."""

from __future__ import annotations

from dataclasses import dataclass

from mpicoloc.errors import DataError
from mpicoloc.replay import native

Table = tuple[tuple[int, int], ...]
"""Rows (lane, weight) of an arbitration table."""

NO_LIMIT = 255
MAX_WEIGHT = 255


@dataclass(frozen=True)
class Lanes:
    """Lanes, the same at every port of a network.

    Parameters
    ----------
    input_bytes : tuple of int
        Buffer of each lane where a link ends: the credits of its sender. One number per lane.
    output_bytes : tuple of int
        Buffer of each lane where a switch's link begins.
    lane_of_level : tuple of int
        Lane of service level 0, 1, ...
    high, low : tuple of (int, int)
        Rows (lane, weight) of the two arbitration tables. `low` empty: all lanes that `high` lacks, weight 1.
    high_limit : int
        Units of 4096 bytes of high priority before one packet of low priority; 255: no limit, 0: one packet.
    weight_unit_bytes : int
        64 as in the standard, or 0: weights count packets, as in the thesis.

    Raises
    ------
    DataError
        If a number is out of range, a lane is in no table, or has no weight above 0.

    Notes
    -----
    InfiniBand Architecture Specification, volume 1, section 7.6.9; Jokanovic 2014, section 1.3.3.
    """

    input_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]
    lane_of_level: tuple[int, ...] = (0,)
    high: Table = ()
    low: Table = ()
    high_limit: int = 0
    weight_unit_bytes: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.n <= native.RP_MAX_VL:
            raise DataError(f"lanes: their number must be in [1, {native.RP_MAX_VL}], got {self.n}")
        if len(self.output_bytes) != self.n:
            raise DataError(
                f"lanes: {self.n} input and {len(self.output_bytes)} output buffers: one per lane"
            )
        if not self.low:
            rest = tuple((lane, 1) for lane in range(self.n) if lane not in {vl for vl, _ in self.high})
            object.__setattr__(self, "low", rest)
        if not 1 <= len(self.lane_of_level) <= native.RP_MAX_SL:
            raise DataError(f"lanes: give lanes for 1 to {native.RP_MAX_SL} service levels")
        for lane in (*self.lane_of_level, *(vl for vl, _ in (*self.high, *self.low))):
            if not 0 <= lane < self.n:
                raise DataError(
                    f"lanes: lane {lane} is not in [0, {self.n - 1}]: give more buffers, or another lane"
                )
        self._check_weights()
        if not 0 <= self.high_limit <= NO_LIMIT:
            raise DataError(f"lanes: high limit must be in [0, {NO_LIMIT}], got {self.high_limit}")
        if self.weight_unit_bytes not in (0, 64):
            raise DataError(
                f"lanes: weights count packets (0) or 64 bytes (64), got {self.weight_unit_bytes}"
            )

    @property
    def n(self) -> int:
        """Number of lanes."""
        return len(self.input_bytes)

    def _check_weights(self) -> None:
        """A lane that is used must be served."""
        for lane, weight in (*self.high, *self.low):
            if not 0 <= weight <= MAX_WEIGHT:
                raise DataError(f"lanes: weight of lane {lane} must be in [0, {MAX_WEIGHT}], got {weight}")
        served = {lane for lane, weight in (*self.high, *self.low) if weight}
        for level, lane in enumerate(self.lane_of_level):
            if lane not in served:
                raise DataError(
                    f"lanes: lane {lane}, which service level {level} uses, has no weight above 0 in a "
                    "table: its packets would wait for ever; give it one"
                )


def equal_lanes(n: int = 1, total_bytes: int = 65536, weights: tuple[int, ...] = ()) -> Lanes:
    """`n` lanes that share a port's buffers of `total_bytes` equally; service level i uses lane i."""
    each = (total_bytes // n,) * n
    low = tuple(enumerate(weights or (1,) * n))
    return Lanes(each, each, tuple(range(n)), low=low)
