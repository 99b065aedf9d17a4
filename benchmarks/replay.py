"""Speed and memory of the packet simulator.

    python benchmarks/replay.py [--json] [--repeats 3]

Packets of 2 KB, 10 Gbit/s, four lanes with credits, random routes. Each row runs in a process of its own, so
that its memory is its own. `shuffled all-to-all`: four jobs on hosts drawn at random, one on each lane, in
which every rank exchanges with one after the other. `saturated`: the same on a tree slimmed to a quarter.
`two jobs`: two of 64 ranks, each a ring of 64 KiB, a hundred times, and then an all-to-all of 64 KiB a pair,
on hosts drawn at random.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from tables import print_table

from mpicoloc.core.network import Topology
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay.native import Operation
from mpicoloc.replay.network import Hardware, equal_lanes, of_fabric
from mpicoloc.replay.programs.builder import ProgramBuilder, shift_fields
from mpicoloc.replay.simulate import Job, Settings, simulate

BPS, N_LANES = 1.25e9, 4
COLUMNS = ("hosts", "traffic", "packet-hops", "M packet-hops/s", "s", "simulated, ms", "MB of the process")
CASES = {
    "128": ("shuffled all-to-all", (16, 8), (1, 16), 65536, 31),
    "1024": ("shuffled all-to-all", (16, 16, 4), (1, 16, 16), 16384, 100),
    "2048": ("saturated", (16, 16, 8), (1, 4, 4), 65536, 20),
}
TWO_JOBS = ("two jobs", (16, 8), (1, 16))
TWO_PHASES = ((65536, 100, 0), (65536, 63, 1))
"""Of both jobs: bytes, turns, and step from turn to turn."""


def network(m, w):
    hardware = Hardware(lanes=equal_lanes(N_LANES, 65536))
    return of_fabric(Fabric(Topology(m, w, (BPS,) * len(m))), "random", hardware)


def exchange(phases):
    """In turn i of a phase rank r sends to r + 1 + step i, and receives from r - 1 - step i."""
    builder = ProgramBuilder()
    for n_bytes, n_turns, step in phases:
        with builder.loop(n_turns):
            builder.raw(Operation.IRECV, request=0, **shift_fields(-1, -step))
            builder.raw(Operation.ISEND, request=1, value=n_bytes, **shift_fields(1, step))
            builder.raw(Operation.WAITALL, request=0, n=2)
    return builder.build()


def job(name, hosts, program, lane):
    ranks = np.zeros(len(hosts), dtype=np.int32)
    return Job(name, [program], ranks, hosts, service_level=lane, restarts=False)


def traffic_of(case):
    """Name, tree (m and w), phases and hosts of each job of one row."""
    if case == "two":
        (name, m, w), phases, n_jobs = TWO_JOBS, TWO_PHASES, 2
    else:
        name, m, w, n_bytes, n_turns = CASES[case]
        phases, n_jobs = ((n_bytes, n_turns, 1),), N_LANES
    hosts = np.random.default_rng(0).permutation(int(np.prod(m)))
    return name, (m, w), phases, np.split(hosts, n_jobs)


def run_case(case):
    """One row, in this process."""
    name, tree, phases, hosts = traffic_of(case)
    built = network(*tree)
    jobs = [job(f"j{i}", part, exchange(phases), i) for i, part in enumerate(hosts)]
    started = time.perf_counter()
    run = simulate(built, jobs, Settings(mtu_bytes=2048))
    wall_s = time.perf_counter() - started
    return {
        "n_hosts": built.n_hosts,
        "traffic": name,
        "n_packet_hops": run.n_packet_hops,
        "packet_hops_per_s": run.n_packet_hops / wall_s,
        "wall_s": wall_s,
        "simulated_s": run.end_s,
        "max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "simulator_bytes": run.peak_bytes,
    }


def fastest(case, repeats):
    """The fastest of some runs, each in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--case", case]
    rows = [json.loads(subprocess.check_output(command)) for _ in range(repeats)]
    return min(rows, key=lambda row: row["wall_s"])


def shown(row):
    """One row as cells of the table."""
    times = f"{row['wall_s']:.2f}", f"{row['simulated_s'] * 1e3:.3f}", f"{row['max_rss_bytes'] / 1e6:.0f}"
    speed = f"{row['packet_hops_per_s'] / 1e6:.2f}"
    return row["n_hosts"], row["traffic"], f"{row['n_packet_hops']:,}", speed, *times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", choices=[*CASES, "two"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(run_case(arguments.case)))
        return
    rows = [fastest(case, arguments.repeats) for case in (*CASES, "two")]
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        print_table(COLUMNS, map(shown, rows))


if __name__ == "__main__":
    main()
