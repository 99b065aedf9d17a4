"""Print a shell script that completes mpicoloc's commands, flags, files and keywords.

The script is self-contained and starts no program when you press Tab; print it again after an upgrade.

  mpicoloc completion bash > ~/.local/share/bash-completion/completions/mpicoloc
  mpicoloc completion zsh > ~/.zfunc/_mpicoloc
  mpicoloc completion fish > ~/.config/fish/completions/mpicoloc.fish

For zsh that folder must be in fpath before compinit: fpath=(~/.zfunc $fpath).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

from mpicoloc import config
from mpicoloc.cli import arguments

SHELLS = ("bash", "zsh", "fish")
_FILES = re.compile(r"FILE|PATH|PROFILE|PAGE|SIGNED|KEYFILE|CC")
_FOLDERS = re.compile(r"FOLDER|DIR|SPOOL")
_PROGRAM = {
    "bash": "_mpicoloc_program",
    "zsh": "_command_names -e",
    "fish": "(__fish_complete_command)",
}
_PREAMBLE = {"bash": '_mpicoloc_program() { compgen -c -- "$1"; compgen -f -- "$1"; }'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from mpicoloc.cli import main

    parser = main.build_parser(*main.VERBS)[0]
    for each in _parsers(parser):
        for action in each._actions:
            _complete(action)
    print(shtab.complete(parser, args.shell, preamble=_PREAMBLE.get(args.shell, "")))
    return 0


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for child in arguments.actions_of(parser).values():
        yield from _parsers(child)


def _complete(action: Any) -> None:
    """Set an argument's completions. Its fields may be overwritten: this parser has no other use."""
    import shtab

    what = str(action.metavar or "")
    if action.nargs == argparse.REMAINDER:
        action.help, action.complete = "program and its arguments", _PROGRAM
    elif words := _words(action.dest, what):
        action.choices = words
    elif _FOLDERS.fullmatch(what):
        action.complete = shtab.DIRECTORY
    elif any(_FILES.fullmatch(word) for word in what.split("|")):
        action.complete = shtab.FILE


def _words(dest: str, what: str) -> list[str]:
    """The values of an argument that has no argparse `choices`, because its verb checks them."""
    if dest in config.BY_KEY:
        return list(config.BY_KEY[dest].choices)
    if what == "FORMAT":
        from mpicoloc.trace.export.verb import FORMATS

        return list(FORMATS)
    if what == "F":
        from mpicoloc.show.figures import FORMATS as PICTURES

        return list(PICTURES)
    return []
