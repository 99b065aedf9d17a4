"""Amounts of service units (SU) as whole numbers of micro-SU (uSU), so that sums are exact."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Decimal

from mpicoloc.errors import DataError, UsageError

PLACES = 6
MAX_USU = 10**18
"""Largest amount of one transaction: a million million SU."""


def usu_of_text(text: str, source: str) -> int:
    """Micro-SU of an amount that a user wrote in SU, exactly.

    Raises
    ------
    UsageError
        If it is no number, below 0, too large, or finer than a micro-SU.
    """
    try:
        amount = Decimal(text)
    except ArithmeticError:
        raise UsageError(f"{source} must be a number of service units, got {text!r}") from None
    # Comparing is exact at any size. Scaling rounds, and fails for huge or tiny exponents.
    if not amount.is_finite() or not 0 <= amount <= MAX_USU // 10**PLACES:
        raise UsageError(f"{source} must be in [0, {MAX_USU // 10**PLACES}] SU, got {text}")
    rounded = amount.quantize(Decimal(1).scaleb(-PLACES))
    if amount != rounded:
        raise UsageError(f"{source} must have at most {PLACES} decimal places, got {text}")
    return int(rounded.scaleb(PLACES))


def usu_of_su(amount_su: float) -> int:
    """Micro-SU of a price in SU, rounded to the nearest one, halves to the even one.

    Raises
    ------
    DataError
        If it is no number, below 0 or too large.
    """
    if not (math.isfinite(amount_su) and 0 <= amount_su <= MAX_USU / 10**PLACES):
        raise DataError(f"a price must be in [0, {MAX_USU // 10**PLACES}] SU, got {amount_su}")
    return int(Decimal(amount_su).scaleb(PLACES).to_integral_value(ROUND_HALF_EVEN))


def su_text(amount_usu: int) -> str:
    """An amount of micro-SU as text in SU, exact and without trailing zeros."""
    whole, rest = divmod(abs(amount_usu), 10**PLACES)
    text = f"{whole}.{rest:0{PLACES}}".rstrip("0").rstrip(".")
    return f"-{text}" if amount_usu < 0 else text
