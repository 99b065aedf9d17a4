"""Write a profile as an HTML page, or its figures as files.

The page is a single HTML file without scripts or external links: mail it, or open it from disk. Without --out
and --figures it goes to the working directory, under the profile's name.

  mpicoloc report mpicoloc-1234.h5 --out page.html
  mpicoloc report mpicoloc-1234.h5 --figures pictures --format svg,csv
"""

from __future__ import annotations

import argparse
import os

from mpicoloc import messages
from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import bounded
from mpicoloc.errors import UsageError
from mpicoloc.show import outputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("file", metavar="FILE", help="profile that a job wrote, mpicoloc-<job id>.h5")
    add("others", nargs="*", help=argparse.SUPPRESS)
    add("--out", metavar="PAGE", help="file for the page (default: the profile's name, with .html)")
    arguments.add_figures(parser, "the page")


@bounded
def run(args: argparse.Namespace) -> int:
    """Write the page or the figures, and print the page's name."""
    if args.others:
        raise UsageError(
            f"a page shows one profile, got {1 + len(args.others)}: make a page of each, or compare them "
            "with `mpicoloc compare`"
        )
    formats = arguments.formats_of(args)
    out = args.out
    if out is None and args.figures is None:
        out = os.path.splitext(os.path.basename(args.file))[0] + ".html"
    if out is not None:
        outputs.check(out, [args.file])
    from mpicoloc.profile import figures as profile_figures, profiles
    from mpicoloc.show.figures import Figure

    profile = profiles.read(args.file)
    sections = profile_figures.figures(profile, args.file)
    if args.figures is not None:
        parts = [part for _, found in sections for part in found]
        arguments.write_figures([part for part in parts if isinstance(part, Figure)], args.figures, formats)
        for part in parts:
            if not isinstance(part, Figure):
                messages.note(f"no figure {part.name}: {part.reason}")
    if out is not None:
        from mpicoloc.profile import signature
        from mpicoloc.profile.page import page

        with outputs.text_file(out) as file:
            file.write(page(profile, sections, signature.facts(args.file)))
        print(out)
    return 0
