r"""Show the load that a job puts on each level of its own fat-tree, or of any other.

Prints the bytes, injection rate, bandwidth available to the job's hosts, and utilisation of each level, as in
Jokanovic 2014, chapter 3: L0 counts traffic that leaves a host, L1 traffic that leaves a first-level switch.
Compares several placements and slimmings. Several profiles, each with its placement, stand for jobs that run
together: the output then lists the links that they share.

  mpicoloc network job.h5 --topology 'XGFT(3;16,16,8;1,16,16)' \
      --placement F8,RF --slimming 8,2
  mpicoloc network one.h5 two.h5 --topology cluster.yaml \
      --placement one.hosts --placement two.hosts
"""

from __future__ import annotations

import argparse
import json
import sys

from mpicoloc import messages
from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import bounded
from mpicoloc.core import progress
from mpicoloc.network import flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("files", metavar="PROFILE", nargs="+", help="profile that a job wrote")
    flags.add_fabric(parser)
    add(
        "--slimming",
        metavar="S",
        help="uplinks of each switch, in place of the topology's; several, separated by commas",
    )
    flags.add_routes(parser)
    add(
        "--window-s",
        type=arguments.positive,
        metavar="S",
        help="also print rates in windows of this length, from a profile with a trace",
    )
    add(
        "--monitoring",
        metavar="PREFIX",
        help="read the messages from PREFIX.<rank>.prof, written by Open MPI's monitoring components",
    )
    add("--json", action="store_true", help="print the result as JSON")
    arguments.add_figures(parser, "the result")


@bounded
def run(args: argparse.Namespace) -> int:
    """Print the levels of each case."""
    from mpicoloc.network import files, terminal as report
    from mpicoloc.network.characterise import characterise
    from mpicoloc.profile import profiles

    formats = arguments.formats_of(args)
    network = files.network_of(args)
    paths = progress.steps(args.files, "reading", unit="profiles")
    read = [(path, profiles.read(path)) for path in paths]
    files.tell_run_delay(profile for _, profile in read)
    jobs = [files.job_of(args, network.fabric, i, *job) for i, job in enumerate(read)]
    results = characterise(jobs, network)
    for note in results.notes:
        messages.note(note)
    if args.json:
        print(json.dumps(report.as_json(results.cases, results.shared), indent=2, allow_nan=False))
    else:
        report.show(results.cases, results.shared)
    sys.stdout.flush()
    if args.figures is not None:
        from mpicoloc.network import figures as pictures

        arguments.write_figures(pictures.figures(results.cases, results.shared), args.figures, formats)
    return 0
