"""Prices in service units: Breslow et al. 2013, section 4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mpicoloc import pricings
from mpicoloc.core.estimate import Estimate
from mpicoloc.core.profile import Price
from mpicoloc.errors import DataError, UsageError

N_STEPS = 256
"""Points between the ends of the slowdown's interval at which a price function is tried."""


@dataclass(frozen=True)
class Tariff:
    """What turns a run into a price: F, its name, and L in SU per core-hour.

    Raises
    ------
    UsageError
        If the rate is no number >= 0.
    """

    rate_su: float
    pricing: str
    function: pricings.RateFunction

    def __post_init__(self) -> None:
        if not (np.isfinite(self.rate_su) and self.rate_su >= 0):
            raise UsageError(f"price.rate_su must be >= 0, got {self.rate_su}")

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
    """The tariff of rate L and the pricing of that name.

    Raises
    ------
    UsageError
        If the pricing is unknown or cannot be loaded, or the rate is negative.
    """
    return Tariff(rate_su, pricing, pricings.find(pricing))


def price(
    slowdown: Estimate | None, *, n_cores: int, wall_s: float, rate_su: float, pricing: str = "fair"
) -> Price:
    """Price of one job, by run time and by the named function.

    Parameters
    ----------
    slowdown : Estimate or None
        T_co/T_solo of the whole job; None is priced like an unshared run.
    n_cores : int
        Cores used (C).
    wall_s : float
        Run time as it was (T, T_co), s.
    rate_su : float
        L, SU per core-hour.
    pricing : str
        Name as `pricings.find` takes it.

    Raises
    ------
    UsageError
        If the pricing is unknown or fails, or the rate is negative.

    Notes
    -----
    Breslow et al. 2013: runtime_su = L C T (Eq. 1); fair_su = F(T_solo, T_co) C T_solo (Eq. 2), which with F
    of Eq. 3 is Eq. 4. T_solo = T_co / slowdown, at most T_co.
    """
    chosen = tariff(rate_su, pricing)
    runtime_su = chosen.runtime_su(n_cores, wall_s)
    unshared = Estimate(1.0, 1.0, 1.0, 0, "1", "none")
    fair = _spread(slowdown or unshared, "SU", lambda factor: chosen.shared_su(n_cores, wall_s, factor))
    discount = 1.0 - fair.value / runtime_su if runtime_su > 0 else 0.0
    # Rounding must not show as a discount of -1e-16.
    discount = 0.0 if abs(discount) < 1e-12 else discount
    return Price(rate_su, runtime_su, fair.value, discount, pricing, fair.low, fair.high)


@dataclass(frozen=True)
class Bill:
    """The prices of one job beside each other, as in Figure 12 of the paper; None: not known.

    Attributes
    ----------
    runtime : Estimate
        State of practice: what a centre charges that looks at the run time only (Eq. 1), SU.
    fair : Estimate or None
        By the measured slowdown (Eq. 2), SU.
    oracle : Estimate or None
        By the true slowdown, where that is known, SU.
    solo : Estimate or None
        What the run would have cost alone: by the true slowdown, else by the measured one, SU.
    relative : mapping of str to Estimate or None
        The three prices over that of the run alone, by the names of their fields.
    charged_su : float
        The price to ask for: the fair one; where no slowdown was measured, that of an unshared run.
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
    """All prices of one job of `n_cores` that ran `wall_s` (T_co), by its measured and its true T_co/T_solo.

    Raises
    ------
    UsageError
        If the true slowdown is not above 0, or the pricing fails.
    DataError
        If the measured slowdown is not above 0.
    """
    _check(slowdown, true_slowdown)
    truth = None if true_slowdown is None else _exact(true_slowdown, "1", "given")
    runtime_su = tariff.runtime_su(n_cores, wall_s)

    def shared_su(factor: float) -> float:
        return tariff.shared_su(n_cores, wall_s, factor)

    runtime = _exact(runtime_su, "SU", "run time")
    fair, oracle = (_through(known, "SU", shared_su) for known in (slowdown, truth))
    solo = _through(truth or slowdown, "SU", lambda factor: runtime_su / factor)
    relative = _relative(slowdown, truth, runtime_su, shared_su)
    charged_su = shared_su(1.0 if slowdown is None else slowdown.value)
    run = (tariff, n_cores, wall_s, slowdown, true_slowdown)
    return Bill(*run, runtime, fair, oracle, solo, relative, charged_su)


def of_whole_run(slowdown: Estimate | None, measured_s: float, wall_s: float) -> Estimate | None:
    """T_co/T_solo of a run of which only a part was measured; the rest counts as not slowed down.

    Parameters
    ----------
    slowdown : Estimate or None
        T_co/T_solo of the measured part.
    measured_s : float
        How long that part took, s; no more of it counts than `wall_s`.
    wall_s : float
        T_co of the whole run, s.

    Returns
    -------
    Estimate or None
        Between 1 and `slowdown`; None if that is None.

    Raises
    ------
    DataError
        If the slowdown is not above 0.

    Notes
    -----
    T_solo = wall_s - measured_s + measured_s / slowdown, which Breslow et al. 2013, Eq. 2, then takes.
    """
    _check(slowdown, None)
    part = min(max(measured_s, 0.0) / wall_s, 1.0) if wall_s > 0 else 1.0
    if slowdown is None or part == 1.0:
        return slowdown
    value, low, high = (
        1.0 / (1.0 - part + part / end) for end in (slowdown.value, slowdown.low, slowdown.high)
    )
    return Estimate(value, low, high, slowdown.n, slowdown.unit, slowdown.method)


def _check(slowdown: Estimate | None, true_slowdown: float | None) -> None:
    if slowdown is not None and slowdown.low <= 0:
        raise DataError(f"a slowdown must be above 0, got {slowdown.value} (from {slowdown.low})")
    if true_slowdown is not None and not (np.isfinite(true_slowdown) and true_slowdown > 0):
        raise UsageError(f"the true slowdown T_co/T_solo must be above 0, got {true_slowdown}")


def _relative(
    slowdown: Estimate | None,
    truth: Estimate | None,
    runtime_su: float,
    shared_su: Callable[[float], float],
) -> dict[str, Estimate | None]:
    """Prices over that of the run alone. Without the truth, T_solo of the denominator is the measured one."""
    if runtime_su <= 0:
        return {"runtime": None, "fair": None, "oracle": None}

    def over_solo(factor: float) -> float:
        # Never over the price of the run alone itself, which may be too small for a float.
        return shared_su(factor) / runtime_su * (factor if truth is None else truth.value)

    return {
        "runtime": _through(truth or slowdown, "1", lambda factor: factor),
        "fair": _through(slowdown, "1", over_solo),
        "oracle": _through(truth, "1", over_solo),
    }


def _exact(value: float, unit: str, method: str) -> Estimate:
    return Estimate(value, value, value, 0, unit, method)


def _through(slowdown: Estimate | None, unit: str, function: Callable[[float], float]) -> Estimate | None:
    return None if slowdown is None else _spread(slowdown, unit, function)


def _spread(slowdown: Estimate, unit: str, function: Callable[[float], float]) -> Estimate:
    """What follows from a slowdown, with the smallest and largest value over its interval.

    Exact for functions that only rise or only fall on each side of 1; others are tried at `N_STEPS` points,
    as a centre's F may have steps.
    """
    value = function(slowdown.value)
    tried = {slowdown.low, slowdown.high}
    if slowdown.high > slowdown.low:
        tried |= {float(factor) for factor in np.linspace(slowdown.low, slowdown.high, N_STEPS + 1)}
        tried |= {1.0} if slowdown.low < 1.0 < slowdown.high else set()
    found = [value, *(function(factor) for factor in tried)]
    return Estimate(value, min(found), max(found), slowdown.n, unit, slowdown.method)
