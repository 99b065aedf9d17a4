"""Prices in service units: Breslow et al. 2013, section 4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc.bill import pricings
from mpicoloc.core.profile import Estimate, Price, Profile
from mpicoloc.errors import DataError, UsageError

N_PROPAGATION_STEPS = 256
"""Number of steps into which a slowdown's interval is divided to find the interval of the price."""


@dataclass(frozen=True)
class Tariff:
    """The rate L in SU per core-hour, and the price function F with its name.

    Raises
    ------
    UsageError
        If the rate is not a number >= 0.
    """

    rate_su: float
    pricing: str
    function: pricings.RateFunction

    def __post_init__(self) -> None:
        if not (np.isfinite(self.rate_su) and self.rate_su >= 0):
            raise UsageError(f"price.rate_su must be >= 0, got {self.rate_su}")

    def weighted(self, factor: float) -> Tariff:
        """The tariff with a rate that is larger by this factor."""
        return replace(self, rate_su=self.rate_su * factor)

    def runtime_su(self, n_cores: int, wall_s: float) -> float:
        """Eq. 1: L C T."""
        return self.rate_su * n_cores / 3600.0 * wall_s

    def shared_su(self, n_cores: int, wall_s: float, slowdown: float) -> float:
        """Eq. 2: F(T_solo, T_co) C T_solo, with T_solo = T_co / slowdown, at most T_co."""
        t_solo_s = wall_s / max(slowdown, 1.0)
        if t_solo_s <= 0:
            return self.runtime_su(n_cores, wall_s)
        rate = pricings.rate(self.pricing, self.function, self.rate_su, t_solo_s, wall_s)
        return rate * n_cores / 3600.0 * t_solo_s


def tariff(rate_su: float, pricing: str = "fair") -> Tariff:
    """The tariff with this rate L and the price function of this name.

    Raises
    ------
    UsageError
        If the pricing is unknown or cannot be loaded, or the rate is negative.
    """
    return Tariff(rate_su, pricing, pricings.find(pricing))


def price(
    slowdown: Estimate | None, *, n_cores: int, wall_s: float, rate_su: float, pricing: str = "fair"
) -> Price:
    """Price of one job by its run time, and by the named price function.

    Parameters
    ----------
    slowdown : Estimate or None
        T_co/T_solo of the whole job. None is priced like a run without co-runners.
    n_cores : int
        Cores used (C).
    wall_s : float
        Measured run time (T, T_co), s.
    rate_su : float
        L, SU per core-hour.
    pricing : str
        Name of the price function, for `bill.pricings.find`.

    Raises
    ------
    UsageError
        If the pricing is unknown or fails, or the rate is negative.

    Notes
    -----
    Breslow et al. 2013: runtime_su = L C T (Eq. 1); fair_su = F(T_solo, T_co) C T_solo (Eq. 2), which becomes
    Eq. 4 if F is that of Eq. 3. T_solo = T_co / slowdown, at most T_co.
    """
    chosen = tariff(rate_su, pricing)
    runtime_su = chosen.runtime_su(n_cores, wall_s)
    unshared = Estimate(1.0, 1.0, 1.0, 0, "1", "none")
    fair = _propagate(slowdown or unshared, "SU", lambda factor: chosen.shared_su(n_cores, wall_s, factor))
    discount = 1.0 - fair.value / runtime_su if runtime_su > 0 else 0.0
    # Rounding could otherwise produce a discount of -1e-16.
    discount = 0.0 if abs(discount) < 1e-12 else discount
    return Price(rate_su, runtime_su, fair.value, discount, pricing, fair.low, fair.high)


@dataclass(frozen=True)
class Bill:
    """All prices of one job, as in Figure 12 of Breslow et al. 2013. A price that is unknown is None.

    Attributes
    ----------
    runtime : Estimate
        State of practice: the price by run time only (Eq. 1), SU.
    fair : Estimate or None
        Price by the measured slowdown (Eq. 2), SU.
    oracle : Estimate or None
        Price by the true slowdown, if known, SU.
    solo : Estimate or None
        Price of the run without co-runners, by the true slowdown if known, else by the measured one, SU.
    relative : mapping of str to Estimate or None
        The prices `runtime`, `fair` and `oracle`, divided by `solo`.
    charged_su : float
        The price to charge: the fair price, or that of a run without co-runners if no slowdown was measured.
    """

    tariff: Tariff
    n_cores: int
    wall_s: float
    slowdown: Estimate | None
    true_slowdown: float | None
    runtime: Estimate
    fair: Estimate | None
    oracle: Estimate | None
    solo: Estimate | None
    relative: dict[str, Estimate | None]
    charged_su: float


def bill(
    slowdown: Estimate | None,
    *,
    n_cores: int,
    wall_s: float,
    tariff: Tariff,
    true_slowdown: float | None = None,
) -> Bill:
    """All prices of a job that ran for `wall_s` (T_co) on `n_cores`, from its measured and true T_co/T_solo.

    Raises
    ------
    UsageError
        If the true slowdown is not above 0, or the pricing fails.
    DataError
        If the measured slowdown is not above 0.
    """
    _check_slowdowns(slowdown, true_slowdown)
    exact_slowdown = None if true_slowdown is None else _exact_estimate(true_slowdown, "1", "given")
    runtime_su = tariff.runtime_su(n_cores, wall_s)

    def shared_su(factor: float) -> float:
        return tariff.shared_su(n_cores, wall_s, factor)

    runtime = _exact_estimate(runtime_su, "SU", "run time")
    fair, oracle = (_propagate_if_known(known, "SU", shared_su) for known in (slowdown, exact_slowdown))
    solo = _propagate_if_known(exact_slowdown or slowdown, "SU", lambda factor: runtime_su / factor)
    relative = _relative_prices(slowdown, exact_slowdown, runtime_su, shared_su)
    charged_su = shared_su(1.0 if slowdown is None else slowdown.value)
    run = (tariff, n_cores, wall_s, slowdown, true_slowdown)
    return Bill(*run, runtime, fair, oracle, solo, relative, charged_su)


def billing_per_cpu(profile: Profile, n_cores: int, memory_bytes: int | None) -> float:
    """Factor of a core's price for the share of each node's memory, where that exceeds the share of cores.

    `memory_bytes` is allocated on each node; None: charge for cores only. Slurm bills alike with the flag
    ``MAX_TRES`` and with ``TRESBillingWeights`` by which memory weighs as much as the cores of a node.

    Raises `DataError` if the profile does not have the size of its nodes, or they have less memory.
    """
    if memory_bytes is None or not n_cores:
        return 1.0
    nodes = profile.tables["nodes"]
    n_cpus, node_bytes = nodes["n_cpus"], nodes["memory_bytes"]  # NaN or 0: unknown
    if not len(nodes) or not (n_cpus * node_bytes > 0).all():
        raise DataError("the profile does not have the memory of its nodes: leave out --memory")
    if (node_bytes < memory_bytes).any():
        raise DataError(f"--memory is {memory_bytes:,} bytes, but a node has {node_bytes.min():,.0f} bytes")
    in_cores = np.maximum(n_cores / len(nodes), memory_bytes / node_bytes * n_cpus)
    return max(float(in_cores.sum()) / n_cores, 1.0)


def slowdown_of_run(slowdown: Estimate | None, measured_s: float, wall_s: float) -> Estimate | None:
    """T_co/T_solo of a run of which only `measured_s` was measured. The rest counts as not slowed down.

    Result: between 1 and `slowdown`; None if `slowdown` is None. Raises `DataError` if `slowdown` is not
    above 0.

    T_solo = wall_s - measured_s + measured_s / slowdown, for use in Breslow et al. 2013, Eq. 2.
    """
    _check_slowdowns(slowdown, None)
    measured_frac = min(max(measured_s, 0.0) / wall_s, 1.0) if wall_s > 0 else 1.0
    if slowdown is None or measured_frac == 1.0:
        return slowdown
    value, low, high = (
        1.0 / (1.0 - measured_frac + measured_frac / end)
        for end in (slowdown.value, slowdown.low, slowdown.high)
    )
    return Estimate(value, low, high, slowdown.n, slowdown.unit, slowdown.method)


def _check_slowdowns(slowdown: Estimate | None, true_slowdown: float | None) -> None:
    if slowdown is not None and slowdown.low <= 0:
        raise DataError(f"a slowdown must be above 0, got {slowdown.value} (at least {slowdown.low})")
    if true_slowdown is not None and not (np.isfinite(true_slowdown) and true_slowdown > 0):
        raise UsageError(f"the true slowdown T_co/T_solo must be above 0, got {true_slowdown}")


def _relative_prices(
    slowdown: Estimate | None,
    exact_slowdown: Estimate | None,
    runtime_su: float,
    shared_su: Callable[[float], float],
) -> dict[str, Estimate | None]:
    """Prices over that of the run without co-runners, by the true T_solo if known, else the measured one."""
    if runtime_su <= 0:
        return {"runtime": None, "fair": None, "oracle": None}

    def over_solo(factor: float) -> float:
        # Dividing by the price of the run without co-runners could fail, because that price may underflow.
        return shared_su(factor) / runtime_su * (factor if exact_slowdown is None else exact_slowdown.value)

    return {
        "runtime": _propagate_if_known(exact_slowdown or slowdown, "1", lambda factor: factor),
        "fair": _propagate_if_known(slowdown, "1", over_solo),
        "oracle": _propagate_if_known(exact_slowdown, "1", over_solo),
    }


def _exact_estimate(value: float, unit: str, method: str) -> Estimate:
    return Estimate(value, value, value, 0, unit, method)


def _propagate_if_known(
    slowdown: Estimate | None, unit: str, function: Callable[[float], float]
) -> Estimate | None:
    return None if slowdown is None else _propagate(slowdown, unit, function)


def _propagate(slowdown: Estimate, unit: str, function: Callable[[float], float]) -> Estimate:
    """The value of a function at a slowdown, with its extremes over the slowdown's interval as the interval.

    The extremes are exact for functions that are monotonic on each side of 1. For other functions, such as a
    site's F with steps, they are the extremes over `N_PROPAGATION_STEPS` steps.
    """
    value = function(slowdown.value)
    slowdowns = {slowdown.low, slowdown.high}
    if slowdown.high > slowdown.low:
        slowdowns |= {
            float(factor) for factor in np.linspace(slowdown.low, slowdown.high, N_PROPAGATION_STEPS + 1)
        }
        slowdowns |= {1.0} if slowdown.low < 1.0 < slowdown.high else set()
    values = [value, *(function(factor) for factor in slowdowns)]
    return Estimate(value, min(values), max(values), slowdown.n, unit, slowdown.method)
