"""Two real jobs that share a slimmed up-link, beside a replay of what each did alone.

    sudo python benchmarks/replay_lab.py [--cases equal,hosts,...] [--repeats 2] [--json]

The lab and the jobs are those of `lab_sharing.py`, half as long: two switches with eight hosts each and one
up-link of 40 Mbit/s. The first run of each job alone is with `--trace all`; these traces are replayed
together. Measured are the times of the messages, alone and beside the other job, in turns; slowdowns are of
medians.

The model of the lab: packets of 1500 bytes, whose headers take 66 of 1514 bytes on the wire; eager messages
up to 64 KiB as Open MPI's TCP; 50 us from a call to the link. The lab bounds TCP's windows, so that one
connection cannot fill a queue and connections share a link; buffers of 64 KiB, the kernel's largest segment,
do the same with credits. Slow starts and losses are not modelled. Where jobs rest they sleep, so computation
counts as the time between calls. The other job runs already when one begins: medians of eight phases of it.
"""

import statistics
import sys
from dataclasses import dataclass, replace

import lab_sharing
import numpy as np

from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay import experiment, fabrics
from mpicoloc.replay.job import Settings
from mpicoloc.replay.lanes import equal_lanes
from mpicoloc.replay.programs import profile_programs
from mpicoloc.replay.programs.sources import Choices
from mpicoloc.replay.simulate import simulate

MTU_BYTES, PAYLOAD_FRAC, QUEUE_BYTES, N_PHASES = 1500, 1448 / 1514, 65536, 8
CASES = {
    name: tuple(replace(job, times=-(-job.times // 2)) for job in pair)
    for name, pair in lab_sharing.CASES.items()
}
WITHIN, APART = 0.25, 1.10
COLUMNS = ("pair", "job", "hosts", "T_solo", "replayed", "T_co", "replayed", "slowdown", "lowest to highest",
           "replayed", "off by", "order in the pair")  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One job of a pair: seconds measured and simulated."""

    case: str
    job: str
    hosts: str
    solo_s: list
    co_s: list
    replayed_solo_s: float
    replayed_co_s: float

    @property
    def measured(self):
        return statistics.median(self.co_s) / statistics.median(self.solo_s)

    @property
    def replayed(self):
        return self.replayed_co_s / self.replayed_solo_s

    @property
    def off(self):
        return self.replayed / self.measured - 1


class Bench(lab_sharing.Bench):
    """The lab, where jobs are recorded alone with a trace, and replays of it."""

    def trace(self, i, job):
        """Seconds of a traced run alone, and its trace."""
        out = self.folder / f"{job.hosts}.h5"
        time_s = self.run(i, job, "--out", str(out), "--trace", "all")
        return time_s, profile_programs.read(str(out), Choices(is_wall_time=True))

    def replayed_s(self, traces):
        """Times of the jobs alone and together."""
        tree = replace(self.tree, capacity_bps=tuple(PAYLOAD_FRAC * bps for bps in self.tree.capacity_bps))
        hardware = fabrics.Hardware(lanes=equal_lanes(1, QUEUE_BYTES), flit_bytes=MTU_BYTES)
        network = fabrics.of_fabric(Fabric(tree), "d-mod-k", hardware)
        settings = Settings(mtu_bytes=MTU_BYTES, eager_bytes=65536, mpi_latency_s=50e-6)
        placed = []
        for trace in traces:
            hosts = np.array([int(name.removeprefix("h")) for name in trace.hostnames()])
            placed.append(experiment.PlacedJob(trace.programs(hosts), hosts))
        alone = [experiment.simulate_alone(network, job, settings).jobs[0].end_s for job in placed]
        together = []
        for job, other, other_s in zip(placed, placed[::-1], alone[::-1], strict=True):
            starts = [(phase + 0.5) / N_PHASES * other_s for phase in range(N_PHASES)]
            runs = [
                simulate(network, [replace(job.simulated(), start_s=start_s), other.simulated()], settings)
                for start_s in starts
            ]
            together.append(statistics.median(run.jobs[0].end_s for run in runs))
        return alone, together

    def rows(self, case):
        pair = CASES[case]
        traced = [self.trace(i, job) for i, job in enumerate(pair)]
        solo, co = tuple([time_s] for time_s, _ in traced), ([], [])
        alone_s, together_s = self.replayed_s([trace for _, trace in traced])
        for n in range(self.args.repeats):
            for i, job in enumerate(pair):
                if n:
                    solo[i].append(self.run(i, job, "--plain"))
                with self.endless(1 - i, pair[1 - i]):
                    co[i].append(self.run(i, job, "--plain"))
            print(f"{case}: {n + 1} of {self.args.repeats}", file=sys.stderr)
        rows = [
            Row(case, str(job), job.hosts, solo[i], co[i], alone_s[i], together_s[i])
            for i, job in enumerate(pair)
        ]
        for row in rows:
            print(f"{row.job}: {row.measured:.2f}, replayed {row.replayed:.2f}", file=sys.stderr)
        return rows


def order(one, two):
    """Order of two jobs by replay, and whether the measured one agrees; close ones may be either."""
    ratio, measured = one.replayed / two.replayed, one.measured / two.measured
    if max(ratio, 1 / ratio) < APART:
        return "tie", max(measured, 1 / measured) < 1 + WITHIN
    return ("first" if ratio > 1 else "second") + " suffers more", (measured > 1) == (ratio > 1)


def cells(row, verdict):
    solo_s = statistics.median(row.solo_s)
    span = f"{min(row.co_s) / solo_s:.2f} to {max(row.co_s) / solo_s:.2f}"
    return (row.case, row.job, row.hosts, f"{solo_s:.2f} s", f"{row.replayed_solo_s:.2f} s",
            f"{statistics.median(row.co_s):.2f} s", f"{row.replayed_co_s:.2f} s", f"{row.measured:.2f}", span,
            f"{row.replayed:.2f}", f"{row.off:+.0%}", verdict)  # fmt: skip


def print_table(rows):
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for one, two in zip(rows[::2], rows[1::2], strict=True):
        words, agrees = order(one, two)
        print(f"| {' | '.join(cells(one, words))} |")
        print(f"| {' | '.join(cells(two, 'agrees' if agrees else 'DOES NOT AGREE'))} |")
    n_within = sum(abs(row.off) <= WITHIN for row in rows)
    print(f"\n{n_within} of {len(rows)} slowdowns within {WITHIN:.0%}")


def main(argv=None):
    args = lab_sharing.arguments(__doc__, 2, argv)
    rows = lab_sharing.measured_rows(args, Bench)
    if rows is None:
        return 4
    if args.json:
        lab_sharing.print_json(rows, "measured", "replayed", "off")
    else:
        print_table(rows)
    are_ordered = all(order(*pair)[1] for pair in zip(rows[::2], rows[1::2], strict=True))
    return 0 if are_ordered and all(abs(row.off) <= WITHIN for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
