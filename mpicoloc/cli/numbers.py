"""Numbers for the `type=` of argparse. `cli.main.Parser` puts the flag's name before the message."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import TypeVar

from mpicoloc.errors import UsageError

Number = TypeVar("Number", int, float)


def parse(flag: str, text: str, parsed: Callable[[str], Number]) -> Number:
    """The number in a part of a flag's value, by one of the types below. Raises `UsageError`."""
    try:
        return parsed(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{flag} {error}") from None


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


def size(least: int = 0, most: int = 10**24) -> Callable[[str], int]:
    """A type for numbers of bytes in [least, most] like 65536, 64KiB or 1.5MB."""

    def parse(text: str) -> int:
        match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([kMG]|[KMG]i)?B?", text, re.ASCII)
        if match is None:
            raise argparse.ArgumentTypeError(
                f"must be a number of bytes, like 65536, 64KiB or 1.5MB, got {text!r}"
            )
        prefix = match[2] or ""
        step = 1024 if prefix.endswith("i") else 1000
        n_bytes = round(float(match[1]) * step ** " kMG".index(prefix[:1].replace("K", "k") or " "))
        if not least <= n_bytes <= most:
            bound = f"least {least:,}" if n_bytes < least else f"most {most:,}"
            raise argparse.ArgumentTypeError(f"must be at {bound}, got {text}")
        return n_bytes

    return parse


def several(parsed: Callable[[str], Number]) -> Callable[[str], tuple[Number, ...]]:
    """A type for numbers of another type with commas between."""
    return lambda text: tuple(parsed(word.strip()) for word in text.split(","))
