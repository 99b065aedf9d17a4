"""Numbers for the `type=` of argparse. `cli.main.Parser` puts the flag's name before the message."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def number(text: str, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number in [least, most]."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and least <= value <= most):
        bounds = "" if math.isinf(least) else f" of at least {least:g}"
        bounds = bounds if math.isinf(most) else f" in [{least:g}, {most:g}]"
        raise argparse.ArgumentTypeError(f"must be a number{bounds}, got {text!r}")
    return value


def positive(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


def seconds(text: str) -> float:
    """A finite number of seconds, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, got {text!r}")
    return value


def whole(least: int = 1, most: int = 10**18) -> Callable[[str], int]:
    """A type for whole numbers in [least, most]."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 1000 else least - 1
        if not least <= value <= most:
            bound = f"least {least}" if value < least else f"most {most}"
            raise argparse.ArgumentTypeError(f"must be a whole number of at {bound}, got {text!r}")
        return value

    return parse


count = whole()
"""A whole number of at least 1."""
