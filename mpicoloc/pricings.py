"""F of Breslow et al. 2013, Eq. 2, by name: F(rate_su, T_solo, T_co) in SU per core-hour.

Imports nothing, because `config` refuses an unknown name on every rank of a job, before the job starts.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    RateFunction = Callable[[float, float, float], float]


def fair_rate(rate_su: float, t_solo_s: float, t_corun_s: float) -> float:
    """F of Eq. 3: rate times T_solo/T_co, never above the rate, so noise never makes a surcharge."""
    return rate_su * min(1.0, t_solo_s / t_corun_s)


def runtime_rate(rate_su: float, t_solo_s: float, t_corun_s: float) -> float:
    """No discount: the rate that makes Eq. 2 equal Eq. 1."""
    return rate_su * t_corun_s / t_solo_s


PRICINGS: dict[str, RateFunction] = {"fair": fair_rate, "runtime": runtime_rate}
"""The functions that a job may name. A site adds its own with `register`."""


def register(name: str, function: RateFunction) -> None:
    """Add a pricing, or replace one.

    To hold in every process of a job, call it from a `sitecustomize` of the Python that mpicoloc runs in.

    Parameters
    ----------
    name : str
        What `--pricing` calls it.
    function : callable
        F(rate_su, t_solo_s, t_corun_s) in SU per core-hour.
    """
    PRICINGS[name] = function
