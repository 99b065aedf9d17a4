"""Random queues in a real Slurm, paired by a trained model and by measured slowdowns, on 1 to 5 nodes.

    export OMPI_MCA_mpi_yield_when_idle=1
    python benchmarks/schedule/campaign.py --out FOLDER --layout shared --seconds 3 --rounds 2 \\
        --programs lmp:1,pw:1,heat2d:1,nbody:1,updates:1,heat2d_small:1,lmp_eam:2,hpcc:2,nwchem:2,ranks:2
    python benchmarks/schedule/queues.py FOLDER/runs [--queues 20] [--labs 8] [--publish]

The experiments of Zacarias et al. 2021, sections 4.3 and 4.4.2, with the programs of a campaign, whose ranks
yield while they wait (with two ranks that poll, some pairs take 12 times as long). Jobs are drawn at random
and ask for whole nodes. Each queue runs in a Slurm cluster of its own (`mpicoloc slurm up`; root): alone on
nodes, two at a time in order of arrival, and paired by `mpicoloc pair --watch`, greedily and by blossom, with
a model that was trained on three quarters of the measured pairs (the same for all queues), and with all
measured pairs. The scheduler is real. The contention is not: jobs use no processor and are slowed as
measured, so several clusters run side by side. Besides, all queues are simulated without Slurm, with the same
slowdowns.

What has run is in FOLDER/runs/queues.jsonl and is not run again.
"""

import concurrent.futures
import dataclasses
import fcntl
import itertools
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import modelled
import numpy as np
from modelled import Job, ratio
from simulated_deployment import Programs, deploy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import programs
import tables
from programs import mpicoloc_said

from mpicoloc.core import slowdown
from mpicoloc.core.profile import Estimate, Interference, table
from mpicoloc.lab import slurm_cluster
from mpicoloc.pairing import campaign, model_file, training_sets
from mpicoloc.pairing.policies import Queue, Rules
from mpicoloc.profile import hdf5

TRAINED_FRAC = 0.75
"""Part of the pairs that the model is trained on (section 4.2)."""
N_CPUS = 2
WAYS = ("exclusive", "shared", "greedy, trained", "greedy, measured", "blossom, trained", "blossom, measured")
BEGIN_S = 1.7e9


class Measured:
    """A campaign: its jobs by name, their profiles alone, and all slowdowns."""

    def __init__(self, folder, n_steps):
        self.n_steps = n_steps
        self.training = training_sets.from_campaign(str(folder))
        self.jobs, rows = self.training.jobs, self.training.rows
        self.names = [job.id for job in self.jobs]
        self.runtime_s = n_steps * np.array([job.runtime_s for job in self.jobs])
        self.row_of = {(int(row["target"]), int(row["co_runner"])): row for row in rows}
        self.slowdown = np.full((len(self.jobs),) * 2, np.nan)
        for pair, row in self.row_of.items():
            self.slowdown[pair] = max(float(row["slowdown"]), 1.0)
        alone = [run for made in campaign.read(str(folder)) if len(made.runs) == 1 for run in made.runs]
        if np.isnan(self.slowdown).any():
            raise SystemExit(f"{folder} has not all pairs yet: let the campaign finish")
        self.profiles = {run.program: hdf5.read(folder / run.profile) for run in alone}

    def trained(self, path, seed):
        """Train a model on some of the pairs; its predictions for all."""
        n_rows = len(self.training.rows)
        chosen = np.random.default_rng(seed).permutation(n_rows)[: round(TRAINED_FRAC * n_rows)]
        part = dataclasses.replace(self.training, rows=self.training.rows[np.sort(chosen)])
        training_sets.write_file(part, path.with_suffix(".training"))
        mpicoloc_said("fit", "--training", path.with_suffix(".training"), "--out", path)
        return slowdown.pair_slowdowns(model_file.read(str(path)), self.jobs).value

    def write_profiles(self, folder, *, have_met):
        """Profiles of jobs that ran alone, and of each pair that met; each job has several steps."""
        folder.mkdir()
        numbers = itertools.count(1)
        if have_met:
            for i, j in itertools.combinations_with_replacement(range(len(self.jobs)), 2):
                first, second = next(numbers), next(numbers)
                self._write_met(folder, i, first, j, second)
                self._write_met(folder, j, second, i, first)
        for i in range(len(self.jobs)):
            self._write_alone(folder, i, next(numbers))

    def _write_met(self, folder, i, number, j, other):
        """Job `number` of program i ran beside the job `other` of program j."""
        row, profile = self.row_of[i, j], self.profiles[self.names[i]]
        low, value, high = (max(float(row[end]), 1.0) for end in ("low", "slowdown", "high"))
        wall_s = value * profile.job.wall_s
        met = Interference(Estimate(value, low, high, int(row["n"]), "1", "count"), shared_s=wall_s)
        beside = table("corunners", {"i_node": [0], "job_id": [str(other)], "overlap_s": [wall_s]})
        changes = {"interference": met, "tables": {**profile.tables, "corunners": beside}}
        self._write(folder, i, str(number), changes, start_unix_s=BEGIN_S, wall_s=wall_s)

    def _write_alone(self, folder, i, number):
        """Job `number` ran program i so often, alone and later than all others."""
        wall_s = self.profiles[self.names[i]].job.wall_s
        for step in range(self.n_steps):
            begin_s = BEGIN_S + 1e6 + step * (wall_s + 1)
            self._write(folder, i, f"{number}-{step}", {}, start_unix_s=begin_s)

    def _write(self, folder, i, name, changes, **facts):
        profile = self.profiles[self.names[i]]
        job = dataclasses.replace(profile.job, id=name, user="root", batch_name=self.names[i], **facts)
        hdf5.write(dataclasses.replace(profile, job=job, **changes), folder / f"{name}.h5")

    def queue(self, seed, n_nodes, n_jobs):
        """Indices of the programs of a queue."""
        return np.random.default_rng([seed, n_nodes]).integers(0, len(self.jobs), n_jobs * n_nodes)

    def job(self, i):
        n_tasks = self.jobs[i].n_ranks
        return Job(self.names[i], n_tasks, N_CPUS, float(self.runtime_s[i]))

    def slowdowns(self):
        return {(self.names[i], self.names[j]): value for (i, j), value in np.ndenumerate(self.slowdown)}


def simulated(measured, expected, jobs, n_nodes):
    """Makespan of each way without Slurm, s."""

    def of(seen, rules):
        true, told = Queue(measured.runtime_s, measured.slowdown), Queue(measured.runtime_s, seen)
        deployed = Programs(true, told, np.diag(measured.slowdown), np.diag(seen))
        return deploy(deployed, jobs, rules, n_nodes).makespan_s

    known = {"trained": expected, "measured": measured.slowdown}
    found = {"exclusive": of(measured.slowdown, Rules("fifo")),
             "shared": of(measured.slowdown, Rules("fifo-shared"))}  # fmt: skip
    for way in WAYS[2:]:
        policy, seen = way.split(", ")
        found[way] = of(known[seen], Rules(policy))
    return [found[way] for way in WAYS]


def run(jobs, slowdowns, folder, way, n_nodes):
    """Makespan, s, and mean slowdown of a queue."""
    name = f"queues-{os.getpid()}"
    place = Path(tempfile.mkdtemp(prefix="mpicoloc-queues-"))
    try:
        with open(folder / "starting", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # two clusters that start at once may find the same free ports
            site = modelled.Site(name, place, n_nodes, N_CPUS, slowdowns)
        watch = None
        if way not in ("exclusive", "shared"):
            policy, seen = way.split(", ")
            shutil.copytree(folder / seen, place / "profiles")
            watch = ["--policy", policy, "--profiles", place / "profiles"]
            watch += ["--model", folder / "model"] if seen == "trained" else ["--prior-slowdown", "1.3"]
        return site.run(jobs, "shared" if way == "shared" else "whole", watch)
    finally:
        slurm_cluster.stop(name)
        shutil.rmtree(place, ignore_errors=True)


def run_all(measured, folder, args):
    """Run all queues that are not recorded; makespan, s, and mean slowdown of each by its key."""
    record = args.campaign / "queues.jsonl"
    done = {tuple(key): value for key, value in map(json.loads, record.open())} if record.exists() else {}
    wanted = [(way, *queue) for queue in queues_of(args) for way in WAYS]
    with concurrent.futures.ProcessPoolExecutor(args.labs) as pool:
        running = {}
        for key in (key for key in wanted if key not in done):
            way, seed, n_nodes, n_jobs, _ = key
            jobs = [measured.job(i) for i in measured.queue(seed, n_nodes, n_jobs)]
            running[pool.submit(run, jobs, measured.slowdowns(), folder, way, n_nodes)] = key
        for future in concurrent.futures.as_completed(running):
            key = running[future]
            if future.exception():
                pool.shutdown(cancel_futures=True)
            done[key] = future.result()
            with record.open("a") as file:
                file.write(json.dumps([key, done[key]]) + "\n")
            programs.progress(f"{key}: {done[key]}, {len(done)} of {len(wanted)}")
    return {key: done[key] for key in wanted}


def queues_of(args):
    """Seed, nodes, jobs per node and runs per job of each queue."""
    return [(seed, 1 + seed % args.nodes, args.jobs, args.runs) for seed in range(args.queues)]


def rows_of(done, simulations, args):
    """A row for each way: makespan over that of exclusive, worst, by nodes, slowdown, and simulated."""
    queues = queues_of(args)
    made = np.array([[done[way, *queue] for queue in queues] for way in WAYS])
    shares = made[:, :, 0] / made[0, :, 0]
    simulated_shares = simulations.T / simulations.T[0]
    n_nodes = np.array([queue[1] for queue in queues])
    return [
        [
            way, ratio(own), float(own.max()), float(made[i, :, 1].mean()), ratio(simulated_shares[i]),
            *(float(np.exp(np.log(own[n_nodes == n]).mean())) for n in range(1, args.nodes + 1)),
        ]
        for i, (way, own) in enumerate(zip(WAYS, shares, strict=True))
    ]  # fmt: skip


def main():
    parser = programs.parser(__doc__)
    parser.add_argument("campaign", metavar="FOLDER", type=Path, help="that `mpicoloc campaign --out` wrote")
    parser.add_argument("--queues", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=10, help="jobs per node (default 10)")
    parser.add_argument("--nodes", type=int, default=5, help="largest number of nodes (default 5)")
    parser.add_argument("--runs", type=int, default=3, help="runs of its program per job (default 3)")
    parser.add_argument("--labs", type=int, default=8, help="clusters side by side (default 8)")
    parser.add_argument("--publish", action="store_true", help="write results/schedule/queues.json")
    args = parser.parse_args()
    measured = Measured(args.campaign, args.runs)
    with tempfile.TemporaryDirectory(prefix="mpicoloc-queues-") as place:
        folder = Path(place)
        expected = measured.trained(folder / "model", seed=0)
        measured.write_profiles(folder / "trained", have_met=False)
        measured.write_profiles(folder / "measured", have_met=True)
        simulations = np.array([
            simulated(measured, expected, measured.queue(seed, n_nodes, args.jobs), n_nodes)
            for seed, n_nodes, *_ in queues_of(args)
        ])  # fmt: skip
        done = run_all(measured, folder, args)
    table_ = {
        "columns": ["way", "makespan / exclusive", "worst", "mean slowdown", "simulated",
                    *(f"nodes: {n}" for n in range(1, args.nodes + 1))],
        "formats": [None, "{:.3f}", "{:.2f}", "{:.2f}", "{:.3f}", *["{:.2f}"] * args.nodes],
        "rows": rows_of(done, simulations, args),
        "shown": {"rows": [1, 2, 4, 5], "columns": [0, 1, 2, 3, 4]},
    }  # fmt: skip
    print(tables.markdown(table_))
    if args.publish:
        publish(measured, table_, done, simulations, args)


def publish(measured, table_, done, simulations, args):
    text = (
        f"{args.queues} queues of {args.jobs} jobs per node on 1 to {args.nodes} nodes of two processors in "
        f"a real Slurm (Zacarias 2021, 4.4.2), of {len(measured.jobs)} measured programs. "
        "Jobs ask for whole nodes, use no processor, and are slowed as measured. "
        "*trained*: the model has seen three quarters of the pairs; *measured*: all pairs have met."
    )
    data = [
        {"names": measured.names, "runtime_s": measured.runtime_s.tolist()},
        *({"slowdown": row.tolist()} for row in measured.slowdown),
        *({"run": [*key, *value]} for key, value in done.items()),
        *({"simulated_s": row.tolist()} for row in simulations),
    ]
    result = {"title": "Random queues in Slurm", **programs.setup(), "text": [text], "tables": [table_],
              "command": "python benchmarks/schedule/queues.py FOLDER/runs", "short": [],
              "data": data}  # fmt: skip
    tables.publish("schedule/queues", json.loads(json.dumps(result)))


if __name__ == "__main__":
    main()
