"""Speed and memory of the packet simulator, and of others on the same traffic.

    python benchmarks/replay.py [--json] [--repeats 3]

Packets of 2 KB, 10 Gbit/s, four lanes with credits, random routes. Each row runs in a process of its own, so that
its memory is its own. `shuffled all-to-all`: four jobs on hosts drawn at random, one on each lane, in which every
rank exchanges with one after the other. `saturated`: the same on a tree slimmed to a quarter. `two jobs`: a ring of
64 KiB, a hundred times, and an all-to-all of 64 KiB a pair, 64 ranks each, whose hosts alternate.

Peers: SimGrid, if its headers are installed (Debian: libsimgrid-dev). Its model shares links among flows, so it has
no packets to count. htsim, BookSim 2 and CODES are in no package registry and are not built here.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mpicoloc.core.topology import Topology
from mpicoloc.network.replay import fabrics, native
from mpicoloc.network.replay.job import Job, Settings
from mpicoloc.network.replay.lanes import equal_lanes
from mpicoloc.network.replay.simulate import simulate
from mpicoloc.network.topology.fabric import Fabric

BPS, N_LANES = 1.25e9, 4
HERE = Path(__file__).resolve().parent
CASES = {
    "128": ("shuffled all-to-all", (16, 8), (1, 16), 65536, 31),
    "1024": ("shuffled all-to-all", (16, 16, 4), (1, 16, 16), 16384, 100),
    "2048": ("saturated", (16, 16, 8), (1, 4, 4), 65536, 20),
}
TWO_JOBS = ("two jobs", (16, 8), (1, 16))


def network(m, w):
    hardware = fabrics.Hardware(lanes=equal_lanes(N_LANES, 65536))
    return fabrics.of_fabric(Fabric(Topology(m, w, (BPS,) * len(m))), "random", hardware)


def operations(*rows):
    ops = np.zeros(len(rows), native.OP)
    for i, (kind, fields) in enumerate(rows):
        ops["kind"][i] = kind
        for name, value in fields.items():
            ops[name][i] = value
    return ops


def exchange(n_bytes, n_turns, step):
    """Rank r sends to r + 1 + step i in turn i, and receives from r - 1 - step i."""
    shift = {"peer_mode": native.RP_SHIFT}
    return operations(
        (native.RP_LOOP, {"n": n_turns}),
        (native.RP_IRECV, {**shift, "peer": -1, "n": -step, "request": 0}),
        (native.RP_ISEND, {**shift, "peer": 1, "n": step, "value": n_bytes, "request": 1}),
        (native.RP_WAITALL, {"request": 0, "n": 2}),
        (native.RP_END, {}),
    )


def job(name, hosts, program, lane):
    ranks = np.zeros(len(hosts), dtype=np.int32)
    return Job(name, [program], ranks, hosts, service_level=lane, restarts=False)


def jobs_of(case):
    """Network, and jobs, of one row."""
    if case == "two":
        built = network(*TWO_JOBS[1:])
        ring, all_to_all = exchange(65536, 100, 0), exchange(65536, 63, 1)
        return built, [
            job("ring", np.arange(0, 128, 2), ring, 0),
            job("all", np.arange(1, 128, 2), all_to_all, 1),
        ]
    _, m, w, n_bytes, n_turns = CASES[case]
    built = network(m, w)
    parts = np.split(np.random.default_rng(0).permutation(built.n_hosts), N_LANES)
    return built, [job(f"j{i}", part, exchange(n_bytes, n_turns, 1), i) for i, part in enumerate(parts)]


def run_case(case):
    """One row, in this process."""
    built, jobs = jobs_of(case)
    started = time.perf_counter()
    run = simulate(built, jobs, Settings(mtu_bytes=2048))
    wall_s = time.perf_counter() - started
    return {
        "tool": "mpicoloc",
        "n_hosts": built.n_hosts,
        "traffic": CASES[case][0] if case in CASES else TWO_JOBS[0],
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
    texts = [
        subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(repeats)
    ]
    return min((json.loads(text) for text in texts), key=lambda row: row["wall_s"])


PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="tree" prefix="h" suffix="" radical="0-127" speed="1Gf" bw="1.25GBps" lat="25ns"
           topology="FAT_TREE" topo_parameters="2;16,8;1,16;1,1"/>
</platform>
"""


def simgrid_row(repeats):
    """SimGrid on the two jobs; None: it is not installed."""
    if shutil.which("g++") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        program, platform = Path(folder) / "simgrid", Path(folder) / "platform.xml"
        source = HERE / "replay_simgrid.cpp"
        built = subprocess.run(
            ["g++", "-O2", "-std=c++17", source, "-o", program, "-lsimgrid"], capture_output=True, check=False
        )
        if built.returncode:
            return None
        platform.write_text(PLATFORM)
        rows = []
        for _ in range(repeats):
            done = subprocess.run([program, platform], check=True, capture_output=True, text=True)
            simulated_s, wall_s, rss_kib = map(float, done.stdout.split())
            rows.append((wall_s, simulated_s, rss_kib))
    wall_s, simulated_s, rss_kib = min(rows)
    row = {"tool": "SimGrid", "n_hosts": 128, "traffic": TWO_JOBS[0], "n_packet_hops": None}
    times = {"packet_hops_per_s": None, "wall_s": wall_s, "simulated_s": simulated_s}
    return {**row, **times, "max_rss_bytes": int(rss_kib) * 1024}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", choices=[*CASES, "two"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(run_case(arguments.case)))
        return
    peer = simgrid_row(arguments.repeats)
    rows = [fastest(case, arguments.repeats) for case in (*CASES, "two")] + ([peer] if peer else [])
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        speed = (
            f"{row['packet_hops_per_s'] / 1e6:6.2f} M packet-hops/s" if row["packet_hops_per_s"] else " " * 22
        )
        rss = row["max_rss_bytes"] / 1e6
        print(
            f"{row['tool']:9} {row['n_hosts']:5} hosts {row['traffic']:20} {speed} {row['wall_s']:6.2f} s "
            f"{rss:6.0f} MB, simulated {row['simulated_s']:.6f} s"
        )


if __name__ == "__main__":
    main()
