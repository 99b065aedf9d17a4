"""Latency and throughput under uniform random traffic, beside BookSim 2's.

    python benchmarks/replay_uniform.py [--cycles 20000]

BookSim's figures, and its settings, are those of tests/unit/replay/data/booksim.csv; the page
docs/explain/replay.md says which of them mean the same here. A cycle is the time of a flit on a link. Each
host sends packets to random hosts after geometric gaps, whatever becomes of them.
"""

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tables import print_table

from mpicoloc.core.network import Topology
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay.network import Hardware, Lanes, native, of_fabric
from mpicoloc.replay.simulate import Job, Settings, simulate

BOOKSIM = Path(__file__).resolve().parent.parent / "tests/unit/replay/data/booksim.csv"
FLIT_BYTES, CYCLE_PS, N_LANES, BUFFER_FLITS = 64, 1000, 4, 16
COLUMNS = ("tree", "flits", "load", "BookSim 2 latency", "FIFO", "VOQ", "BookSim 2 accepted", "FIFO", "VOQ")
TREES = {"4-ary 2-tree": 2, "4-ary 3-tree": 3}


@dataclass(frozen=True)
class Point:
    """One load: mean latency from the packet's making to its last flit, and what hosts received per cycle."""

    latency_cycles: float
    accepted_flits: float


def network(n_levels, packet_flits, **switch):
    """A k-ary n-tree whose routers take 4 cycles a hop, as BookSim's pipeline with these settings.

    Of these, one is the link, one the flit, and two the switch. Packets choose a random way up, as with nca.
    """
    tree = Topology((4,) * n_levels, (1,) + (4,) * (n_levels - 1), (FLIT_BYTES / CYCLE_PS * 1e12,) * n_levels)
    output = (packet_flits * FLIT_BYTES,) * N_LANES
    hardware = Hardware(
        cable_latency_s=CYCLE_PS * 1e-12,
        switch_latency_s=2 * CYCLE_PS * 1e-12,
        flit_bytes=FLIT_BYTES,
        lanes=Lanes((BUFFER_FLITS * FLIT_BYTES,) * N_LANES, output, tuple(range(N_LANES))),
        **switch,
    )
    return of_fabric(Fabric(tree), "random", hardware)


def destinations(rng, src, n_hosts, n):
    """Uniform over all hosts. A host that drew itself sends to another of its switch, which is as far."""
    dst = rng.integers(0, n_hosts, n)
    neighbours = src // 4 * 4 + (src + rng.integers(1, 4, n)) % 4
    return np.where(dst == src, neighbours, dst)


def lane_job(rng, lane, n_hosts, load, packet_flits, n_cycles):
    """A lane's quarter of the traffic, a sender and a receiver on each host: the job, and send times, ns."""
    programs, n_for, sent_ns = [], np.zeros(n_hosts, int), []
    for src in range(n_hosts):
        gaps = rng.geometric(
            load / packet_flits / N_LANES, int(1.5 * n_cycles * load / packet_flits / N_LANES) + 50
        )
        times = np.cumsum(gaps)
        times = times[times < n_cycles]
        dst = destinations(rng, src, n_hosts, len(times))
        n_for += np.bincount(dst, minlength=n_hosts)
        ops = np.zeros(2 * len(times), native.OP)
        ops["kind"][0::2], ops["value"][0::2] = native.RP_COMPUTE, np.diff(times, prepend=0)
        ops["kind"][1::2], ops["value"][1::2] = native.RP_SEND, packet_flits * FLIT_BYTES
        ops["peer"][1::2] = n_hosts + dst
        programs.append(ops)
        sent_ns.append(times)
    for host in range(n_hosts):
        ops = np.zeros(4, native.OP)
        ops["kind"] = [native.RP_LOOP, native.RP_RECV, native.RP_MARK, native.RP_END]
        ops["n"][0], ops["peer"][1] = n_for[host], native.RP_ANY
        programs.append(ops)
    hosts = np.tile(np.arange(n_hosts), 2)
    job = Job(f"lane {lane}", programs, np.arange(2 * n_hosts), hosts, service_level=lane, restarts=False)
    return job, np.concatenate(sent_ns)


def measure(n_levels, packet_flits, load, n_cycles=20_000, seed=0, **switch):
    """One load, in flits per host and cycle."""
    rng, built = np.random.default_rng(seed), network(n_levels, packet_flits, **switch)
    made = [lane_job(rng, lane, built.n_hosts, load, packet_flits, n_cycles) for lane in range(N_LANES)]
    n_bytes = packet_flits * FLIT_BYTES
    window_s = n_cycles * CYCLE_PS * 1e-12 / 10
    settings = Settings(mtu_bytes=n_bytes, control_bytes=1, eager_bytes=n_bytes, mpi_latency_s=0.0, seed=seed,
                        window_s=window_s)  # fmt: skip
    run = simulate(built, [job for job, _ in made], settings)
    sent_ps = 1000 * sum(times.sum() for _, times in made)
    latency = (run.marks["t_ps"].sum() - sent_ps) / len(run.marks) / CYCLE_PS
    to_hosts = run.window_bytes[2:10, built.link_to < built.n_hosts]
    return Point(latency, to_hosts.mean() / FLIT_BYTES / (run.window_s * 1e12 / CYCLE_PS))


def booksim():
    """BookSim's rows, numbers where they are."""
    with BOOKSIM.open(newline="") as file:
        return list(csv.DictReader(file))


def cells(row, n_cycles):
    """A row of BookSim's beside ours."""
    flits, load = int(row["packet_flits"]), float(row["offered_flits_per_cycle"])
    ours = [measure(TREES[row["topology"]], flits, load, n_cycles, is_voq=is_voq) for is_voq in (False, True)]
    latencies = float(row["packet_latency_cycles"]), *(point.latency_cycles for point in ours)
    accepted = float(row["accepted_flits_per_cycle"]), *(point.accepted_flits for point in ours)
    numbers = [f"{cycles:.1f}" for cycles in latencies] + [f"{rate:.3f}" for rate in accepted]
    return row["topology"], flits, load, *numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=20_000)
    n_cycles = parser.parse_args().cycles
    print_table(COLUMNS, (cells(row, n_cycles) for row in booksim()))


if __name__ == "__main__":
    main()
