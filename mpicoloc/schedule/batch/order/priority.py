"""Priority by age and size, as of Slurm's multifactor plugin, with EASY backfilling behind the first job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpicoloc.schedule.batch.order import easy
from mpicoloc.schedule.batch.view import View


@dataclass(frozen=True)
class Priority:
    """An order by ``age_weight * age + size_weight * size``, both in [0, 1].

    Parameters
    ----------
    age_weight, size_weight : float
        A negative `size_weight` favours small jobs.
    max_age_s : float
        A job that has waited as long has age 1, s.
    """

    age_weight: float = 1.0
    size_weight: float = 1.0
    max_age_s: float = 7 * 86400.0

    def __call__(self, view: View) -> int | None:
        """The job of highest priority, or one that does not delay it."""
        age = np.minimum((view.now_s - view.queue["arrival_s"]) / self.max_age_s, 1)
        size = view.queue["n_nodes"] / view.machine.n_nodes
        first = int(np.argmax(self.age_weight * age + self.size_weight * size))
        return first if view.can_start(first) else easy.backfilled(view, first)
