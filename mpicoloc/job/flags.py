"""Flags of the verbs that start a job: one for each row of the option table."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from mpicoloc import config
from mpicoloc.errors import UsageError
from mpicoloc.pmpi import elf

FIRST = ("out", "job_id", "trace", "meter")
"""The most common options, besides ``-n``."""


def add_first(parser: argparse.ArgumentParser) -> None:
    """Flags of the options in `FIRST`."""
    for key in FIRST:
        _add(parser, config.BY_KEY[key])


def add_advanced(group: argparse._ArgumentGroup) -> None:
    """Flags of all other options."""
    for option in config.OPTIONS:
        if option.key not in FIRST:
            _add(group, option)


def _add(to: argparse.ArgumentParser | argparse._ArgumentGroup, option: config.Option) -> None:
    default = f"default {option.default_text}; " if option.default_text else ""
    shown = f"{option.help} ({default}{option.env})".replace("%", "%%")
    to.add_argument(option.flag, dest=option.key, metavar=option.metavar, help=shown)
    if option.key == "patching":
        to.add_argument("--no-patching", dest=option.key, action="store_const", const="0",
                        help="the same as --patching 0")  # fmt: skip


def given(args: argparse.Namespace) -> dict[str, str | None]:
    """The text of each option that was given, by key."""
    return {option.key: getattr(args, option.key) for option in config.OPTIONS}


def application(words: Sequence[str], what: str, usage: str) -> list[str]:
    """The program and its arguments, without a ``--`` before them.

    Raises `UsageError` if there is no program; the message says that `what` is missing, and shows `usage`.
    """
    app = list(words[1:] if words[:1] == ["--"] else words)
    if not app:
        raise UsageError(f"no {what} named; write: {usage}")
    return app


def prepare_argv(argv: Sequence[str], flags_with_value: Sequence[str]) -> list[str]:
    """Give ``--trace`` its value: the next word if it is a valid value, else the default.

    Raises `UsageError` if the next word is neither a value nor a program.
    """
    own = split_own(argv, flags_with_value)
    words = list(argv[:own])
    for i, word in enumerate(words):
        if word == "--trace":
            has_value = i + 1 < own and config.is_trace_value(words[i + 1])
            if i + 1 == own < len(argv):
                _check_program(argv[own])
            words[i] = f"--trace={words.pop(i + 1) if has_value else config.TRACE_EVENTS}"
            break
    return words + list(argv[own:])


def _check_program(word: str) -> None:
    """Refuse a word after ``--trace`` that is not a program, because it may be meant as a value."""
    if word != "--" and "/" not in word and not os.path.exists(word) and elf.which(word) is None:
        raise UsageError(
            f"--trace must be a whole number or {config.BY_KEY['trace'].minus_one_word}, got {word!r} "
            "(which is not a program in PATH either)"
        )


def split_own(argv: Sequence[str], flags_with_value: Sequence[str]) -> int:
    """Number of leading words that belong to the verb and not to the application."""
    flags = {row.flag for row in config.OPTIONS}
    flags = flags.union(flags_with_value) - {config.BY_KEY["trace"].flag}
    i = 0
    while i < len(argv) and argv[i].startswith("-"):
        if argv[i] == "--":
            return i
        has_value = argv[i] == "--trace" and i + 1 < len(argv) and config.is_trace_value(argv[i + 1])
        i += 2 if argv[i] in flags or has_value else 1
    return min(i, len(argv))
