"""Queues of jobs by cores in a real Slurm, with and without `mpicoloc pair --watch --layout cores`.

    python benchmarks/schedule/cores_queue.py [--queues 5] [--jobs 20] [--publish]

Makes a Slurm cluster of four nodes of four processors on this machine (`mpicoloc slurm up`; root, Debian's
slurm-wlm). Jobs are of three programs, which use no processor: each works at the speed that its neighbours
leave it (`modelled`), by the curves below and by their cores. So the scheduler is real, and the contention
is not. All jobs of a queue are submitted at once; it runs with and without the service, in alternating order.
The service knows each program's profile and the slowdowns.
"""

import dataclasses
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import modelled
import numpy as np
from modelled import Job, ratio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support" / "simulated"))

import programs
import sample
import tables

from mpicoloc.bubble.model import pairs_of_programs
from mpicoloc.lab import slurm_cluster
from mpicoloc.pairing import model_file
from mpicoloc.profile import hdf5

LAB = f"cores-{os.getpid()}"
N_NODES, N_CPUS = 4, 4
CURVES = """program,score,level_1,level_4,level_8
memory,8,1.05,1.4,1.8
mixed,4,1.02,1.15,1.3
arithmetic,0.5,1,1,1.02
"""
NAMES = ("memory", "mixed", "arithmetic")


def drawn(rng, n):
    """A queue."""
    names, sizes = rng.choice(NAMES, n), rng.integers(1, 4, n)
    return [Job(str(name), int(size), int(size), float(work_s), weight=2 * size / N_CPUS)
            for name, size, work_s in zip(names, sizes, rng.uniform(6, 24, n), strict=True)]  # fmt: skip


class Known:
    """Profiles of all programs, and the service's model, in a folder."""

    def __init__(self, folder):
        self.profiles, self.model = folder / "profiles", folder / "model"
        self.profiles.mkdir()
        (folder / "curves.csv").write_text(CURVES)
        pairs = pairs_of_programs(model_file.of_curves(str(folder / "curves.csv")))
        self.slowdowns = {(target, other): pairs[target, other][0] for target in NAMES for other in NAMES}
        for name in NAMES:
            for n_cores in range(1, 4):
                self._write_profile(name, n_cores)
        programs.mpicoloc_said("fit", "--curves", folder / "curves.csv", "--out", self.model)

    def _write_profile(self, name, n_cores):
        facts = {"id": f"{name}{n_cores}", "user": "root", "batch_name": name, "n_ranks": n_cores,
                 "n_cores": n_cores, "command": name, "wall_s": 15.0}  # fmt: skip
        profile = dataclasses.replace(sample.profile(), job=sample.job(**facts))
        hdf5.write(profile, self.profiles / f"{name}{n_cores}.h5")

    @property
    def watch(self):
        """Arguments of the service."""
        return ["--layout", "cores", "--shared", "cores", "--profiles", self.profiles, "--model", self.model]


def measured(args):
    """Makespan and mean slowdown of each queue, without and with the service."""
    folder = Path(tempfile.mkdtemp(prefix="mpicoloc-cores-"))
    found = []
    try:
        known = Known(folder)
        site = modelled.Site(LAB, folder, N_NODES, N_CPUS, known.slowdowns)
        for seed in range(args.queues):
            queue, both = drawn(np.random.default_rng(seed), args.jobs), {}
            for is_watched in (True, False) if seed % 2 else (False, True):
                both[is_watched] = site.run(queue, "cores", known.watch if is_watched else None)
            found.append([*both[False], *both[True]])
            programs.progress(f"queue {seed}: {found[-1]}")
    finally:
        slurm_cluster.stop(LAB)
        if args.keep:
            print(folder, file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return np.array(found)


def main():
    parser = programs.parser(__doc__)
    parser.add_argument("--queues", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--keep", action="store_true", help="keep the folder with the service's log")
    parser.add_argument("--publish", action="store_true", help="write results/schedule/cores-queue.json")
    args = parser.parse_args()
    found = measured(args)
    rows = [
        [what, *map(float, found[:, [i, i + 2]].mean(axis=0)), ratio(found[:, i + 2] / found[:, i])]
        for i, what in enumerate(("makespan, s", "mean slowdown of jobs"))
    ]
    table = {"columns": ["", "Slurm", "with the service", "ratio"],
             "formats": [None, "{:.3g}", "{:.3g}", "{:.3f}"], "rows": rows}  # fmt: skip
    print(tables.markdown(table))
    if args.publish:
        text = [
            f"{args.queues} queues of {args.jobs} jobs of 1 to 3 cores on four nodes of four. The scheduler "
            "is real, the contention modelled: jobs of three programs slow each other by up to 1.8."
        ]
        result = {"title": "Jobs by cores in Slurm", **programs.setup(), "text": text, "tables": [table],
                  "command": "python benchmarks/schedule/cores_queue.py", "short": [],
                  "data": found.tolist()}  # fmt: skip
        tables.publish("schedule/cores-queue", json.loads(json.dumps(result)))


if __name__ == "__main__":
    main()
