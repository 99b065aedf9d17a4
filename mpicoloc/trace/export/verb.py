"""Write a profile in the format of another program.

Formats of traces need a profile of a job that was run with --trace; the others do not.

  mpicoloc export job.h5 --format perfetto --out job.json
"""

from __future__ import annotations

import argparse

from mpicoloc import messages
from mpicoloc.cli import helping
from mpicoloc.cli.memory import bounded
from mpicoloc.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    from mpicoloc.trace.export import formats

    parser.add_argument("file", metavar="FILE", help="profile that a job wrote, mpicoloc-<job id>.h5")
    wanted = parser.add_argument("--format", metavar="FORMAT", help=formats.HELP)
    helping.add_old_flag(parser, "--to", wanted)
    parser.add_argument("--out", metavar="PATH", required=True, help="file or folder to write")


@bounded
def run(args: argparse.Namespace) -> int:
    """Write it; 0, or an error that `main` reports."""
    from mpicoloc.profile.frames import open_profile
    from mpicoloc.show import outputs
    from mpicoloc.trace.export import formats

    if args.format is None:
        raise UsageError(f"--format is missing: give one of {', '.join(formats.FORMATS)}")
    wanted = formats.find(args.format)
    outputs.check(args.out, [args.file], is_folder=wanted.is_folder)
    job = open_profile(args.file)
    if warning := formats.warning(job, wanted, args.out):
        messages.note(warning)
    for note in formats.write(job, wanted, args.out):
        messages.note(note)
    return 0
