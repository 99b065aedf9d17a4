"""Do mpicoloc and AccaSim let each job of a log begin at the same time? If not: by which rule?

    MPICOLOC_ACCASIM_PYTHON=.../bin/python python benchmarks/batch/agreement.py LOG --nodes 100 [--jobs 6001]

One row for each pair of orders: the jobs that begin at another time. AccaSim's EASY leaves out three rules of
Mu'alem and Feitelson 2001. So it is compared with ours, and with ours without each set of these rules
(`easy_of_accasim.py`); and AccaSim with all of them (easy-mended, `in_accasim.py`) with ours.
"""

import argparse
import itertools
import sys
from pathlib import Path

import accasim_runs
import easy_of_accasim
import log_files
import numpy as np

from mpicoloc.batch import allocation, machine, order
from mpicoloc.core.topology import Topology


def begins_s(work, n_nodes, next_job):
    """When mpicoloc lets each job begin, s."""
    hosts = machine.of_hosts(Topology((n_nodes,), (1,), (1e9,)), np.arange(n_nodes))
    simulation = easy_of_accasim.LateSimulation(work, hosts, next_job, allocation.named("first-available"))
    return simulation.run().start_s


def ours(theirs):
    """Orders of mpicoloc that are compared with one of AccaSim, by name."""
    if theirs == "fcfs":
        return {"fcfs": order.named("fcfs")}
    found = {"easy": order.named("easy")}
    rules = easy_of_accasim.RULES
    for n in range(1, len(rules) + 1) if theirs == "easy" else ():
        for some in itertools.combinations(rules, n):
            found[f"easy that {', '.join(some)}"] = easy_of_accasim.Easy(some)
    return found


def rows(work, n_nodes, orders):
    """For each order of AccaSim and each of ours: jobs that begin at another time, and mean waits, s."""
    for theirs in orders:
        found, _, _ = accasim_runs.run(work, n_nodes, theirs, is_one_node=True)
        their_s = np.array([found[number] for number in work.log.number.tolist()], float)
        for name, next_job in ours(theirs).items():
            our_s = begins_s(work, n_nodes, next_job)
            waits_s = ((times - work.log.submit_s).mean() for times in (our_s, their_s))
            yield theirs, name, int((our_s != their_s).sum()), *waits_s


def main(argv=None):
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("log", type=Path, help="in Standard Workload Format, .gz too")
    parser.add_argument("--nodes", type=int, required=True, help="of the machine")
    parser.add_argument("--cores-per-node", type=int, help="(as the log's head says)")
    parser.add_argument("--jobs", type=int, help="only so many, the first (all)")
    parser.add_argument("--orders", default="fcfs,easy,easy-mended", help="of AccaSim")
    args = parser.parse_args(argv)
    if accasim_runs.python() is None:
        raise SystemExit(f"no Python with accasim: set {accasim_runs.VARIABLE}")
    work = log_files.workload(args.log, args.nodes, args.cores_per_node, args.jobs)
    print(f"{args.log.name}, {len(work):,} jobs on {args.nodes:,} nodes\n")
    print("| AccaSim | mpicoloc | jobs that differ | mean wait, s | of AccaSim |")
    print("| --- " * 5 + "|")
    for theirs, name, n, our_s, their_s in rows(work, args.nodes, args.orders.split(",")):
        print(f"| {theirs} | {name} | {n:,} | {our_s:,.0f} | {their_s:,.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
