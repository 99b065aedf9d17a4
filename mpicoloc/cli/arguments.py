"""Helpers that several verbs share: number types for argparse, help layout, figure flags, a memory limit.

The number types raise errors without the name of the flag: `cli.main.Parser` puts it before their messages.
"""

from __future__ import annotations

import argparse
import functools
import math
import re
import resource
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mpicoloc import messages
from mpicoloc.errors import DataError, UsageError

if TYPE_CHECKING:
    from mpicoloc.show.figures import Figure


WIDEST_COLUMNS = 100
EXAMPLES = "examples:"
_COMMAND = re.compile(r"  \S*(sudo |\$\(|\b)mpicoloc ")


class GroupedWords(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Subparsers that the help lists in groups."""

    groups: Mapping[str, Iterable[str]]


class Formatter(argparse.HelpFormatter):
    """Help formatter that wraps prose but leaves indented blocks as they are."""

    def __init__(self, prog: str, width: int | None = None, **kwargs: Any) -> None:
        import shutil

        columns = min(shutil.get_terminal_size().columns - 2, WIDEST_COLUMNS)
        super().__init__(prog, width=columns if width is None else width, **kwargs)

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, GroupedWords):
            return super()._format_action(action)
        lines = {entry.dest: entry for entry in action._get_subactions()}
        parts = []
        for title, words in action.groups.items():
            parts.append(f"{'':{self._current_indent}}{title}:\n")
            self._indent()
            parts += [super(Formatter, self)._format_action(lines[word]) for word in words]
            self._dedent()
        return "".join(parts)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        parts = [
            part if part.startswith(("  ", EXAMPLES)) else textwrap.fill(" ".join(part.split()), width)
            for part in text.split("\n\n")
        ]
        return textwrap.indent("\n\n".join(parts), indent)


def describe(parser: argparse.ArgumentParser, text: str) -> None:
    """Set the description and the examples of a parser."""
    parts = text.strip("\n").split("\n\n")
    commands = [part for part in parts if _COMMAND.match(part)]
    parser.description = "\n\n".join(part for part in parts if part not in commands)
    if commands:
        parser.epilog = f"{EXAMPLES}\n" + "\n".join(commands)


def action(
    actions: Any, command: str, words: str, arguments: str = "", act: object = None
) -> argparse.ArgumentParser:
    """Add a subcommand of a verb, with its own parser; `act` runs it."""
    parser: argparse.ArgumentParser = actions.add_parser(command.split()[-1], help=words)
    root = "sudo " if "needs root" in words else ""
    example = f"  {root}mpicoloc {command} {arguments}".rstrip()
    describe(parser, f"{words[0].upper()}{words[1:]}.\n\n{example}")
    parser.set_defaults(act=act)
    return parser


def innermost_parser(parser: argparse.ArgumentParser, args: argparse.Namespace) -> argparse.ArgumentParser:
    """The parser of the subcommand in this call, or `parser` if it has no subcommand."""
    for found in parser._actions:
        if isinstance(found, argparse._SubParsersAction):
            word = getattr(args, found.dest, None)
            return innermost_parser(found.choices[word], args) if word in found.choices else parser
    return parser


def actions_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a verb's subcommands, by name."""
    found = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next((dict(action.choices) for action in found), {})


T = TypeVar("T")


def bounded(run: Callable[[Namespace], T]) -> Callable[[Namespace], T]:
    """Limit a verb to `profile.sandbox.MEMORY_BYTES` of memory beyond what it has when it starts.

    Each process that reads files for the verb has its own limit of the same size.
    """

    @functools.wraps(run)
    def within(args: Namespace) -> T:
        from mpicoloc.profile import sandbox

        before = resource.getrlimit(resource.RLIMIT_AS)
        most = sandbox.address_space_bytes() + sandbox.MEMORY_BYTES
        # Lower only the soft limit, because a program that calls `main` must be able to raise it again.
        is_lower = before[0] == resource.RLIM_INFINITY or most < before[0]
        resource.setrlimit(resource.RLIMIT_AS, (most, before[1]) if is_lower else before)
        try:
            return run(args)
        except MemoryError as error:
            raise DataError(
                f"the command needs more than {sandbox.MEMORY_BYTES >> 20} MiB of memory: give fewer "
                "files, or only a part of the trace"
            ) from error
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    return within


def add_figures(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the flags that write figures to files."""
    parser.add_argument("--figures", metavar="FOLDER", help=f"write figures of {what} to this folder")
    parser.add_argument(
        "--format",
        metavar="F",
        help="formats of the figures, separated by commas: svg, png, csv (their data) (default: all)",
    )


def formats_of(args: argparse.Namespace) -> tuple[str, ...]:
    """The formats that `--format` names. Raises `UsageError` if `--figures` is missing."""
    from mpicoloc.show import figures

    if args.format is not None and args.figures is None:
        raise UsageError("--format applies only to figures: add --figures FOLDER")
    return figures.formats_of(args.format)


def write_figures(made: Sequence[Figure], folder: str, formats: Sequence[str]) -> None:
    """Write the figures and report their number."""
    from mpicoloc.core.units import counted
    from mpicoloc.show import figures

    written = figures.save(made, folder, formats)
    messages.note(f"{counted(len(made), 'figure')} written to {counted(len(written), 'file')} in {folder}")


Number = TypeVar("Number", int, float)


def add_layout(parser: argparse.ArgumentParser, spread: str, otherwise: str = "") -> None:
    """The flag for the layout of jobs on a node; `spread` says what numbers mean in the layout spread."""
    parser.add_argument(
        "--layout",
        metavar="LAYOUT",
        default="",
        help="turns: jobs on the same processors; cores: on processors of their own; spread: on half of each "
        f"of twice the nodes, {spread} (default: the layout of the slowdowns{otherwise})",
    )


def note_together(n_co_runners: int) -> None:
    """Note that slowdowns beside several co-runners follow from measurements beside one."""
    if n_co_runners > 1:
        messages.note(
            f"slowdowns were measured beside one job or bubble: the effect of {n_co_runners} co-runners "
            "together is a guess"
        )


def parse(flag: str, text: str, parsed: Callable[[str], Number]) -> Number:
    """Parse part of a flag's value with one of the types below. Raises `UsageError`."""
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
    """An argparse type for whole numbers in [least, most]."""

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
    """An argparse type for numbers of bytes in [least, most], such as 65536, 64KiB or 1.5MB."""

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
    """An argparse type for a comma-separated list of numbers of another type."""
    return lambda text: tuple(parsed(word.strip()) for word in text.split(","))
