"""Figures of a verb as files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpicoloc import messages
from mpicoloc.errors import UsageError

if TYPE_CHECKING:
    from mpicoloc.show.figures import Figure


def add_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    """Flags for figures as files."""
    parser.add_argument("--figures", metavar="FOLDER", help=f"draw {what} into files of this folder")
    parser.add_argument(
        "--format",
        metavar="F",
        help="format of the figures: svg, png or csv (their data); several with commas (default: all)",
    )


def formats_of(args: argparse.Namespace) -> tuple[str, ...]:
    """What `--format` names; nothing can be asked for where there is no `--figures`."""
    from mpicoloc.show import figures

    if args.format is not None and args.figures is None:
        raise UsageError("--format is of figures: give --figures FOLDER too")
    return figures.formats_of(args.format)


def write(made: Sequence[Figure], folder: str, formats: Sequence[str]) -> None:
    """Write the figures and tell how many."""
    from mpicoloc.show import figures

    written = figures.save(made, folder, formats)
    messages.note(f"{len(made)} figures, {len(written)} files in {folder}")
