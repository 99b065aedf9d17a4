r"""Simulate a machine's batch system on a job log: waiting times, and jobs that share the network.

The log is in Standard Workload Format, or the output of Slurm's `sacct --parsable2` or `--json`; .gz too.
Jobs get whole nodes, or by --sharing parts of nodes. Two jobs share the network when both use the links above
the same switch or subtree at the same time (Jokanovic 2014, chapter 4).

  mpicoloc batch LLNL-Atlas-2006-2.1-cln.swf.gz \
      --topology 'XGFT(3;18,8,8;1,18,18)' --allocation exclusive
  mpicoloc batch jobs.swf --topology MareNostrum --cores-per-node 4 \
      --order fcfs --allocation virtual-blocks
  mpicoloc batch jobs.swf --topology 'XGFT(3;18,8,8;1,18,18)' --out sweep \
      --sweep order fcfs easy --sweep allocation first-available exclusive
  mpicoloc batch jobs.sacct --topology topology.conf --page centre.html
"""

from __future__ import annotations

import argparse
import json
import sys

from mpicoloc.cli import arguments
from mpicoloc.job import sweep
from mpicoloc.network import flags as fabric
from mpicoloc.show import outputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("logs", metavar="LOG", nargs="+",
        help="job log: Standard Workload Format or output of sacct, .gz too; several: a sweep")  # fmt: skip
    fabric.add_topology(parser)
    fabric.add_links(parser)
    add("--cores-per-node", metavar="N", type=arguments.count,
        help="cores of a node (default: from the log's header or its jobs, else 1)")  # fmt: skip
    add(
        "--memory-per-node",
        metavar="BYTES",
        type=arguments.size(1),
        help="memory of a node: by cores, jobs get as many cores as their share of it (default: not limited)",
    )
    add(
        "--order",
        metavar="NAME",
        default="easy",
        help="order of jobs: fcfs, easy, conservative or priority (easy)",
    )
    add(
        "--allocation",
        metavar="NAME",
        default="first-available",
        help="how nodes are chosen: first-available (default), first-contiguous, exclusive, virtual-blocks, "
        "best-fit, fewest-sharers (of links) or, with --utilisation, least-delay",
    )
    add(
        "--estimates",
        metavar="NAME",
        default="user",
        help="run time estimates to plan with: user or perfect (user)",
    )
    add("--skip-damaged", action="store_true", help="leave out damaged lines of the log")
    add(
        "--skip-larger",
        action="store_true",
        help="leave out jobs that are larger than the machine, or by cores or spread than their nodes",
    )
    add(
        "--partitions",
        metavar="FILE",
        help="file with lines PartitionName=P Nodes=LIST, as slurm.conf: jobs stay in their log's partition",
    )
    _add_sharing(parser)
    add("--out", metavar="FOLDER", help="write tables of the result to this folder as Parquet")
    sweep.add_arguments(
        parser,
        "simulate with each of these values of a flag, as --sweep order fcfs easy; several: every "
        "combination, with each LOG. Rows are saved in --out, and saved combinations are not run again. Uses "
        "all cores, or the ranks of mpirun",
    )
    add("--json", action="store_true", help="print the result as JSON")


def _add_sharing(parser: argparse.ArgumentParser) -> None:
    """Flags for jobs that share nodes or links."""
    add = parser.add_argument
    add("--sharing", metavar="NAMES", default="none",
        help="how jobs share nodes: none (default); two jobs a node: blind, model or service; by cores: "
        "cores or cores-model; by halves of nodes: spread or spread-model; several, separated by "
        "commas")  # fmt: skip
    add("--slowdowns", metavar="FILE", help="slowdowns of pairs of programs: target, co_runner, slowdown")
    add("--curves", metavar="FILE", help="curves and scores of programs, in place of --slowdowns")
    add(
        "--programs",
        metavar="FILE",
        help="program of each executable number or job name in the log: executable, program",
    )
    add(
        "--mix",
        metavar="A=2,B=1",
        help="draw programs at random in these proportions, in place of --programs (default: job names, else "
        "equal proportions)",
    )
    add("--seeds", metavar="N", type=arguments.count,
        help="number of random draws of programs and slowdowns, for intervals (default 5)")  # fmt: skip
    add("--seed", metavar="K", type=arguments.whole(0), help="seed of the first draw (default 0)")
    add("--pack", action="store_true", help="share nodes even while others are free, to keep those free")
    add("--pricing", metavar="NAME", action="append",
        help="price function to bill by; may be repeated (default: fair and runtime)")  # fmt: skip
    add("--rate-su", metavar="L", type=arguments.positive, help="service units per core and hour (default 1)")
    add(
        "--page", metavar="FILE", help="write an HTML page: map of the machine, Gantt chart, curves, policies"
    )
    add(
        "--utilisation",
        metavar="FILE",
        action="append",
        help="fraction of time for which each program keeps the links of each level busy: program, level_1, "
        "level_2, ...; or a profile; may be repeated. Delays jobs that share links",
    )
    add(
        "--against",
        metavar="NAME",
        help="allocation to compare with, by the time lost to shared links, as E(P)",
    )


def run(args: argparse.Namespace) -> int:
    """Simulate and print."""
    from mpicoloc.batch import study

    if args.sweep is not None or len(args.logs) > 1:
        return study.run(args, add_arguments)
    sweep.check_single(args)
    (args.log,) = args.logs
    if args.page is not None:
        outputs.check(args.page, [args.log], flag="--page")
    if args.out is not None:
        outputs.check(args.out, [args.log], is_folder=True)
    found = study.simulate(study.of(args), keeps_places=bool(args.page or args.out))
    if args.json:
        print(json.dumps(found.as_json(), indent=2, allow_nan=False))
    elif found.study.names != ["none"] or args.utilisation is not None:
        study.show_sharing(found.figures)
    else:
        study.show(found.runs[0].outcome, found.wall_s)
    sys.stdout.flush()
    if args.page is not None:
        study.write_page(args.page, args.log, found)
    if args.out is not None:
        study.write(found, args.out)
    return 0
