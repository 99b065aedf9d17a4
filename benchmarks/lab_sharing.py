"""Jobs of two users that share slimmed up-links: who is predicted to suffer, and who suffers.

    sudo python benchmarks/lab_sharing.py [--cases equal,hosts,...] [--repeats 3] [--json]

Makes a lab of two switches with eight hosts each and one up-link. The up-link is slow (40 Mbit/s), so that
it and not the processors of the machine is what jobs wait for. The jobs (`examples/fattree-lab/traffic.c`)
have hosts of their own and belong to two unprivileged users; where they rest, they sleep.

Solo and together in turns; times are those of the messages, as the program gives them, and T_co / T_solo are
medians. Together means: the other job sends from before the first message until after the last one. The
prediction is that of `mpicoloc network` from the profiles of both, with T_solo as their time. The order in
a pair is told where the predictions differ by 10 %, or it is a tie; it agrees if the measured order is the
same, or for a tie if the measured ones differ by less than 15 %.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import programs

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.topology import Placement
from mpicoloc.lab import control, plan
from mpicoloc.network import sharing, utilisation
from mpicoloc.network.traffic import job_traffic, recorded
from mpicoloc.profile import hdf5

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import jobs

TRAFFIC = programs.EXAMPLES / "fattree-lab" / "traffic.c"
LAB = [sys.executable, "-m", "mpicoloc", "lab"]
TOPOLOGY, RATES = "XGFT(2;8,2;1,1)", "1Gbit,40Mbit"
USERS = (54321, 54322)
LIMIT_S, LONG = 300, 1_000_000
APART, TIE = 1.10, 1.15
COLUMNS = ("pair", "job", "hosts", "T_solo", "T_co", "measured", "lowest to highest", "predicted", "bounds",
           "between", "order in the pair")  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """Arguments of `traffic`: what it does, on which hosts, and how often when it is timed."""

    what: str
    n_bytes: int
    times: int
    rest_ms: int
    hosts: str

    def argv(self, binary, times=None):
        return [binary, self.what, str(self.n_bytes), str(times or self.times), str(self.rest_ms)]

    def __str__(self):
        rest = f", rest {self.rest_ms} ms" if self.rest_ms else ""
        return f"{self.what} of {self.n_bytes / 1e6:g} MB{rest}"


CASES = {
    "equal": (Traffic("pairs", 2_500_000, 5, 0, "0-1,8-9"), Traffic("pairs", 2_500_000, 5, 0, "2-3,10-11")),
    "hosts": (Traffic("pairs", 2_500_000, 4, 0, "0-2,8-10"), Traffic("pairs", 2_500_000, 8, 0, "4,12")),
    "light": (Traffic("pairs", 2_500_000, 5, 0, "0-1,8-9"), Traffic("pairs", 2_500_000, 4, 1500, "2,10")),
    "both light": (Traffic("pairs", 2_500_000, 5, 750, "0,8"), Traffic("pairs", 2_500_000, 4, 1500, "2,10")),
    "exchange": (
        Traffic("alltoall", 1_000_000, 3, 0, "0-2,8-10"),
        Traffic("ring", 2_500_000, 6, 500, "4-5,12-13"),
    ),
    "one switch": (Traffic("pairs", 2_500_000, 5, 0, "0-1,8-9"), Traffic("pairs", 1_000_000, 60, 50, "2-5")),
}
"""Pairs of jobs by name."""


@dataclass(frozen=True)
class Row:
    """One job of a pair."""

    case: str
    job: str
    hosts: str
    solo_s: list
    co_s: list
    predicted: Estimate

    @property
    def measured(self):
        return statistics.median(self.co_s) / statistics.median(self.solo_s)

    @property
    def span(self):
        """Of each run together over the median alone."""
        solo_s = statistics.median(self.solo_s)
        return min(self.co_s) / solo_s, max(self.co_s) / solo_s


class Bench:
    """The lab and the users' folder."""

    def __init__(self, args, folder):
        self.args, self.folder, self.name = args, folder, f"bench-{os.getpid()}"
        self.tree = plan.topology(TOPOLOGY, RATES)
        launcher = programs.Launcher.find(args.mpirun, programs.processors(1))
        self.binary = launcher.compile(TRAFFIC, folder / "traffic")

    def lab(self, i, *words, **options):
        """Start `mpicoloc lab` as a user; None: as root, in a view in which users reach the interpreter."""
        command = [
            *jobs.as_user(0 if i is None else USERS[i]),
            *LAB,
            words[0],
            "--name",
            self.name,
            *words[1:],
        ]
        return subprocess.Popen(command, cwd=self.folder, **{"stdout": subprocess.DEVNULL, **options})

    def run(self, i, job, *more):
        """Run a job to its end; returns the seconds that it gives for its messages."""
        command = ["run", "--hosts", job.hosts, *more, "--", *job.argv(self.binary)]
        process = self.lab(i, *command, stdout=subprocess.PIPE, text=True)
        said = process.communicate(timeout=LIMIT_S)[0]
        if process.returncode:
            raise RuntimeError(f"{job} on {job.hosts} failed")
        return float(said.split()[0])

    def profile(self, i, job):
        """Profile of a run."""
        out = self.folder / f"{job.hosts}.h5"
        self.run(i, job, "--out", str(out))
        return hdf5.read(out)

    @contextlib.contextmanager
    def endless(self, i, job):
        """The job runs until the end of the with block."""
        before = self.sent(job)
        process = self.lab(i, "run", "--hosts", job.hosts, "--plain", "--", *job.argv(self.binary, LONG),
                           stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            jobs.wait_until(lambda: self.sent(job) - before > 2_000_000, "the other job to send")
            yield
        finally:
            process.terminate()
            process.wait(30)
            jobs.wait_until(lambda: self.is_quiet(job), "the other job to end")

    def sent(self, job):
        """Bytes that its first host sent."""
        first = "h" + job.hosts.replace("-", ",").split(",")[0]
        links = control.ask(self.name, "counters")["links"]
        return next(link["up_bytes"] for link in links if link["lower"] == first)

    def is_quiet(self, job):
        before = self.sent(job)
        time.sleep(0.3)
        return self.sent(job) - before < 10_000

    def predicted(self, profiles, durations_s):
        """Slowdown of each, from what each did alone."""
        loads, senders = [], []
        for profile in profiles:
            place = Placement([int(name.removeprefix("h")) for name in recorded.hostnames(profile)])
            told = job_traffic.job_traffic(profile.tables, place.n_ranks, profile.job.mpi_library)
            loads.append(utilisation.job_link_loads(self.tree, place, told.traffic))
            senders.append(sharing.sending_hosts(self.tree, place, told.traffic))
        return sharing.mutual_slowdown(self.tree, loads, durations_s, senders)

    def rows(self, case):
        pair = CASES[case]
        solo, co = ([], []), ([], [])
        profiles = [self.profile(i, job) for i, job in enumerate(pair)]
        for n in range(self.args.repeats):
            for i, job in enumerate(pair):
                solo[i].append(self.run(i, job, "--plain"))
                with self.endless(1 - i, pair[1 - i]):
                    co[i].append(self.run(i, job, "--plain"))
            print(f"{case}: {n + 1} of {self.args.repeats}", file=sys.stderr)
        predicted = self.predicted(profiles, [statistics.median(times) for times in solo])
        return [Row(case, str(job), job.hosts, solo[i], co[i], predicted[i]) for i, job in enumerate(pair)]


def order(one, two):
    """Order of two jobs by prediction, and whether the measured one agrees."""
    ratio, measured = one.predicted.value / two.predicted.value, one.measured / two.measured
    if max(ratio, 1 / ratio) < APART:
        return "tie", max(measured, 1 / measured) < TIE
    return ("first" if ratio > 1 else "second") + " suffers more", (measured > 1) == (ratio > 1)


def cells(row, verdict):
    told = row.predicted
    inside = told.low <= row.measured <= told.high
    return (row.case, row.job, row.hosts, f"{statistics.median(row.solo_s):.2f} s",
            f"{statistics.median(row.co_s):.2f} s", f"{row.measured:.2f}",
            f"{row.span[0]:.2f} to {row.span[1]:.2f}", f"{told.value:.2f}",
            f"{told.low:.2f} to {told.high:.2f}", "yes" if inside else "no", verdict)  # fmt: skip


def print_table(rows):
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for one, two in zip(rows[::2], rows[1::2], strict=True):
        words, agrees = order(one, two)
        print(f"| {' | '.join(cells(one, words))} |")
        print(f"| {' | '.join(cells(two, 'agrees' if agrees else 'DOES NOT AGREE'))} |")
    found = [order(one, two) for one, two in itertools.combinations(rows, 2)]
    told = [agrees for words, agrees in found if words != "tie"]
    print(
        f"\nAll jobs, two by two: {len(told)} of {len(found)} have an order, measured the same of {sum(told)}"
    )


def arguments(text, n_repeats, argv):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help=f"with commas (default {','.join(CASES)})")
    parser.add_argument(
        "--repeats", type=int, default=n_repeats, help=f"runs of each kind (default {n_repeats})"
    )
    parser.add_argument("--mpirun", default="mpirun.openmpi", help="an Open MPI (default mpirun.openmpi)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(argv)


def measured_rows(args, make_bench):
    """Rows of all cases, each measured in a lab that ends with it; None: the lab did not start."""
    with tempfile.TemporaryDirectory(prefix="mpicoloc-lab-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        bench = make_bench(args, folder)
        if bench.lab(None, "up", "--topology", TOPOLOGY, "--rate", RATES).wait(60):
            return None
        try:
            return [row for case in args.cases.split(",") for row in bench.rows(case)]
        finally:
            control.stop(bench.name)


def print_json(rows, *properties):
    """The rows, with some of their properties."""
    told = [dataclasses.asdict(row) | {key: getattr(row, key) for key in properties} for row in rows]
    print(json.dumps(told, indent=1))


def main(argv=None):
    args = arguments(__doc__, 3, argv)
    rows = measured_rows(args, Bench)
    if rows is None:
        return 4
    if args.json:
        print_json(rows, "measured")
    else:
        print_table(rows)
    return 0 if all(order(*pair)[1] for pair in zip(rows[::2], rows[1::2], strict=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
