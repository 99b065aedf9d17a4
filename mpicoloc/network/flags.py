"""Flags of the verbs that place jobs on a fabric: the fabric, placements and routing."""

from __future__ import annotations

import argparse

from mpicoloc import config
from mpicoloc.cli import arguments

LINK_RATE = str(config.BY_KEY["network.link_rate"].default)


def add_topology(parser: argparse.ArgumentParser) -> None:
    """Add --topology. It is not a required flag, because `--sweep topology` may supply the topology."""
    parser.add_argument(
        "--topology",
        metavar="XGFT|FILE",
        help="the network: 'XGFT(3;16,16,8;1,8,8)', or a file: YAML, Slurm's topology.conf or topology.yaml, "
        "output of ibnetdiscover",
    )


def add_links(parser: argparse.ArgumentParser) -> None:
    """Add flags for facts that the topology's file may lack."""
    add = parser.add_argument
    add("--up-links", metavar="W1,W2,..", help="w1 to wh, if the topology lacks them")
    add(
        "--link-rate",
        metavar="RATE",
        help="rate of links that have none in the topology: one for all, or one per level, separated by "
        f"commas ({LINK_RATE})",
    )


def add_ranks_per_host(parser: argparse.ArgumentParser) -> None:
    """Add --ranks-per-host, which some placements need."""
    parser.add_argument(
        "--ranks-per-host",
        type=arguments.count,
        metavar="N",
        default=1,
        help="ranks on each host, for placements Fk and RF (1)",
    )


def add_fabric(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the fabric and of the jobs' placements."""
    parser.set_defaults(
        slimming=None, window_s=None, monitoring=None
    )  # attributes of flags that some verbs lack
    add_topology(parser)
    parser.add_argument(
        "--placement",
        metavar="F8|RF|run|FILE",
        action="append",
        help="F8: 8 hosts on each first-level switch; RF: random hosts; run: where the job ran, by its "
        "nodes' names; or a file with the host of each rank. Several, separated by commas, or once for each "
        "profile "
        "(default: run if the topology has names, else F with all hosts of a switch)",
    )


def add_routes(parser: argparse.ArgumentParser) -> None:
    """Add flags for links, routing, and details of placements."""
    add_links(parser)
    add_ranks_per_host(parser)
    add = parser.add_argument
    add(
        "--routing",
        metavar="NAME",
        default="d-mod-k",
        help="routing: d-mod-k, s-mod-k or random[:SEED] (d-mod-k)",
    )
    add("--seed", type=arguments.whole(0), metavar="N", default=0, help="seed of placement RF (0)")
    add(
        "--duration-s",
        type=arguments.positive,
        metavar="S",
        help="time in which the job sends its bytes, such as T_base of mpicoloc replay (default: its run "
        "time divided by its slowdown)",
    )
