"""Estimated against true slowdown, for every ordered pair of some programs that run at the same time.

    python benchmarks/accuracy.py [--programs lmp,hpcc,...] [--layout apart] [--rounds 3] [--seconds 20]

Layout ``apart``: one rank a job, each job on a processor of its own, so that jobs share the memory and its
cache. Layout ``shared``: two ranks a job, all on the same two processors, in turns.

A round runs each program alone once, with mpicoloc but no shutters (meter none), and each pair once, both
jobs with shutters: both ordered cells come from that run. ``--bare`` adds a co-run without shutters,
``--long`` one with shutters of 0.3 s that take a quarter of the time: a reference from one run, for
machines on which the same program alone takes 10 % longer a minute later. While the slower one still runs,
the other is started again, so that a co-runner is there all the time (Breslow et al. 2013, section 7); only
the first run of each counts. Times are from MPI_Init to MPI_Finalize.

Every run is a line of the file ``--out``: a matrix that was interrupted goes on where it stopped, with the
sizes of the programs that stand there, and only with the same options on the same machine. `python
benchmarks/accuracy_tables.py FILE` prints the tables of what is there.

Wall times of separate runs are no truth on a machine that others use too. `--toggled` as the first argument
measures against one that is: see `python benchmarks/accuracy.py --toggled --help`.
"""

import argparse
import itertools
import json
import math
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import accuracy_tables
import programs

import mpicoloc
from mpicoloc.measure.job_scaling import split_wall

PROGRAMS = "lmp,hpcc,nwchem,pw,heat2d,nbody"
LAYOUTS = {"apart": (1, ((0,), (1,))), "shared": (2, ((0, 1), (0, 1)))}
"""Ranks of a job, and which of two processors the first and the second one have."""
AROUND_S, SLOWER = 4.0, 1.2
"""For the expected duration only: start and end of a run, and how much longer a co-run takes."""
OTHERS_CORES = 0.1
LONG = {"DURATION_S": "0.3", "PERIOD_S": "1.2", "MAX_S": "0.3", "DUTY_FRAC": "0.2", "ADAPT": "0"}
"""Shutters of the reference: each job in turn has 0.3 s alone, then both have 0.9 s together."""


def busy_s():
    """Processor time of the whole machine, with what other guests took, less that of this process's jobs."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = (int(field) for field in fields)
    jobs = resource.getrusage(resource.RUSAGE_CHILDREN)
    every = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return every - jobs.ru_utime - jobs.ru_stime


class Corun:
    """Jobs at the same time; who ends first is started again until the other has ended too."""

    def __init__(self, launchers, jobs, folder, options, limit_s):
        self.launchers, self.programs, self.folder = launchers, jobs, folder
        self.options, self.limit_s = options, limit_s
        self.now, self.all, self.begin_s, self.out = {}, [], {}, {}
        self.others_cores = 0.0

    def cwd(self, i):
        return self.folder / f"{i}-{self.programs[i].name}"

    def profile(self, i, i_run=0):
        return self.folder / f"{i}-{self.programs[i].name}-{i_run}.h5"

    def launch(self, i):
        program, n = self.programs[i], len(self.all)
        profile = self.profile(i, 0 if i not in self.now else n)
        profile.unlink(missing_ok=True)
        env = programs.preload(program.argv[0], profile)
        env |= {"MPICOLOC_JOB_ID": f"{program.name}-{i}-{n}", **self.options}
        programs.place(program, self.cwd(i))
        self.begin_s[i] = time.monotonic()
        self.now[i] = programs.start(self.launchers[i].command(program), self.cwd(i),
                                     self.launchers[i].cores, env)  # fmt: skip
        self.all.append(self.now[i])

    def look(self, i):
        code = self.now[i].poll()
        if code is None:
            return
        if code != 0:
            text = (self.cwd(i) / "output.txt").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self.programs[i].name} ended with exit code {code}:\n{text}")
        self.out.setdefault(i, time.monotonic() - self.begin_s[i])
        if len(self.out) < len(self.programs):
            self.launch(i)

    def run(self):
        """Time of the launcher's command, s, and profile of the first run of each."""
        self.folder.mkdir(parents=True, exist_ok=True)
        n, begin_s, others_s = len(self.programs), time.monotonic(), busy_s()
        try:
            for i in range(n):
                self.launch(i)
            while len(self.out) < n:
                time.sleep(0.02)
                for i in range(n):
                    self.look(i)
                if time.monotonic() > begin_s + self.limit_s:
                    raise RuntimeError(f"still running after {self.limit_s:.0f} s")
        finally:
            for job in self.all:
                programs.stop(job)
        self.others_cores = (busy_s() - others_s) / (time.monotonic() - begin_s)
        return [(self.out[i], show(self.profile(i))) for i in range(n)]


def show(profile):
    """What `mpicoloc show --json` prints, and why there is no slowdown; None when there is no profile."""
    done = subprocess.run([sys.executable, "-m", "mpicoloc", "show", "--json", str(profile)],
                          capture_output=True, text=True)  # fmt: skip
    if done.returncode != 0:
        progress(f"no profile: {done.stderr.strip()}")
        return None
    data = json.loads(done.stdout)
    whole = mpicoloc.open(profile).profile
    data["interference"]["reason"] = whole.interference.reason
    data["interference"]["corun"] = of_corun(whole)
    return data


def of_corun(profile):
    """Slowdown of the time with a co-runner at work: the job's, less what it had alone and stood still."""
    job = profile.interference.slowdown
    parts = split_wall(profile.job.wall_s, profile.tables["nodes"], profile.tables["shutters"])
    if job is None or parts.corun_s <= 0:
        return None
    values = {name: corun_slowdown(getattr(job, name), parts) for name in ("value", "low", "high")}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def corun_slowdown(of_job, parts):
    """Slowdown of the co-run phase, from the job's and its wall time's split; infinite if none is left."""
    solo_s = (parts.alone_s + parts.shared_s) / of_job - parts.alone_s - parts.solo_s
    return parts.corun_s / solo_s if solo_s > 0 else math.inf


def progress(text):
    print(f"  {text}", file=sys.stderr, flush=True)


class Matrix:
    """The file, what stands in it, and the programs prepared so far."""

    def __init__(self, args, folder):
        n_ranks, cores = LAYOUTS[args.layout]
        mine = programs.processors(2)
        self.args, self.folder, self.prepared = args, folder, {}
        self.launchers = [programs.Launcher.find(args.mpirun, [mine[i] for i in own], n_ranks=n_ranks)
                          for own in cores]  # fmt: skip
        lines = accuracy_tables.read(args.out)
        self.sizes = {line["name"]: line["size"] for line in lines if line["kind"] == "program"}
        self.done = {(line["round"], line["kind"], *line["pair"]) for line in lines if "pair" in line}
        accuracy_tables.refuse_mixed([*lines, setup_of(args)], args.out)
        if not lines:
            self.add([setup_of(args)])

    def add(self, lines):
        """All lines of a run at once, so that only whole runs are there."""
        with open(self.args.out, "a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))

    def prepare(self, name):
        if name not in self.prepared:
            size = self.sizes.get(name)
            program = programs.prepare(name, self.launchers[0], self.folder, self.args.seconds, size)
            if size is None:
                self.add([{"kind": "program", "name": name, "size": program.size}])
            self.prepared[name] = program
        return self.prepared[name]

    def measure(self, kind, i_round, names):
        """One run as a line for each of its jobs, if it is not in the file."""
        if (i_round, kind, *names) in self.done:
            return
        jobs = [self.prepare(name) for name in names]
        launchers = self.launchers if len(names) > 1 else [self.launchers[i_round % 2]]
        options = {"MPICOLOC_METER": "none" if kind in ("solo", "bare") else self.args.meter}
        if kind == "long":
            options |= {f"MPICOLOC_SHUTTER_{name}": value for name, value in LONG.items()}
        folder = self.folder / f"{kind}-{i_round}-{'+'.join(names)}"
        lines = []
        corun = Corun(launchers, jobs, folder, options, 120 + 10 * self.args.seconds)
        for i, (time_s, data) in enumerate(corun.run()):
            if data and data["partial"]:
                data = None
            if data is None and kind in ("solo", "bare"):
                raise RuntimeError(f"{kind} run without a whole profile")
            co_runner = names[1 - i] if len(names) > 1 else None
            lines.append({"kind": kind, "round": i_round, "pair": list(names), "target": names[i],
                          "co_runner": co_runner, "size": jobs[i].size, "command_s": time_s,
                          "others_cores": corun.others_cores, "wall_s": data and data["job"]["wall_s"],
                          "profile": data})  # fmt: skip
            what = {"with": "slowdown", "long": "corun"}.get(kind)
            found = data and what and data["interference"][what]
            text = (
                f", estimate {found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]" if found else ""
            )
            progress(f"{names[i]} {kind}, {co_runner or 'alone'}: {time_s:.1f} s{text}")
        if corun.others_cores > OTHERS_CORES:
            progress(f"others used {corun.others_cores:.2f} processors meanwhile: not a quiet machine")
        self.add(lines)
        self.done.add((i_round, kind, *names))

    def run(self):
        """Run what is missing; returns the reasons for what still is, by round and pair."""
        missing, pairs = {}, pairs_of(self.args)
        for i_round, names in itertools.product(range(self.args.rounds), pairs):
            kinds = kinds_of(self.args)
            try:
                for name in dict.fromkeys(names):
                    self.measure("solo", i_round, (name,))
                for kind in kinds if i_round % 2 == 0 else reversed(kinds):
                    self.measure(kind, i_round, names)
            except (LookupError, OSError, RuntimeError, subprocess.SubprocessError) as error:
                missing[f"{'+'.join(names)} of round {i_round}"] = error
                progress(f"{'+'.join(names)}: {error}")
        return missing

    def expected_s(self):
        """About how long what is not in the file will take."""
        pairs, rounds = pairs_of(self.args), range(self.args.rounds)
        names = {name for pair in pairs for name in pair}
        n_solo = sum((i, "solo", name) not in self.done for i in rounds for name in names)
        kinds = kinds_of(self.args)
        n_co = sum((i, kind, *pair) not in self.done for i in rounds for kind in kinds for pair in pairs)
        factor = SLOWER * (2 if self.args.layout == "shared" else 1)
        trial_s = 7 * sum(name not in self.sizes for name in names)
        return trial_s + (n_solo + n_co) * AROUND_S + (n_solo + factor * n_co) * self.args.seconds


def setup_of(args):
    """The line that says what all lines of the file have in common."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text() if cpuinfo.exists() else "")
    machine = f"{platform.node()}, {os.cpu_count()} x {model[1] if model else platform.machine()}"
    return {"kind": "setup", "layout": args.layout, "seconds": args.seconds, "meter": args.meter,
            "mpirun": args.mpirun, "mpicoloc": mpicoloc.__version__, "machine": machine}  # fmt: skip


def arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = ", ".join(programs.PREPARE)
    parser.add_argument("--programs", default=PROGRAMS, help=f"of {known} (default {PROGRAMS})")
    parser.add_argument("--pairs", help="these pairs only, as lmp+hpcc,lmp+lmp")
    parser.add_argument("--layout", default="apart", choices=LAYOUTS, help="who shares what (default apart)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind (default 3)")
    parser.add_argument("--seconds", type=float, default=20.0, help="time of each program alone (default 20)")
    parser.add_argument("--bare", action="store_true", help="also each pair without shutters")
    parser.add_argument("--long", action="store_true", help="also each pair with long shutters")
    parser.add_argument("--meter", default="auto", help="meter of the instrumented runs (default auto)")
    parser.add_argument("--mpirun", default="mpirun.openmpi", help="launcher (default mpirun.openmpi)")
    parser.add_argument("--out", type=Path, default=Path("accuracy.jsonl"), help="lines are added to it")
    return parser.parse_args(argv)


def kinds_of(args):
    """Of co-runs, in the order of the first round."""
    return ("bare",) * args.bare + ("long",) * args.long + ("with",)


def pairs_of(args):
    """Names of the programs of each pair."""
    if args.pairs:
        return [tuple(pair.split("+")) for pair in args.pairs.split(",")]
    return list(itertools.combinations_with_replacement(args.programs.split(","), 2))


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["--toggled"]:
        sys.path.insert(0, str(Path(__file__).resolve().parent / "toggled"))
        import toggled  # it takes functions from here

        return toggled.main(argv[1:])
    args = arguments(argv)
    with tempfile.TemporaryDirectory(prefix="mpicoloc-accuracy-", ignore_cleanup_errors=True) as folder:
        matrix = Matrix(args, Path(folder))
        progress(f"expected duration: about {matrix.expected_s() / 60:.0f} min")
        missing = matrix.run()
    code = accuracy_tables.main([str(args.out)])
    for what, error in missing.items():
        print(f"missing: {what}: {error}", file=sys.stderr)
    return 1 if missing else code


if __name__ == "__main__":
    sys.exit(main())
