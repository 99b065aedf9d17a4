"""Bytes per level and link of a fat-tree: what profiles tell against the counters of a lab's interfaces.

    sudo python benchmarks/lab.py [--programs heat2d,lmp,hpcc,alltoall,mixed] [--placements F4,F2,RF] [--json]

Makes a lab (`mpicoloc lab`) and runs each program in it with mpicoloc, eight ranks, one rank on a host. The
profile gives messages and collectives between ranks; d-mod-k puts them on links. Interfaces count packets.

The correction: each packet has 66 bytes of headers (Ethernet 14, IPv4 20, TCP with time stamps 32), those of
acknowledgements, which have nothing else, too. They are taken away for the number of packets that the same
interface counted, so it does not matter how long packets are. What remains for a job that only begins and
ends (`traffic empty`) is the launcher's and the coordinators' own, and is taken away link by link.

``ratio`` is counters over profile, all links of a level together; ``worst link`` the largest difference of a
link, over what the profile says of it, among links with at least 1 % of their level. Counters have what the
MPI library adds to each message too (headers of some ten bytes, and those of its protocols).
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import inputs
import numpy as np
import programs
from tables import print_table

from mpicoloc.core import network
from mpicoloc.core.network import Placement
from mpicoloc.lab import control
from mpicoloc.network import utilisation
from mpicoloc.network.traffic import job_traffic
from mpicoloc.profile import hdf5

PROGRAMS = "heat2d,lmp,hpcc,alltoall,mixed"
HEADER_BYTES = 14 + 20 + 32
LEVEL_LIMIT, LINK_LIMIT = 0.03, 0.05
SMALL_FRAC = 0.01
LIMIT_S = 600
LAB = [sys.executable, "-m", "mpicoloc", "lab"]
TRAFFIC = programs.EXAMPLES / "fattree-lab" / "traffic.c"
COLUMNS = ("program", "placement", "level", "way", "profile B", "collectives", "counters B", "launcher B",
           "ratio", "within 3 %", "links", "worst link", "within 5 %")  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One level of one run in one direction."""

    program: str
    placement: str
    level: int
    way: str
    profile_bytes: float
    collective_frac: float
    counted_bytes: float
    launcher_bytes: float
    n_links: int
    worst_link_frac: float

    @property
    def ratio(self):
        return self.counted_bytes / self.profile_bytes

    @property
    def is_level_near(self):
        return abs(self.ratio - 1) <= LEVEL_LIMIT

    @property
    def is_link_near(self):
        return self.worst_link_frac <= LINK_LIMIT

    def cells(self):
        yes = {True: "yes", False: "NO"}
        return (self.program, self.placement, f"L{self.level}", self.way, f"{self.profile_bytes:,.0f}",
                f"{self.collective_frac:.0%}", f"{self.counted_bytes:,.0f}", f"{self.launcher_bytes:,.0f}",
                f"{self.ratio:.4f}", yes[self.is_level_near], str(self.n_links),
                f"{self.worst_link_frac:.2%}", yes[self.is_link_near])  # fmt: skip


class Bench:
    """A lab, the programs, and the ranks of each job."""

    def __init__(self, args, folder):
        self.args, self.folder, self.name = args, folder, f"bench-{os.getpid()}"
        self.tree = network.parse_xgft(args.topology, 1.25e8)
        launcher = programs.Launcher.find(args.mpirun, programs.processors(1), n_ranks=args.ranks)
        self.programs = {name: self.program(launcher, name) for name in ("empty", *args.programs.split(","))}

    def program(self, launcher, name):
        """Arguments and files of a program, of a size that takes seconds."""
        if name in ("empty", "alltoall", "mixed", "ring"):
            binary = launcher.compile(TRAFFIC, self.folder / "traffic")
            return programs.Program(name, (binary, name, "200000", "10"))
        if name == "heat2d":
            binary = launcher.compile(programs.EXAMPLES / "heat2d.c", self.folder / name)
            return programs.Program(name, (binary, "800", "500"))
        if name == "lmp":
            text = inputs.lammps(16, 100)
            return programs.Program(name, ("lmp", "-in", "in.lj", "-log", "none"), (("in.lj", text),))
        if name == "hpcc":
            text = inputs.hpcc(800, self.args.ranks)
            return programs.Program(name, ("hpcc",), (("hpccinf.txt", text),))
        raise SystemExit(f"no program {name!r}; there are {PROGRAMS}, ring")

    def counted(self, program, placement):
        """Profile of a run, and the bytes of messages that each link counted, up and down."""
        folder = self.folder / f"{program.name}-{placement}"
        programs.place(program, folder)
        command = [*LAB, "run", "--name", self.name, "-n", str(self.args.ranks), "--placement", placement,
                   "--out", str(folder / "job.h5"), "--", *program.argv]  # fmt: skip
        before = control.ask(self.name, "counters")
        with open(folder / "output.txt", "w") as log:
            subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=True,
                           timeout=LIMIT_S, env=programs.environment())  # fmt: skip
        links = control.since(control.ask(self.name, "counters"), before)["links"]
        return hdf5.read(folder / "job.h5"), [self.payload(links, level) for level in range(self.tree.height)]

    @staticmethod
    def payload(links, level):
        own = [link for link in links if link["level"] == level]
        return {way: np.array([link[f"{way}_bytes"] - HEADER_BYTES * link[f"{way}_packets"] for link in own],
                              dtype=float) for way in ("up", "down")}  # fmt: skip

    def loads(self, profile):
        """Bytes on each link by the profile: all messages, and those of point-to-point calls alone."""
        hosts = [int(name.removeprefix("h")) for name in job_traffic.hostnames(profile)]
        placement, tables = Placement(hosts), profile.tables
        told = job_traffic.job_traffic(tables, len(hosts), profile.job.mpi_library)
        for note in told.notes:
            print(f"{profile.job.id}: {note}", file=sys.stderr)
        messages = job_traffic.point_to_point(tables["peers"], len(hosts))
        return [utilisation.job_link_loads(self.tree, placement, part) for part in (told.traffic, messages)]

    def rows(self, name, placement, launcher):
        """Levels that a program loads under a placement; `launcher`: what an empty job counts."""
        profile, counted = self.counted(self.programs[name], placement)
        every, messages = self.loads(profile)
        for level in range(self.tree.height):
            for way in ("up", "down"):
                told, alone = (getattr(loads, way)[level] for loads in (every, messages))
                if told.sum():
                    own = launcher[level][way]
                    found = counted[level][way] - own
                    yield Row(name, placement, level, way, told.sum(), 1 - alone.sum() / told.sum(),
                              found.sum(), own.sum(), np.count_nonzero(told), worst(found, told))  # fmt: skip


def worst(found, told):
    """Largest relative difference of a link that carries something of note."""
    noted = told >= SMALL_FRAC * told.sum()
    return float(np.max(np.abs(found[noted] / told[noted] - 1)))


def show(rows):
    print_table(COLUMNS, [row.cells() for row in rows])
    ratios = [abs(row.ratio - 1) for row in rows]
    print(f"\nlevels: {sum(row.is_level_near for row in rows)} of {len(rows)} within {LEVEL_LIMIT:.0%}, "
          f"median {statistics.median(ratios):.2%}, worst {max(ratios):.2%}; links: "
          f"{sum(row.is_link_near for row in rows)} of {len(rows)} rows within {LINK_LIMIT:.0%}, "
          f"worst {max(row.worst_link_frac for row in rows):.2%}")  # fmt: skip


def as_json(row):
    return {**dataclasses.asdict(row), "ratio": row.ratio, "is_level_near": row.is_level_near,
            "is_link_near": row.is_link_near}  # fmt: skip


def arguments(argv):
    parser = programs.parser(__doc__)
    add = parser.add_argument
    add("--programs", default=PROGRAMS, help=f"with commas (default {PROGRAMS})")
    add("--placements", default="F4,F2,RF", help="with commas (default F4,F2,RF)")
    add("--topology", default="XGFT(3;4,2,2;1,2,2)", help="of the lab (default XGFT(3;4,2,2;1,2,2))")
    add("--ranks", type=int, default=8, help="ranks of a job, one on a host (default 8)")
    add("--mpirun", default="mpirun.openmpi", help="an Open MPI (default mpirun.openmpi)")
    add("--json", action="store_true", help="print JSON")
    return parser.parse_args(argv)


def main(argv=None):
    args = arguments(argv)
    rows = []
    with tempfile.TemporaryDirectory(prefix="mpicoloc-lab-") as folder:
        bench = Bench(args, Path(folder))
        control.start(bench.name, args.topology, "1Gbit")
        try:
            for placement in args.placements.split(","):
                _, launcher = bench.counted(bench.programs["empty"], placement)
                for name in args.programs.split(","):
                    rows += bench.rows(name, placement, launcher)
                    print(f"{name} {placement}", file=sys.stderr)
        finally:
            control.stop(bench.name)
    if args.json:
        print(json.dumps([as_json(row) for row in rows], indent=1))
    else:
        show(rows)
    return 0 if all(row.is_level_near and row.is_link_near for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
