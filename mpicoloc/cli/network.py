r"""Tell what a job does to each level of a fat-tree, the job's own or any other.

Bytes, injection rate, bandwidth available to the job's hosts and utilisation of each level, as in Jokanovic
2014, chapter 3: L0 is what leaves a host, L1 what leaves a first-level switch. Several placements and
slimmings are compared. Several profiles, each with its placement, are jobs that run together: which links
they share.

  mpicoloc network job.h5 --topology 'XGFT(3;16,16,8;1,16,16)' \
      --placement F8,RF --slimming 8,2
  mpicoloc network one.h5 two.h5 --topology cluster.yaml \
      --placement one.hosts --placement two.hosts
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from mpicoloc import config
from mpicoloc.cli import drawn
from mpicoloc.cli.memory import bounded
from mpicoloc.core import messages, progress
from mpicoloc.errors import DataError, UsageError

if TYPE_CHECKING:
    from mpicoloc.core.profile import Profile
    from mpicoloc.core.topology import Topology
    from mpicoloc.network.load.characterise import JobInput, NetworkInput
    from mpicoloc.network.topology.fabric import Fabric

LINK_RATE = str(config.BY_KEY["network.link_rate"].default)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("files", metavar="PROFILE", nargs="+", help="profile that a job wrote")
    add(
        "--topology",
        metavar="XGFT|FILE",
        required=True,
        help="a notation like 'XGFT(3;16,16,8;1,8,8)', YAML, Slurm's topology.conf, ibnetdiscover's output",
    )
    add(
        "--placement",
        metavar="F8|RF|run|FILE",
        action="append",
        help="k hosts on each first-level switch; at random; where the job ran, by its nodes' names; a file "
        "with the host of each rank. Several with commas, or once for each profile (default: run if the "
        "topology has names, else F with all hosts of a switch)",
    )
    add("--slimming", metavar="S", help="links up from each switch, not the topology's; several with commas")
    add("--up-links", metavar="W1,W2,..", help="w1 to wh, if the topology's file lacks them")
    add(
        "--link-rate",
        metavar="RATE",
        help=f"rate of links that have none in the topology, for all or each level with commas ({LINK_RATE})",
    )
    add("--ranks-per-host", metavar="N", default="1", help="for placements Fk and RF (1)")
    add("--routing", metavar="NAME", default="d-mod-k", help="d-mod-k, s-mod-k or random[:SEED] (d-mod-k)")
    add("--seed", metavar="N", default="0", help="for placement RF (0)")
    add("--duration-s", metavar="S", help="time in which the job sent its bytes (default: its run time)")
    add("--window-s", metavar="S", help="rates in windows of this length too, from a profile with a trace")
    add(
        "--monitoring",
        metavar="PREFIX",
        help="take the messages from PREFIX.<rank>.prof, which Open MPI's own components wrote",
    )
    add("--json", action="store_true", help="print the result as JSON")
    drawn.add_arguments(parser, "the result too,")


@bounded
def run(args: argparse.Namespace) -> int:
    """Print the levels of each case."""
    from mpicoloc.network.load.characterise import characterise
    from mpicoloc.profile import profiles
    from mpicoloc.report.terminal import network as report

    formats = drawn.formats_of(args)
    network = _network(args)
    files = progress.steps(args.files, "reading", unit="profiles")
    read = [(file, profiles.read(file)) for file in files]
    jobs = [_job(args, network.fabric, i, *job) for i, job in enumerate(read)]
    results = characterise(jobs, network)
    for note in results.notes:
        messages.note(note)
    if args.json:
        print(json.dumps(report.as_json(results.cases, results.shared), indent=2, allow_nan=False))
    else:
        report.show(results.cases, results.shared)
    sys.stdout.flush()
    if args.figures is not None:
        from mpicoloc.report.figures import network as pictures

        drawn.write(pictures.figures(results.cases, results.shared), args.figures, formats)
    return 0


def _network(args: argparse.Namespace) -> NetworkInput:
    """The network as the flags describe it."""
    from mpicoloc.network.load.characterise import NetworkInput
    from mpicoloc.network.topology import readers
    from mpicoloc.profile import network_files

    fabric = network_files.fabric_of(args.topology, args.link_rate or LINK_RATE, args.up_links)
    per_host, *more = readers.whole_numbers("--ranks-per-host", args.ranks_per_host)
    if more:
        raise UsageError(f"--ranks-per-host must be one whole number above 0, got {args.ranks_per_host!r}")
    config.parse_whole("--seed", args.seed, 0)
    return NetworkInput(
        fabric,
        _trees(args, fabric),
        args.routing,
        per_host,
        int(args.seed),
        _positive("--window-s", args.window_s),
        () if args.link_rate else fabric.assumed_levels,
        fabric.assumes_up_links and not args.slimming,
    )


def _trees(args: argparse.Namespace, fabric: Fabric) -> list[Topology]:
    """The topology under each slimming, none of them too large."""
    from mpicoloc.network.load import routing
    from mpicoloc.network.load.characterise import slimmed_trees
    from mpicoloc.network.topology import readers

    slimmings = readers.whole_numbers("--slimming", args.slimming) if args.slimming else []
    try:
        trees = slimmed_trees(fabric.topology, slimmings)
    except DataError as error:
        raise UsageError(f"--slimming {args.slimming}: {error}") from None
    for tree in trees:
        routing.check_links(tree)
    return trees


def _job(args: argparse.Namespace, fabric: Fabric, i: int, file: str, profile: Profile) -> JobInput:
    """Profile `i` with what the flags say of it."""
    from mpicoloc.profile import network_files

    given, n = args.placement or [], len(args.files)
    if n > 1 and len(given) not in (0, 1, n):
        raise UsageError(
            f"--placement must be given once, or once for each of the {n} profiles, got {len(given)}"
        )
    if args.monitoring and n > 1:
        raise UsageError(f"--monitoring {args.monitoring!r} is of one profile, got {n}")
    names = (given[i] if len(given) == n > 1 else ",".join(given)) if given else None
    duration_s = _positive("--duration-s", args.duration_s) or profile.job.wall_s or None
    choices = network_files.placements_of(names, fabric)
    return network_files.job_input(file, profile, choices, duration_s, args.monitoring)


def _positive(flag: str, text: str | None) -> float | None:
    return None if text is None else config.parse_positive(flag, text)
