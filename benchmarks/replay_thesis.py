"""The experiments of Jokanovic 2014, Figures 3.8 to 3.17 and 5.8 to 5.17, with public programs' patterns.

    python benchmarks/replay_thesis.py --rows rows.jsonl [--seconds 50]
    python benchmarks/replay_thesis.py --rows rows.jsonl --tables

The first simulates what the file lacks; the second prints the tables, which `benchmarks/tables.py --take
replay-thesis` reads. The programs are those of Table 5.3, written as rank programs: messages of that size,
and the computation that each iteration of their trace cut has at ten times the speed. `SCALE` makes messages
and computation shorter alike, so that the share of communication stays. Of chapter 3, FT is two all-to-alls
without computation, as its T_base says (Table 3.2), CG and BT are those of chapter 5, and MG, a halo code,
stands for GROMACS, WRF and MILC, whose traces are not public.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from mpicoloc.core.network import Topology
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay.experiment import PlacedJob
from mpicoloc.replay.native import Operation
from mpicoloc.replay.network import Hardware, Lanes, crossbar, equal_lanes, native, of_fabric
from mpicoloc.replay.programs import patterns
from mpicoloc.replay.programs.builder import ProgramBuilder, of_each, shared
from mpicoloc.replay.simulate import Settings, simulate

BPS, MTU_BYTES, N_RANKS, SIDE = 1.25e9, 4096, 256, 16
SCALE = 16
"""Messages, computation, eager limit and MPI latency are this much smaller than the thesis's."""


@dataclass(frozen=True)
class Case:
    """One simulation: jobs (program, iterations) side by side on a tree of three levels."""

    jobs: tuple
    m: tuple
    w: int
    placement: str
    lanes: tuple
    buffer_bytes: int
    n_lanes: int = 1
    weights: tuple = ()
    seed: int = 0
    is_base: bool = False

    @property
    def key(self):
        return json.dumps(asdict(self))


def scaled_bytes(kib):
    return kib * 1024 // SCALE


def scaled_ns(ms):
    return round(ms * 1e6 / SCALE)


def ft(n_iterations, compute_ms=1500.0):
    """Each iteration an all-to-all of 512 KiB a pair."""
    builder = ProgramBuilder()
    with builder.loop(n_iterations):
        builder.compute(scaled_ns(compute_ms))
        patterns.exchange(builder, N_RANKS, scaled_bytes(512))
    return shared("FT", builder.build(), N_RANKS)


def cg(n_iterations):
    """Exchanges of 732 KiB with four ranks of its row of the 16 x 16 grid, then with the transposed rank."""
    return of_each("CG", [_cg_rank(rank, n_iterations) for rank in range(N_RANKS)])


def _cg_rank(rank, n_iterations):
    builder, n_bytes = ProgramBuilder(), scaled_bytes(732)
    row, column = divmod(rank, SIDE)
    with builder.loop(n_iterations):
        builder.compute(scaled_ns(7500 / 337))
        with builder.loop(4):
            for kind, request in ((Operation.IRECV, 0), (Operation.ISEND, 1)):
                builder.raw(kind, request=request, value=n_bytes, peer_mode=native.RP_XOR, peer=1)
            builder.raw(Operation.WAITALL, request=0, n=2)
        if row != column:
            swap(builder, [(column * SIDE + row, column * SIDE + row)], n_bytes)
    return builder.build()


def bt(n_iterations):
    """Faces of 761 KiB to six neighbours; in three directions 15 stages of 158 KiB on and 26 KiB back."""
    return of_each("BT", [_bt_rank(rank, n_iterations) for rank in range(N_RANKS)])


def _bt_rank(rank, n_iterations):
    i, j = divmod(rank, SIDE)
    ways = [
        tuple((i + s * di) % SIDE * SIDE + (j + s * dj) % SIDE for s in (-1, 1))
        for di, dj in ((0, 1), (1, 0), (1, -1))
    ]
    builder, compute_ms = ProgramBuilder(), 7500 / 22
    with builder.loop(n_iterations):
        builder.compute(scaled_ns(0.4 * compute_ms))
        swap(builder, [pair for a, b in ways for pair in ((a, b), (b, a))], scaled_bytes(761))
        for before, after in ways:
            for source, to, kib in ((before, after, 158), (after, before, 26)):
                with builder.loop(SIDE - 1):
                    builder.compute(scaled_ns(0.6 * compute_ms / 6 / (SIDE - 1)))
                    swap(builder, [(source, to)], scaled_bytes(kib))
    return builder.build()


def mg(n_iterations):
    """Faces of four grids, 260 to 32 KiB, down and up, to six neighbours on a torus of 8 x 8 x 4."""
    return of_each("MG", [_mg_rank(rank, n_iterations) for rank in range(N_RANKS)])


def _mg_rank(rank, n_iterations):
    place = np.arange(N_RANKS).reshape(8, 8, 4)
    ends = [
        (int(np.roll(place, s, axis).flat[rank]), int(np.roll(place, -s, axis).flat[rank]))
        for axis in range(3)
        for s in (1, -1)
    ]
    builder = ProgramBuilder()
    with builder.loop(n_iterations):
        for kib in (260, 128, 65, 32, 32, 65, 128, 260):
            builder.compute(scaled_ns(7500 / 36 / 8))
            swap(builder, ends, scaled_bytes(kib))
    return builder.build()


def swap(builder, pairs, n_bytes):
    """Receive from the first rank of each pair while sending to the second; the pair's place is the tag."""
    requests = [builder.irecv(source, n_bytes, tag) for tag, (source, _) in enumerate(pairs)]
    requests += [builder.isend(to, n_bytes, tag) for tag, (_, to) in enumerate(pairs)]
    builder.wait_all(requests)


PROGRAMS = {"FT": ft, "CG": cg, "BT": bt, "MG": mg, "FT(Alltoall)": lambda n: ft(n, 0.0)}
CUT = {"FT": 1, "CG": 67, "BT": 5, "MG": 9}
"""Iterations in chapter 5: about a fifth of the trace cuts."""
SHORT = {"FT(Alltoall)": 2, "CG": 4, "BT": 1, "MG": 1}
"""Iterations in chapter 3, of about T_base of Table 3.2, BT half of it."""


def hosts_of(case, i_job):
    """Fk: k hosts of each switch, the jobs side by side; RF: drawn, in ascending order, eight jobs' worth."""
    rank = np.arange(N_RANKS)
    if case.placement == "RF":
        drawn = np.random.default_rng(case.seed).permutation(int(np.prod(case.m)))
        return np.sort(drawn[i_job * N_RANKS : (i_job + 1) * N_RANKS])
    per_switch = int(case.placement[1:])
    return rank // per_switch * case.m[0] + i_job * per_switch + rank % per_switch


def lanes_of(case):
    """Lanes that share the buffers; "high": lane 0 or 1 has high priority without limit."""
    if case.weights and case.weights[0] == "high":
        first, second = case.weights[1], 1 - case.weights[1]
        each = (case.buffer_bytes // 2,) * 2
        return Lanes(each, each, (0, 1), high=((first, 1),), low=((second, 1),), high_limit=255)
    return equal_lanes(case.n_lanes, case.buffer_bytes, case.weights)


def run(case):
    """End of each job's first run, s."""
    hardware = Hardware(lanes=lanes_of(case))
    jobs = [
        PlacedJob(PROGRAMS[name](n), hosts_of(case, i), lane)
        for i, ((name, n), lane) in enumerate(zip(case.jobs, case.lanes, strict=True))
    ]
    if case.is_base:
        network = crossbar(N_RANKS, BPS, hardware)
        jobs = [PlacedJob(job.programs, np.arange(N_RANKS)) for job in jobs]
    else:
        tree = Topology(case.m, (1, case.w, case.w), (BPS,) * 3)
        network = of_fabric(Fabric(tree), "random", hardware)
    settings = Settings(
        mtu_bytes=MTU_BYTES, eager_bytes=16384 // SCALE, mpi_latency_s=1e-6 / SCALE, seed=case.seed
    )
    result = simulate(network, [job.simulated() for job in jobs], settings)
    return [job.end_s for job in result.jobs], result.n_packet_hops


@dataclass
class Rows:
    """Simulated cases, a line of the file each."""

    path: Path
    found: dict = field(default_factory=dict)

    def __post_init__(self):
        if self.path.exists():
            rows = map(json.loads, self.path.read_text().splitlines())
            self.found = {row["key"]: row for row in rows}

    def __call__(self, case):
        return self.found[case.key]["end_s"]

    def add(self, case):
        started = time.perf_counter()
        end_s, n_hops = run(case)
        row = {"key": case.key, "end_s": end_s, "n_packet_hops": n_hops}
        self.found[case.key] = row = {**row, "wall_s": time.perf_counter() - started}
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def main():
    import replay_thesis_tables as tables

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", required=True, type=Path, help="file of what has been simulated")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no simulation after this time")
    parser.add_argument(
        "--share", default="0/1", metavar="I/N", help="each N-th of what is missing, from I on"
    )
    parser.add_argument("--tables", action="store_true", help="print the tables, of what there is")
    arguments = parser.parse_args()
    rows, end = Rows(arguments.rows), time.monotonic() + arguments.seconds
    if arguments.tables:
        tables.show(rows)
        return
    i_share, n_shares = map(int, arguments.share.split("/"))
    missing = [case for case in tables.cases()[i_share::n_shares] if case.key not in rows.found]
    for i, case in enumerate(missing):
        if time.monotonic() > end:
            break
        if case.key in Rows(arguments.rows).found:  # another process has simulated it meanwhile
            continue
        print(f"{len(missing) - i} left: {case.key}", file=sys.stderr, flush=True)
        rows.add(case)


if __name__ == "__main__":
    main()
