"""Write a profile in the format of another program.

Formats of traces need a profile of a job that was run with --trace; the others do not.

  mpicoloc export job.h5 --to perfetto --out job.json
"""

from __future__ import annotations

import argparse

from mpicoloc.cli import tell
from mpicoloc.cli.memory import bounded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    from mpicoloc.report.export import formats

    parser.add_argument("file", metavar="FILE", help="profile that a job wrote, mpicoloc-<job id>.h5")
    parser.add_argument("--to", metavar="FORMAT", required=True, help=formats.HELP)
    parser.add_argument("--out", metavar="PATH", required=True, help="file or folder to write")


@bounded
def run(args: argparse.Namespace) -> int:
    """Write it; 0, or an error that `main` reports."""
    from mpicoloc.report.export import formats, outputs
    from mpicoloc.store.frames import open_profile

    wanted = formats.find(args.to)
    outputs.check(args.out, [args.file], is_folder=wanted.is_folder)
    job = open_profile(args.file)
    if warning := formats.warning(job, wanted, args.out):
        tell.note(warning)
    for note in formats.write(job, wanted, args.out):
        tell.note(note)
    return 0
