"""Price functions by name: F(rate_su, T_solo, T_co) of Breslow et al. 2013, Eq. 2, in SU per core-hour.

A name is one of `PRICINGS`, an entry point that an installed package declares in the group
``mpicoloc.pricings``, ``module:function``, or ``path/file.py:function``. This module imports few others,
because `config` checks the name on every rank before the job starts.
"""

from __future__ import annotations

import math
import sys

from mpicoloc.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    RateFunction = Callable[[float, float, float], float]

ENTRY_POINTS = "mpicoloc.pricings"
"""Group of entry points in which a site's package declares its price functions."""


def fair_rate(rate_su: float, t_solo_s: float, t_corun_s: float) -> float:
    """F of Eq. 3: the rate times T_solo/T_co, but at most the rate, so that noise causes no surcharge."""
    return rate_su * min(1.0, t_solo_s / t_corun_s)


def runtime_rate(rate_su: float, t_solo_s: float, t_corun_s: float) -> float:
    """The rate without a discount, at which Eq. 2 gives the same price as Eq. 1."""
    return rate_su * t_corun_s / t_solo_s


PRICINGS: dict[str, RateFunction] = {"fair": fair_rate, "runtime": runtime_rate}
"""The built-in price functions."""
_is_import_path_complete = False


def is_pricing(name: str) -> bool:
    """Whether a name may denote a pricing. This does not import its module: only computing a price does."""
    return name in PRICINGS or is_code_location(name) or name in entry_points()


def is_code_location(name: str) -> bool:
    """Whether `name` has the form ``module:function`` or ``file.py:function``."""
    module, colon, function = name.rpartition(":")
    return bool(colon and module and function.isidentifier())


def entry_points() -> dict[str, Any]:
    """The entry points with which installed packages declare price functions, by name."""
    import importlib.metadata

    _complete_import_path()
    return {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}


def register(name: str, function: RateFunction) -> None:
    """Add or replace a pricing, for this process only. Installed packages declare an entry point instead.

    Parameters
    ----------
    name : str
        Name of the function for ``--pricing``.
    function : callable
        F(rate_su, t_solo_s, t_corun_s) in SU per core-hour.
    """
    PRICINGS[name] = function


def find(name: str) -> RateFunction:
    """The function called `name`.

    Raises
    ------
    UsageError
        If the name is unknown, or denotes code that cannot be loaded or is not a function.
    """
    if name in PRICINGS:
        return PRICINGS[name]
    points = {} if is_code_location(name) else entry_points()
    if not is_code_location(name) and name not in points:
        known = ", ".join(sorted({*PRICINGS, *points}))
        raise UsageError(f"unknown pricing {name!r}: choose one of {known}, or module:function")
    try:
        function = points[name].load() if name in points else _load(name)
    except Exception as error:
        raise UsageError(f"pricing {name!r} cannot be loaded ({_error_text(error)})") from error
    if not callable(function):
        raise UsageError(f"pricing {name!r} is not a function but of type {type(function).__name__}")
    return function


def _load(name: str) -> Any:
    module, _, function = name.rpartition(":")
    return getattr(_module_of_file(module) if module.endswith(".py") else _module_of_name(module), function)


def _module_of_name(name: str) -> ModuleType:
    import importlib

    _complete_import_path()
    return importlib.import_module(name)


def _complete_import_path() -> None:
    """Add .pth files and user packages to the import path, as `site` does, if `quick_start` skipped it."""
    global _is_import_path_complete
    if sys.flags.no_site and not _is_import_path_complete:
        import site

        site.main()
    _is_import_path_complete = True


def _module_of_file(path: str) -> ModuleType:
    import importlib.util

    spec = importlib.util.spec_from_file_location("mpicoloc_site_pricing", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rate(name: str, function: RateFunction, rate_su: float, t_solo_s: float, t_corun_s: float) -> float:
    """Call a price function and check the rate that it returns, in SU per core-hour.

    Raises `UsageError` if the function fails or does not return a number >= 0.
    """
    try:
        answer = float(function(rate_su, t_solo_s, t_corun_s))
    except Exception as error:
        raise UsageError(f"pricing {name!r} failed ({_error_text(error)})") from error
    if not (math.isfinite(answer) and answer >= 0):
        given = f"rate_su={rate_su:g}, t_solo_s={t_solo_s:g}, t_corun_s={t_corun_s:g}"
        raise UsageError(f"pricing {name!r} must return a number >= 0, got {answer} for {given}")
    return answer


def _error_text(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
