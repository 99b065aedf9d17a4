"""Flags of the verbs that put jobs on a fabric: which one, where the ranks are, how they are routed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mpicoloc import config
from mpicoloc.cli import numbers
from mpicoloc.errors import DataError, UsageError

if TYPE_CHECKING:
    from mpicoloc.core.profile import Profile
    from mpicoloc.core.topology import Topology
    from mpicoloc.network.characterise import JobInput, NetworkInput
    from mpicoloc.network.topology.fabric import Fabric

LINK_RATE = str(config.BY_KEY["network.link_rate"].default)


def add_topology(parser: argparse.ArgumentParser, is_required: bool = True) -> None:
    """Which fabric."""
    parser.add_argument(
        "--topology",
        metavar="XGFT|FILE",
        required=is_required,
        help="a notation like 'XGFT(3;16,16,8;1,8,8)', YAML, Slurm's topology.conf, ibnetdiscover's output",
    )


def add_links(parser: argparse.ArgumentParser) -> None:
    """What the topology's file may lack."""
    add = parser.add_argument
    add("--up-links", metavar="W1,W2,..", help="w1 to wh, if the topology's file lacks them")
    add(
        "--link-rate",
        metavar="RATE",
        help=f"rate of links that have none in the topology, for all or each level with commas ({LINK_RATE})",
    )


def add_ranks_per_host(parser: argparse.ArgumentParser) -> None:
    """What some placements need."""
    parser.add_argument(
        "--ranks-per-host", type=numbers.count, metavar="N", default=1, help="for placements Fk and RF (1)"
    )


def add_fabric(parser: argparse.ArgumentParser) -> None:
    """The fabric, and the placements of jobs."""
    parser.set_defaults(slimming=None, window_s=None, monitoring=None)  # which not all verbs have
    add_topology(parser)
    parser.add_argument(
        "--placement",
        metavar="F8|RF|run|FILE",
        action="append",
        help="k hosts on each first-level switch; at random; where the job ran, by its nodes' names; a file "
        "with the host of each rank. Several with commas, or once for each profile (default: run if the "
        "topology has names, else F with all hosts of a switch)",
    )


def add_routes(parser: argparse.ArgumentParser) -> None:
    """Links, routes, and what placements need."""
    add_links(parser)
    add_ranks_per_host(parser)
    add = parser.add_argument
    add("--routing", metavar="NAME", default="d-mod-k", help="d-mod-k, s-mod-k or random[:SEED] (d-mod-k)")
    add("--seed", type=numbers.whole(0), metavar="N", default=0, help="for placement RF (0)")
    add(
        "--duration-s",
        type=numbers.positive,
        metavar="S",
        help="time in which the job sent its bytes (default: its run time)",
    )


def network_of(args: argparse.Namespace) -> NetworkInput:
    """The network as the flags describe it."""
    from mpicoloc.network import files
    from mpicoloc.network.characterise import NetworkInput

    fabric = files.fabric_of(args.topology, args.link_rate or LINK_RATE, args.up_links)
    return NetworkInput(
        fabric,
        _trees(args, fabric),
        args.routing,
        args.ranks_per_host,
        args.seed,
        args.window_s,
        () if args.link_rate else fabric.assumed_levels,
        fabric.assumes_up_links and not args.slimming,
    )


def _trees(args: argparse.Namespace, fabric: Fabric) -> list[Topology]:
    """The topology under each slimming, none of them too large."""
    from mpicoloc.network import routing
    from mpicoloc.network.characterise import slimmed_trees
    from mpicoloc.network.topology import readers

    slimmings = readers.whole_numbers("--slimming", args.slimming) if args.slimming else []
    try:
        trees = slimmed_trees(fabric.topology, slimmings)
    except DataError as error:
        raise UsageError(f"--slimming {args.slimming}: {error}") from None
    for tree in trees:
        routing.check_links(tree)
    return trees


def job_of(args: argparse.Namespace, fabric: Fabric, i: int, file: str, profile: Profile) -> JobInput:
    """Profile `i` with what the flags say of it."""
    from mpicoloc.network import files

    given, n = args.placement or [], len(args.files)
    if n > 1 and len(given) not in (0, 1, n):
        raise UsageError(
            f"--placement must be given once, or once for each of the {n} profiles, got {len(given)}"
        )
    if args.monitoring and n > 1:
        raise UsageError(f"--monitoring {args.monitoring!r} is of one profile, got {n}")
    names = (given[i] if len(given) == n > 1 else ",".join(given)) if given else None
    duration_s = args.duration_s or profile.job.wall_s or None
    choices = files.placements_of(names, fabric)
    return files.job_input(file, profile, choices, duration_s, args.monitoring)
