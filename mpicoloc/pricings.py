"""F of Breslow et al. 2013, Eq. 2, by name: F(rate_su, T_solo, T_co) in SU per core-hour.

A name is one of `PRICINGS`, an entry point that an installed package declares in the group
``mpicoloc.pricings``, ``module:function``, or ``path/file.py:function``. Imports next to nothing, because
`config` refuses an unknown name on every rank of a job, before the job starts.
"""

from __future__ import annotations

import math
import sys

from mpicoloc.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any

    RateFunction = Callable[[float, float, float], float]

ENTRY_POINTS = "mpicoloc.pricings"
"""Group of entry points under which a site's package offers its own."""


def fair_rate(rate_su: float, t_solo_s: float, t_corun_s: float) -> float:
    """F of Eq. 3: rate times T_solo/T_co, never above the rate, so noise never makes a surcharge."""
    return rate_su * min(1.0, t_solo_s / t_corun_s)


def runtime_rate(rate_su: float, t_solo_s: float, t_corun_s: float) -> float:
    """No discount: the rate that makes Eq. 2 equal Eq. 1."""
    return rate_su * t_corun_s / t_solo_s


PRICINGS: dict[str, RateFunction] = {"fair": fair_rate, "runtime": runtime_rate}
"""The functions that every installation has."""
_is_complete = False


class Names:
    """What ``--pricing`` takes, as a collection; it lists the functions that every installation has."""

    def __contains__(self, name: object) -> bool:
        # A function in a module is not imported here: only the process that computes the price needs it.
        return isinstance(name, str) and (name in PRICINGS or is_path(name) or name in entry_points())

    def __iter__(self) -> Iterator[str]:
        return iter(PRICINGS)

    def __len__(self) -> int:
        return len(PRICINGS)


def is_path(name: str) -> bool:
    """Whether `name` says where the function's code lies, as ``module:function`` does."""
    module, colon, function = name.rpartition(":")
    return bool(colon and module and function.isidentifier())


def entry_points() -> dict[str, Any]:
    """Entry points of installed packages that are pricings, by name."""
    import importlib.metadata

    _complete_path()
    return {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}


def register(name: str, function: RateFunction) -> None:
    """Add a pricing in this process, or replace one. A package declares an entry point instead.

    Parameters
    ----------
    name : str
        What ``--pricing`` calls it.
    function : callable
        F(rate_su, t_solo_s, t_corun_s) in SU per core-hour.
    """
    PRICINGS[name] = function


def find(name: str) -> RateFunction:
    """The function called `name`.

    Raises
    ------
    UsageError
        If there is none, its code cannot be loaded, or it is no function.
    """
    if name in PRICINGS:
        return PRICINGS[name]
    points = {} if is_path(name) else entry_points()
    if not is_path(name) and name not in points:
        known = ", ".join(sorted({*PRICINGS, *points}))
        raise UsageError(f"unknown pricing {name!r}: choose one of {known}, or module:function")
    try:
        function = points[name].load() if name in points else _load(name)
    except Exception as error:
        raise UsageError(f"pricing {name!r} cannot be loaded ({_reason(error)})") from error
    if not callable(function):
        raise UsageError(f"pricing {name!r} is no function but {type(function).__name__}")
    checked: RateFunction = function
    return checked


def _load(name: str) -> Any:
    module, _, function = name.rpartition(":")
    return getattr(_from_file(module) if module.endswith(".py") else _from_name(module), function)


def _from_name(name: str) -> ModuleType:
    import importlib

    _complete_path()
    return importlib.import_module(name)


def _complete_path() -> None:
    """Find what `site` finds, where `quick_start` has left it out: .pth files, the user's own packages."""
    global _is_complete
    if sys.flags.no_site and not _is_complete:
        import site

        site.main()
    _is_complete = True


def _from_file(path: str) -> ModuleType:
    import importlib.util

    spec = importlib.util.spec_from_file_location("mpicoloc_site_pricing", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rate(name: str, function: RateFunction, rate_su: float, t_solo_s: float, t_corun_s: float) -> float:
    """The function's answer, checked.

    Raises
    ------
    UsageError
        If it fails, or answers with something that is no rate.
    """
    try:
        answer = float(function(rate_su, t_solo_s, t_corun_s))
    except Exception as error:
        raise UsageError(f"pricing {name!r} failed ({_reason(error)})") from error
    if not (math.isfinite(answer) and answer >= 0):
        given = f"rate_su={rate_su:g}, t_solo_s={t_solo_s:g}, t_corun_s={t_corun_s:g}"
        raise UsageError(f"pricing {name!r} must answer with a number >= 0, got {answer} for {given}")
    return answer


def _reason(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
