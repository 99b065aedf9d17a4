"""Numbers with units as text: bytes in powers of 1024 (KiB, MiB), bits in powers of 1000, as on links."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np

from mpicoloc.errors import DataError, UsageError

PLACES = 6
MAX_USU = 10**18
"""Largest amount of one transaction: 10^12 SU."""


def usu_of_text(text: str, source: str) -> int:
    """Exact micro-SU of an amount that a user wrote in SU.

    Raises
    ------
    UsageError
        If the text is not a number, or the amount is below 0, too large, or not a whole number of micro-SU.
    """
    try:
        amount = Decimal(text)
    except ArithmeticError:
        raise UsageError(f"{source} must be a number of service units, got {text!r}") from None
    # Compare before scaling, because comparing is exact, but scaling rounds and fails for extreme exponents.
    if not amount.is_finite() or not 0 <= amount <= MAX_USU // 10**PLACES:
        raise UsageError(f"{source} must be in [0, {MAX_USU // 10**PLACES}] SU, got {text}")
    rounded = amount.quantize(Decimal(1).scaleb(-PLACES))
    if amount != rounded:
        raise UsageError(f"{source} must have at most {PLACES} decimal places, got {text}")
    return int(rounded.scaleb(PLACES))


def usu_of_su(amount_su: float) -> int:
    """Micro-SU of a price in SU, rounded half to even.

    Raises
    ------
    DataError
        If the price is not a number, is below 0 or is too large.
    """
    if not (math.isfinite(amount_su) and 0 <= amount_su <= MAX_USU / 10**PLACES):
        raise DataError(f"a price must be in [0, {MAX_USU // 10**PLACES}] SU, got {amount_su}")
    return int(Decimal(amount_su).scaleb(PLACES).to_integral_value(ROUND_HALF_EVEN))


def su_text(amount_usu: int) -> str:
    """An amount of micro-SU as text in SU, exact and without trailing zeros."""
    whole, rest = divmod(abs(amount_usu), 10**PLACES)
    text = f"{whole}.{rest:0{PLACES}}".rstrip("0").rstrip(".")
    return f"-{text}" if amount_usu < 0 else text


_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_PREFIXES = ("", "k", "M", "G", "T", "P")
_WITH_DAYS = re.compile(r"(\d{1,9})-(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_WITHOUT_DAYS = re.compile(r"(?:(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})|(\d{1,9}))", re.ASCII)


def counted(n: int, what: str) -> str:
    """A number with its noun: ``1 job``, ``2 jobs``."""
    return f"{n:,} {what}{'s'[: int(n != 1)]}"


_MORE_DIGITS = 4


def ends(low: float, high: float, form: str = ".3f") -> str:
    """The ends of an interval as text, with up to `_MORE_DIGITS` more digits if they would look equal.

    The text is empty if the ends look equal even with these digits.
    """
    n_digits, kind = int(form[1:-1]), form[-1]
    for n in range(n_digits, n_digits + _MORE_DIGITS + 1):
        first, last = (format(end, f".{n}{kind}") for end in (low, high))
        if first != last:
            return f"{first} to {last}"
    return ""


def seconds(value_s: float) -> str:
    """A time as text, in a unit that suits its size."""
    if not math.isfinite(value_s):
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value_s >= scale:
            return f"{value_s / scale:.4g} {unit}" if value_s < 1e4 else f"{value_s:,.0f} s"
    return f"{value_s * 1e9:.0f} ns" if value_s else "0 s"


def slurm_seconds(text: str) -> float | None:
    """Seconds of a time in Slurm's notation; None if it is not a time (``UNLIMITED``)."""
    if found := _WITH_DAYS.fullmatch(text):
        days, hours, minutes, rest_s = (int(part or 0) for part in found.groups())
        hours += 24 * days
    elif found := _WITHOUT_DAYS.fullmatch(text):
        hours, minutes, rest_s, only_minutes = (int(part or 0) for part in found.groups())
        minutes += only_minutes
    else:
        return None
    return float((hours * 60 + minutes) * 60 + rest_s)


def amount(n_bytes: float | int | np.integer | None) -> str:
    """Bytes as text, in a binary unit that suits their number."""
    if n_bytes is None:
        return "-"
    value, i_unit = _scaled(float(n_bytes), 1024, len(_BYTES))
    return f"{value:.4g} {_BYTES[i_unit]}"


def rate(value_bps: float | None) -> str:
    """Bytes per second as text, in a binary unit that suits their number."""
    return "unknown" if value_bps is None else f"{amount(value_bps)}/s"


def link_rate(capacity_bps: float) -> str:
    """The rate of a link, given in bytes/s, as text in bits/s."""
    value, i_prefix = _scaled(capacity_bps * 8, 1000, len(_PREFIXES))
    return f"{value:.4g} {_PREFIXES[i_prefix]}bit/s"


def byte_unit(most: float) -> tuple[float, str]:
    """The unit that suits numbers of bytes up to `most`: its size in bytes, and its name."""
    _, i_unit = _scaled(most, 1024, len(_BYTES))
    return 1024.0**i_unit, _BYTES[i_unit]


def _scaled(value: float, step: int, n_units: int) -> tuple[float, int]:
    i_unit = 0
    while abs(value) >= step and i_unit + 1 < n_units:
        value /= step
        i_unit += 1
    return value, i_unit
