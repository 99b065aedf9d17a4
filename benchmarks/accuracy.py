"""Estimated against true slowdown, for every ordered pair of some programs that run at the same time.

    python benchmarks/accuracy.py [--programs lmp,hpcc,...] [--layout apart] [--rounds 3] [--seconds 20]

Layout ``apart``: one rank a job, each job on a processor of its own, so that jobs share the memory and its
cache. Layout ``shared``: two ranks a job, all on the same two processors, in turns.

In every round each pair runs so: either program alone, both together without mpicoloc, both together with
it. While the slower one still runs, the other is started again, so that a co-runner is there all the time
(Breslow et al. 2013, section 7). Times are those of the whole launcher command, which hold the start of the
job (some tenths of a second) as well; the estimate is for MPI_Init to MPI_Finalize, like `wall_s`.

Every run is a line of the file ``--out``: a matrix that was interrupted goes on where it stopped, and
`python benchmarks/accuracy_tables.py FILE` prints the tables of what is there.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import accuracy_tables
import programs

import mpicoloc

PROGRAMS = "lmp,hpcc,nwchem,pw,heat2d,nbody"
LAYOUTS = {"apart": (1, ("0", "1")), "shared": (2, ("0,1", "0,1"))}
"""Ranks of a job, and the processors of the first and the second one."""


def command_of(launcher, program, job, profile=None, meter=None):
    """Arguments and environment of one job, with mpicoloc if its profile is named."""
    if profile is None:
        return launcher.command(program), {}
    env = programs.preload(program.argv[0], profile)
    return launcher.command(program), {**env, "MPICOLOC_JOB_ID": job, "MPICOLOC_METER": meter}


class Corun:
    """Two jobs at the same time; who ends first is started again until the other has ended too."""

    def __init__(self, launchers, pair, folder, meter):
        self.launchers, self.pair, self.folder, self.meter = launchers, pair, folder, meter
        self.jobs, self.begin_s, self.out, self.n_runs = {}, {}, {}, [0, 0]

    def profile(self, i, i_run=0):
        return self.folder / f"{i}-{self.pair[i].name}-{i_run}.h5" if self.meter else None

    def launch(self, i):
        program, cwd = self.pair[i], self.folder / f"{i}-{self.pair[i].name}"
        profile = self.profile(i, self.n_runs[i])
        command, env = command_of(self.launchers[i], program, f"{program.name}-{i}", profile, self.meter)
        programs.place(program, cwd)
        self.begin_s[i] = time.monotonic()
        self.jobs[i] = programs.start(command, cwd, self.launchers[i].cores, env)
        self.n_runs[i] += 1

    def look(self, i):
        code = self.jobs[i].poll()
        if code is None:
            return
        if code != 0:
            text = (self.folder / f"{i}-{self.pair[i].name}" / "output.txt").read_text()[-2000:]
            raise RuntimeError(f"{self.pair[i].name} ended with exit code {code}:\n{text}")
        self.out.setdefault(i, time.monotonic() - self.begin_s[i])
        if len(self.out) < 2:
            self.launch(i)

    def run(self):
        """Wall time, s, of the first run of each."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            for i in range(2):
                self.launch(i)
            while len(self.out) < 2:
                time.sleep(0.02)
                for i in range(2):
                    self.look(i)
        finally:
            for job in self.jobs.values():
                programs.stop(job)
        return [self.out[0], self.out[1]]


def show(profile):
    """What `mpicoloc show --json` prints, and why there is no slowdown; None when there is no profile."""
    done = subprocess.run([sys.executable, "-m", "mpicoloc", "show", "--json", str(profile)],
                          capture_output=True, text=True)  # fmt: skip
    if done.returncode != 0:
        progress(f"no profile: {done.stderr.strip()}")
        return None
    data = json.loads(done.stdout)
    data["interference"]["reason"] = mpicoloc.open(profile).profile.interference.reason
    return data


def measure(launchers, pair, i_round, meter, folder):
    """All runs of one pair in one round, as lines for the file."""
    common = {"round": i_round, "pair": [program.name for program in pair]}
    lines = []

    def note(kind, i, time_s, data=None):
        line = {**common, "kind": kind, "target": pair[i].name, "co_runner": pair[1 - i].name}
        lines.append({**line, "time_s": time_s, "profile": data})
        found = data and data["interference"]["slowdown"]
        text = f", estimate {found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]" if found else ""
        progress(f"{pair[i].name} {kind}, {pair[1 - i].name}: {time_s:.1f} s{text}")

    for i in range(2 if pair[0] != pair[1] else 1):
        note("solo", i, programs.run(launchers[i], pair[i], folder / "solo"))
    for kind in ("bare", "with") if i_round % 2 == 0 else ("with", "bare"):
        corun = Corun(launchers, pair, folder / f"{kind}-{i_round}", meter if kind == "with" else None)
        for i, time_s in enumerate(corun.run()):
            note(kind, i, time_s, show(corun.profile(i)) if kind == "with" else None)
    return lines


def progress(text):
    print(f"  {text}", file=sys.stderr, flush=True)


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
    parser.add_argument("--meter", default="auto", help="meter of the instrumented runs (default auto)")
    parser.add_argument("--mpirun", default="mpirun.openmpi", help="launcher (default mpirun.openmpi)")
    parser.add_argument("--out", type=Path, default=Path("accuracy.jsonl"), help="lines are added to it")
    return parser.parse_args(argv)


def pairs_of(args):
    """Names of the programs of each pair."""
    if args.pairs:
        return [tuple(pair.split("+")) for pair in args.pairs.split(",")]
    return list(itertools.combinations_with_replacement(args.programs.split(","), 2))


def run_all(args, folder):
    """Add a pair's lines to the file at once, so that only whole ones are there."""
    n_ranks, cores = LAYOUTS[args.layout]
    launchers = [programs.Launcher.find(args.mpirun, own, n_ranks=n_ranks) for own in cores]
    done = {(line["round"], *line["pair"]) for line in accuracy_tables.read(args.out)}
    prepared = {}
    for i_round, names in itertools.product(range(args.rounds), pairs_of(args)):
        if (i_round, *names) in done:
            continue
        try:
            for name in names:
                if name not in prepared:
                    prepared[name] = programs.prepare(name, launchers[0], folder, args.seconds)
            pair = tuple(prepared[name] for name in names)
            lines = measure(launchers, pair, i_round, args.meter, folder / "+".join(names))
        except (LookupError, RuntimeError, subprocess.SubprocessError) as error:
            print(f"{'+'.join(names)}: {error}", file=sys.stderr)
            continue
        with open(args.out, "a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def main(argv=None):
    args = arguments(argv)
    with tempfile.TemporaryDirectory(prefix="mpicoloc-accuracy-", ignore_cleanup_errors=True) as folder:
        run_all(args, Path(folder))
    return accuracy_tables.main([str(args.out)])


if __name__ == "__main__":
    sys.exit(main())
