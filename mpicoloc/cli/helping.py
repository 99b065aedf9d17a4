"""How help is laid out: what a verb does, its arguments, and examples that work."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import Any

WIDEST_COLUMNS = 100
EXAMPLES = "examples:"
_COMMAND = re.compile(r"  \S*(sudo |\$\(|\b)mpicoloc ")


class GroupedWords(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Verbs of which the help makes groups."""

    groups: Mapping[str, Iterable[str]]


class Formatter(argparse.HelpFormatter):
    """Prose is wrapped, what is indented stays as it is."""

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
    """Set description and examples of a parser."""
    parts = text.strip("\n").split("\n\n")
    commands = [part for part in parts if _COMMAND.match(part)]
    parser.description = "\n\n".join(part for part in parts if part not in commands)
    if commands:
        parser.epilog = f"{EXAMPLES}\n" + "\n".join(commands)


def action(
    actions: Any, command: str, words: str, arguments: str = "", act: object = None
) -> argparse.ArgumentParser:
    """A word that may follow a verb, with a parser of its own; `act` is what runs it."""
    parser: argparse.ArgumentParser = actions.add_parser(command.split()[-1], help=words)
    root = "sudo " if "needs root" in words else ""
    example = f"  {root}mpicoloc {command} {arguments}".rstrip()
    describe(parser, f"{words[0].upper()}{words[1:]}.\n\n{example}")
    parser.set_defaults(act=act)
    return parser


def innermost_parser(parser: argparse.ArgumentParser, args: argparse.Namespace) -> argparse.ArgumentParser:
    """The parser of the word that followed the verb in a call, or the verb's where there is none."""
    for found in parser._actions:
        if isinstance(found, argparse._SubParsersAction):
            word = getattr(args, found.dest, None)
            return innermost_parser(found.choices[word], args) if word in found.choices else parser
    return parser


def actions_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Parsers of the words that may follow a verb, by word."""
    found = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next((dict(action.choices) for action in found), {})
