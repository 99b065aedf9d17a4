r"""Choose nodes for jobs that share nodes, so that the jobs slow each other down least.

JOBS is CSV or JSON with id, program and n_nodes of each job; a job takes one slot on each of its nodes.
Slowdowns come from --curves (program, score, level_1 ... level_8, policy), written by `mpicoloc bubble`, or
from measured pairs. --figures draws the placement.

  mpicoloc place jobs.csv --curves curves.csv --nodes 8 --slots 2
  mpicoloc place jobs.csv --slowdowns pairs.csv --nodes 8 --objective worst
  mpicoloc place jobs.csv --curves curves.csv --hosts 'n[0-7]' --slots 2 \
      --apart a,b --at-most c=1.2 --whole d --files hosts
  mpicoloc place jobs.csv --curves c.csv --nodes 8 --topology 'XGFT(2;4,2;1,1)'
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from mpicoloc import messages
from mpicoloc.cli import arguments
from mpicoloc.errors import UsageError
from mpicoloc.network import flags as fabric

if TYPE_CHECKING:
    from mpicoloc.core.network import Levelled
    from mpicoloc.core.profile import Ints
    from mpicoloc.place.anneal import Constraints
    from mpicoloc.place.place import Placed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("jobs", metavar="JOBS", help="jobs to place: .csv or .json with id, program, n_nodes")
    add("--curves", metavar="FILE", help="curves and scores of the programs: .csv or .json")
    add(
        "--propagation",
        metavar="FILE",
        help="propagation matrices of the programs: .csv with program, level, nodes_1 ...",
    )
    add("--slowdowns", metavar="FILE", help="slowdowns of pairs of programs, in place of --curves")
    arguments.add_layout(parser, "relative to packed runs on n_nodes nodes")
    add("--nodes", metavar="N", type=arguments.count, help="number of identical nodes")
    add("--hosts", metavar="LIST", help="names of the nodes, e.g. n[0-7],m1, in place of --nodes")
    fabric.add_topology(parser)
    add("--utilisation", metavar="FILE", action="append",
        help="with --topology: fraction of time for which each program keeps the links of each level busy: "
        "program, level_1, ...; or a profile; may be repeated")  # fmt: skip
    add("--slots", metavar="S", type=arguments.count, default=2, help="jobs per node (default 2)")
    add("--seed", metavar="K", type=arguments.whole(0), default=0, help="random seed (default 0)")
    add(
        "--objective", metavar="WORD", default="sum", help="what to optimise: sum (default), speedup or worst"
    )
    add("--sweeps", metavar="N", type=arguments.positive,
        help="exchanges to try for each slot (default: by the size of the problem)")  # fmt: skip
    add("--restarts", metavar="N", type=arguments.count,
        help="random initial placements (default: by the size of the problem)")  # fmt: skip
    add("--apart", metavar="A,B", action="append", default=[], help="jobs that must not share a node")
    add("--at-most", metavar="JOB=X", action="append", default=[], help="largest allowed slowdown of a job")
    add("--whole", metavar="JOB", action="append", default=[], help="job that must not share its nodes")
    add(
        "--files", metavar="FOLDER", help="write each job's host file, rank file and node list to this folder"
    )
    add("--ranks-per-node", metavar="R", type=arguments.count, default=1,
        help="ranks of a job on a node, for --files (default 1)")  # fmt: skip
    arguments.add_figures(parser, "the placement")
    add("--json", action="store_true", help="print the placement as JSON")


_OTHER_END = {"value": "value", "low": "high", "high": "low"}


def run(args: argparse.Namespace) -> int:
    """Print the placement, and write the files and figures that the arguments request."""
    formats = arguments.formats_of(args)
    if (args.curves is None) == (args.slowdowns is None):
        raise UsageError("give either --curves FILE or --slowdowns FILE for the programs")
    if args.propagation is not None and args.curves is None:
        raise UsageError("--propagation needs --curves: pairs do not show the effect of uneven pressure")
    if args.utilisation is not None and args.topology is None:
        raise UsageError("--utilisation is that of links: give --topology, too")
    if args.files is not None and args.hosts is None:
        raise UsageError("--files needs the names of the nodes: give --hosts in place of --nodes")
    names = _host_names(args)
    from mpicoloc.place import terminal

    network = None if args.topology is None else _hosts(args, names)
    placed, wall_s = _placed(args, len(names))
    if network is not None:
        began_s = time.perf_counter()
        placed = _arranged(args, placed, *network)
        wall_s += time.perf_counter() - began_s
    if args.files is not None:
        _write_files(args, placed, names)
    if args.figures is not None:
        arguments.write_figures([terminal.placement(placed, names)], args.figures, formats)
    if args.json:
        hosts = names if args.hosts is not None else range(len(names))
        print(json.dumps(terminal.as_json(placed, hosts, wall_s, args.seed), indent=2, allow_nan=False))
    else:
        terminal.show(placed, names, wall_s)
    return 0


def _host_names(args: argparse.Namespace) -> list[str]:
    """Names of the nodes, or their numbers without --hosts."""
    if (args.nodes is None) == (args.hosts is None):
        raise UsageError("give either --nodes N or --hosts NAMES")
    if args.nodes is not None:
        return list(map(str, range(args.nodes)))
    from mpicoloc.job import launcher
    from mpicoloc.network.topology import hostlist

    names = hostlist.expand(args.hosts, "--hosts")
    launcher.check_names(names, "host")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"--hosts names {twice} twice")
    return names


def _placed(args: argparse.Namespace, n_nodes: int) -> tuple[Placed, float]:
    """The placement, and the time of the search without reading files, s."""
    import numpy as np

    from mpicoloc.bubble import curves_file
    from mpicoloc.core.slowdown import SPREAD, check_layout, measured_programs
    from mpicoloc.job import launcher
    from mpicoloc.pairing import model_file, queue_files
    from mpicoloc.place import anneal, place

    jobs = curves_file.jobs(args.jobs)
    if args.files is not None:
        launcher.check_names([job.id for job in jobs], "job")
    is_spread = args.layout == SPREAD
    if is_spread and args.slots != 2:
        raise UsageError(f"--layout spread puts two jobs on a node: leave out --slots {args.slots}")
    if is_spread:
        jobs = [replace(job, n_nodes=2 * job.n_nodes) for job in jobs]
    arguments.note_together(args.slots - 1)
    size, constraints = (n_nodes, args.slots), _constraints(args)
    settings = anneal.Annealing(args.restarts, args.sweeps)
    if args.curves is not None:
        model = model_file.of_curves(args.curves)
        check_layout(args.layout, model_file.layout(model), args.curves)
        matrices = {} if args.propagation is None else curves_file.matrices(args.propagation)
        problem_of = functools.partial(anneal.of_bubbles, jobs, *size, model, matrices, constraints)
    else:
        table, features = measured_programs(
            queue_files.slowdowns(args.slowdowns, args.layout), (job.program for job in jobs)
        )
        problem_of = functools.partial(anneal.of_model, jobs, *size, table, features, constraints)

    def problem_for(end: str) -> anneal.Problem:
        if not is_spread:
            return problem_of(end=end)
        return anneal.of_spread(problem_of(end=end), problem_of(end=_OTHER_END[end]))

    began_s = time.perf_counter()
    placed = place.place(problem_for, np.random.default_rng(args.seed), args.objective, settings)
    return placed, time.perf_counter() - began_s


def _hosts(args: argparse.Namespace, names: list[str]) -> tuple[Levelled, Ints]:
    """The topology, and the host of each node in it."""
    import numpy as np

    from mpicoloc.network import files
    from mpicoloc.network.topology.fabric import host_finder

    found = files.fabric_of(args.topology, None, None)
    for note in found.notes:
        messages.note(note)
    if args.hosts is not None:
        host = host_finder(found)
        numbers = [host(name, i, "--hosts") for i, name in enumerate(names)]
        if len(set(numbers)) < len(numbers):
            raise UsageError(f"--hosts {args.hosts} has two names of one host: name each host once")
        return found.topology, np.array(numbers)
    if len(names) > len(found.hosts()):
        raise UsageError(
            f"--nodes {len(names)}: the topology has {len(found.hosts())} hosts: give a larger one, or "
            "fewer nodes"
        )
    return found.topology, found.hosts()[: len(names)]


def _arranged(args: argparse.Namespace, placed: Placed, topology: Levelled, hosts: Ints) -> Placed:
    """The placement with its nodes exchanged so that jobs contend least for links."""
    import numpy as np

    from mpicoloc.place import links, utilisation_files

    jobs = placed.problem.jobs
    busy = np.ones((len(jobs), topology.height))
    if args.utilisation is not None:
        table, programs = utilisation_files.read(args.utilisation), [job.program for job in jobs]
        busy = utilisation_files.of_programs(programs, table, topology.height, " and ".join(args.utilisation))
    contention = links.Contention(topology, hosts, [job.n_nodes for job in jobs], busy)
    slots = links.arrange(placed.slots, contention, np.random.default_rng(args.seed))
    return replace(placed, slots=slots, n_link_pairs=contention.n_pairs(slots))


def _constraints(args: argparse.Namespace) -> Constraints:
    from mpicoloc.place.anneal import Constraints

    apart = []
    for text in args.apart:
        one, comma, other = text.partition(",")
        if not (one and comma and other):
            raise UsageError(f"--apart {text!r} must name two jobs: write A,B")
        apart.append((one, other))
    at_most = {}
    for text in args.at_most:
        name, equals, most = text.rpartition("=")
        if not (name and equals):
            raise UsageError(f"--at-most {text!r} must have the form JOB=X, for example a=1.2")
        at_most[name] = arguments.parse("--at-most", most, arguments.positive)
    return Constraints(tuple(apart), at_most, tuple(args.whole))


def _write_files(args: argparse.Namespace, placed: Placed, names: list[str]) -> None:
    """Write host file, rank file and node list of each job, named by its id."""
    from mpicoloc.core.units import counted
    from mpicoloc.job import launcher
    from mpicoloc.replay.qos import policy

    jobs = placed.problem.jobs
    contents: dict[str, str] = {}
    for i, job in enumerate(jobs):
        nodes = placed.nodes_of(i)
        slots = [placed.slot_of(i, node) for node in nodes]
        contents |= launcher.files_of(job.id, [names[node] for node in nodes], slots, args.ranks_per_node)
    policy.write_files(args.files, contents, "--files")
    messages.note(f"wrote {counted(len(contents), 'file')} of {counted(len(jobs), 'job')} to {args.files}")
