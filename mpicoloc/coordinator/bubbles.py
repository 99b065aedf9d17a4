"""Which bubble runs beside a job in a shutter of all of its nodes: the first coordinator draws it for all.

NumPy is not imported: see `pmpi.node_agent`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from mpicoloc import config
from mpicoloc.pmpi import contract

PROBE = 1
"""What stands for the probe where a bubble is named by 1 + thousandths of its level; 0: neither."""


class Drawn(NamedTuple):
    """A bubble or the probe for the next shutter, 0 for neither; `is_wanted` beside co-runners, too."""

    bubble: int = 0
    is_wanted: int = 0


class Draw:
    """By the options of this process: each level as often as the probe."""

    def __init__(self) -> None:
        self._frac = float(config.get("bubble") or 0)
        self._levels = [float(word) for word in str(config.get("bubble.levels")).split(",")]

    def __call__(self, ability: int) -> Drawn:
        """What to have next, where the agent says what can run (MC_BUBBLES_...)."""
        if not self._frac or ability == contract.MC_BUBBLES_NONE:
            return Drawn()
        has_probe = ability == contract.MC_BUBBLES_AND_PROBE
        choices = [1 + max(1, round(1000 * level)) for level in self._levels] + [PROBE] * has_probe
        return Drawn(choices[int(_uniform() * len(choices))], _uniform() < self._frac)


def can_run(bubble: int, abilities: Iterable[int]) -> bool:
    """Whether what was drawn can run on nodes whose agents say so (MC_BUBBLES_...)."""
    least = contract.MC_BUBBLES_AND_PROBE if bubble == PROBE else contract.MC_BUBBLES_ONLY
    return bubble > 0 and all(ability >= least for ability in abilities)


def _uniform() -> float:
    """In [0, 1). (`random` takes 5 ms to import.)"""
    return int.from_bytes(os.urandom(6), "little") / (1 << 48)
