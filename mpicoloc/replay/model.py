"""Slowdowns of jobs that share links, from replaying them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import JobFeatures, SlowdownModel, alone
from mpicoloc.errors import DataError
from mpicoloc.replay.experiment import PlacedJob, simulate_alone, simulate_sharing
from mpicoloc.replay.network import SimulatedNetwork
from mpicoloc.replay.programs.builder import RankPrograms
from mpicoloc.replay.simulate import Settings

METHOD = "replay"
CONFIDENCE = 0.95


class ReplayedJobs:
    """A `SlowdownModel` of jobs with hosts of their own and links in common.

    The jobs are simulated together on hosts drawn at random, several times, and each time the target alone on
    the same hosts. Predictions are kept, and depend on nothing but the jobs' kinds.

    Parameters
    ----------
    programs : mapping of str to RankPrograms
        What each kind of job does (`JobFeatures.kind`), one rank on each host.
    network : SimulatedNetwork
    settings : Settings, optional
    seed : int
        Of the placements.
    n_placements : int
        How many are drawn.
    otherwise : SlowdownModel, optional
        Asked where the programs of a job are not known.

    Raises
    ------
    DataError
        If there are no placements.
    """

    def __init__(
        self,
        programs: Mapping[str, RankPrograms],
        network: SimulatedNetwork,
        settings: Settings | None = None,
        seed: int = 0,
        n_placements: int = 3,
        otherwise: SlowdownModel | None = None,
    ) -> None:
        if n_placements < 1:
            raise DataError(f"replay: the number of placements must be at least 1, got {n_placements}")
        self._programs, self._network, self._settings = dict(programs), network, settings
        self._orders = [
            np.random.default_rng([seed, i]).permutation(network.n_hosts) for i in range(n_placements)
        ]
        self._otherwise = otherwise
        self._known: dict[tuple[str, ...], NDArray[np.float64]] = {}

    def predict(self, target: JobFeatures, co_runners: Sequence[JobFeatures]) -> Estimate:
        """Slowdown of `target`, simulated; see `SlowdownModel`.

        Raises `DataError` if the programs of a job are not known and there is no other model, or the jobs do
        not fit.

        Beside several jobs it is at least what it is beside each of them: hosts that more jobs leave free may
        be better ones by chance, which is no relief by company.
        """
        if not co_runners:
            return alone(METHOD)
        kinds = sorted(job.kind for job in co_runners)
        unknown = [kind for kind in (target.kind, *kinds) if kind not in self._programs]
        if unknown:
            if self._otherwise is not None:
                return self._otherwise.predict(target, co_runners)
            raise DataError(f"the programs of {unknown[0]} are not known: trace a run of it, or give a model")
        sets = dict.fromkeys([(kind,) for kind in kinds] + [tuple(kinds)])
        return _estimate(np.max([self._slowdowns(target.kind, one) for one in sets], axis=0))

    def _slowdowns(self, target: str, co_runners: tuple[str, ...]) -> NDArray[np.float64]:
        """Slowdown of the target on each placement, at least 1."""
        kinds = (target, *co_runners)
        if kinds not in self._known:
            self._known[kinds] = np.array([self._slowdown(kinds, order) for order in self._orders])
        return self._known[kinds]

    def _slowdown(self, kinds: tuple[str, ...], order: NDArray[Any]) -> float:
        sizes = [self._programs[kind].n_ranks for kind in kinds]
        if sum(sizes) > len(order):
            raise DataError(
                f"replay: jobs of {', '.join(map(str, sizes))} ranks need {sum(sizes)} hosts, the network "
                f"has {len(order)}: take a larger topology"
            )
        ends = np.cumsum(sizes)
        jobs = [
            PlacedJob(self._programs[kind], order[end - size : end])
            for kind, size, end in zip(kinds, sizes, ends, strict=True)
        ]
        alone_s = simulate_alone(self._network, jobs[0], self._settings).jobs[0].end_s
        sharing_s = simulate_sharing(self._network, jobs, self._settings).jobs[0].end_s
        return max(sharing_s / alone_s, 1.0) if alone_s > 0 else 1.0


def _estimate(found: NDArray[np.float64]) -> Estimate:
    """Mean over placements, with its interval where there are several."""
    value, n = float(found.mean()), len(found)
    half = 0.0
    if n > 1:
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * found.std(ddof=1) / n**0.5)
    return Estimate(value, max(1.0, value - half), value + half, n, "1", METHOD)
