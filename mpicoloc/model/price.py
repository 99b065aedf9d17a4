"""Prices in service units: Breslow et al. 2013, section 4."""

from __future__ import annotations

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.profile import Price
from mpicoloc.errors import UsageError
from mpicoloc.pricings import PRICINGS


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
        Name in `PRICINGS`.

    Raises
    ------
    UsageError
        If the pricing is unknown or the rate is negative.

    Notes
    -----
    Breslow et al. 2013: runtime_su = L C T (Eq. 1); fair_su = F(T_solo, T_co) C T_solo (Eq. 2), which with F
    of Eq. 3 is Eq. 4. T_solo = T_co / slowdown, at most T_co.
    """
    if pricing not in PRICINGS:
        raise UsageError(f"unknown pricing {pricing!r}: choose one of {', '.join(sorted(PRICINGS))}")
    if not rate_su >= 0:
        raise UsageError(f"price.rate_su must be >= 0, got {rate_su}")
    core_hours = n_cores / 3600.0
    runtime_su = rate_su * core_hours * wall_s

    def fair(factor: float) -> float:
        t_solo_s = wall_s / max(factor, 1.0)
        if t_solo_s <= 0:
            return runtime_su
        return PRICINGS[pricing](rate_su, t_solo_s, wall_s) * core_hours * t_solo_s

    factors = (1.0, 1.0, 1.0) if slowdown is None else (slowdown.value, slowdown.low, slowdown.high)
    value, *ends = (fair(factor) for factor in factors)
    discount = 1.0 - value / runtime_su if runtime_su > 0 else 0.0
    # Rounding must not show as a discount of -1e-16.
    discount = 0.0 if abs(discount) < 1e-12 else discount
    return Price(rate_su, runtime_su, value, discount, pricing, min(value, *ends), max(value, *ends))
