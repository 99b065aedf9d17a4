"""Runs of real programs whose code is changed all the time, compared with bare runs.

    python benchmarks/harmless/harmless.py [--runs 1000] [--seconds 200] [--only lmp,pw] [--resume]
        [--publish]

Each program runs bare some times, to see what of its exit code, its output and its files never differs
(`comparison.py` has the rule). Then it runs again and again under ``--meter count`` with a
keeper of the tests: its agent needs no co-runners, and puts jumps into the program's hot code and takes
them back, a hundred times a second, in ever other places (``change``), or leaves them there (``stay``, each
fourth run). Two runs at a time share the processors, and are co-runners to each other.

A run with a difference is compared with up to {N_MORE} more bare runs, some of them slowed. What is left is
kept in the work folder with all of its files, and stands in the results. ``--resume`` adds to the results
that are there. ``--publish`` writes results/harmless.json. Debian packages:

    {packages}
"""

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "toggled"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import counting_keeper
import harmless_programs
import programs
import tables
import toggled_programs
from comparison import Outcome, Reference
from programs import progress

from mpicoloc.errors import MpicolocError
from mpicoloc.profile import hdf5

N_BARE, N_MORE, LIMIT_S, OWN = 4, 6, 150.0, b"mpicoloc: "
MODES = ("change", "change", "change", "stay")
SPINNER = "while True: pass"
COMMAND = "python benchmarks/harmless/harmless.py --runs 1000 --seconds 10000 --publish"
COLUMNS = ["program", "what", "ranks", "threads", "runs", "changes of code", "passes", "lines masked",
           "differ"]  # fmt: skip
FORMATS = [None, None, "{:d}", "{:d}", "{:d}", "{:,d}", "{:.1e}", None, "{:d}"]
SHOWN = ("hpcc", "cp2k", "arrays", "exceptions", "leaps", "all")
"""Programs of the page, besides those that differ."""
CAPTION = "Some programs, every program whose results differ, and the sum over all:"
TEXT = """Programs with short inputs run under `--meter count` with a test keeper that puts jumps to counters
into up to 64 places of the hot code, different ones each time, and removes them within milliseconds; in every
fourth run they stay. Exit code, output and all files are compared byte for byte with those of at least four
bare runs, half of them beside spinners; what differs among bare runs (dates, times, memory) is masked."""


class Bench:
    """The programs, what is known of them, and what was found."""

    def __init__(self, args):
        self.args, self.work = args, args.work.resolve()
        self.lock, self.running, self.t_end = threading.Lock(), set(), time.monotonic() + args.seconds
        self.subjects, self.references, self.shims = {}, {}, {}
        self.found = {}
        if args.resume and args.out.exists():
            self.found = json.loads(args.out.read_text())["programs"]

    def prepare(self, name):
        """Input and bare runs of a program, once; programs that are not installed stay out."""
        launcher = programs.Launcher.find("mpirun.openmpi", programs.processors(2))
        subject = harmless_programs.SUBJECTS[name](launcher, self.work / f"prepare-{name}")
        reference = Reference(subject.times, subject.binary_times)
        for i in range(N_BARE):
            reference.learn(self.run_bare(name, subject, i))
        with self.lock:
            if subject.family not in self.shims:
                folder = self.work / "keeper" / subject.family
                self.shims[subject.family] = counting_keeper.shim(folder, subject.family)
            self.subjects[name], self.references[name] = subject, reference
            self.found.setdefault(name, new_row(subject))

    def run_bare(self, name, subject, i):
        """Every second one beside spinners: what depends on time should differ."""
        kept = self.work / "bare" / name / str(i)
        if (kept / "code").exists():
            return read_outcome(kept)
        spinners = [subprocess.Popen([sys.executable, "-c", SPINNER]) for _ in range(i % 2 * (1 + i // 2))]
        try:
            return self.run_once(name, kept, subject, harmless_programs.environment(subject))
        finally:
            for spinner in spinners:
                spinner.kill()
                spinner.wait()

    def run_once(self, name, kept, subject, env):
        """In the same folder always, as its name stands in some outputs; it is moved afterwards."""
        folder = self.work / "runs" / name
        code = run(subject, folder, env)
        (folder / "code").write_text(str(code))
        shutil.rmtree(kept, ignore_errors=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(kept)
        return read_outcome(kept)

    def next_name(self):
        """Claim the program with the fewest runs that is not running; None if there is no more to run."""
        with self.lock:
            names = [name for name in self.args.names if name not in self.running]
            if not names or self.n_runs() >= self.args.runs or time.monotonic() > self.t_end:
                return None
            name = min(names, key=lambda name: (self.n_runs(name), random.random()))
            self.running.add(name)
            return name

    def n_runs(self, name=None):
        """Runs so far, of a program or of all, with those under way."""
        rows = self.found.values() if name is None else [self.found.get(name, {"runs": {}})]
        return sum(sum(row["runs"].values()) for row in rows) + (len(self.running) if name is None else 0)

    def go_on(self):
        """Run programs until there is nothing more to do."""
        while (name := self.next_name()) is not None:
            try:
                if name not in self.subjects:
                    self.prepare(name)
                self.run_counted(name)
            except (LookupError, MpicolocError) as error:
                progress(f"{name} stays out: {error}")
                self.args.names.remove(name)
            finally:
                with self.lock:
                    self.running.discard(name)

    def run_counted(self, name):
        subject, row = self.subjects[name], self.found[name]
        i = sum(row["runs"].values())
        mode, folder = MODES[i % len(MODES)], self.work / "counted" / name / str(i)
        profile = self.work / f"{name}.h5"
        profile.unlink(missing_ok=True)
        begin_s = time.monotonic()
        env = counted_environment(subject, self.shims[subject.family], mode, profile)
        outcome = self.run_once(name, folder, subject, env)
        took = f"{time.monotonic() - begin_s:.1f} s"
        outcome = without_own_lines(outcome)
        differences = self.compare(name, outcome)
        counted = counts_of(profile)
        with self.lock:
            add(row, mode, counted)
            if differences:
                row["differences"].append({"mode": mode, "run": i, "what": differences, "counted": counted})
            self.write()
        told = "; ".join(differences)[:600] or "as bare"
        progress(
            f"{name} {i} {mode}: {took}, {counted['changes']} changes, {counted['passes']:.3g} passes: {told}"
        )
        if not differences:
            shutil.rmtree(folder)

    def compare(self, name, outcome):
        """Differences; more bare runs as long as there are some."""
        reference = self.references[name]
        while (differences := reference.differences(outcome)) and len(reference.outcomes) < N_BARE + N_MORE:
            reference.learn(self.run_bare(name, self.subjects[name], len(reference.outcomes)))
        return differences

    def write(self):
        """All results so far, replaced at once."""
        for name, reference in self.references.items():
            self.found[name]["bare"] = len(reference.outcomes)
            self.found[name]["masked_lines"], self.found[name]["lines"] = reference.n_masked()
        text = json.dumps({**programs.setup(), "programs": self.found}, indent=1)
        new = self.args.out.with_suffix(".new")
        new.write_text(text + "\n")
        new.replace(self.args.out)


def new_row(subject):
    """Published results of a program before its first run."""
    return {"what": subject.what, "n_ranks": subject.n_ranks, "n_threads": subject.n_threads, "runs": {},
            "passes": 0, "changes": 0, "failed_changes": 0, "uncounted": 0, "differences": []}  # fmt: skip


def run(subject, folder, env):
    """Run a program in a fresh folder; its exit code, or -1: it did not end."""
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "files").mkdir(parents=True)
    for name, text in subject.program.files:
        (folder / "files" / name).write_text(text)
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as error:
        job = subprocess.Popen(harmless_programs.command(subject), cwd=folder / "files", env=env, stdout=out,
                               stderr=error, stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        try:
            return job.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            return -1


def read_outcome(folder):
    files = {str(path.relative_to(folder / "files")): path.read_bytes()
             for path in (folder / "files").rglob("*") if path.is_file()}  # fmt: skip
    files |= {name: (folder / name).read_bytes() for name in ("stdout", "stderr")}
    return Outcome(int((folder / "code").read_text()), files)


def without_own_lines(outcome):
    """Without what mpicoloc itself says on stderr."""
    lines = outcome.files["stderr"].splitlines(keepends=True)
    kept = b"".join(line for line in lines if not line.startswith(OWN))
    return dataclasses.replace(outcome, files={**outcome.files, "stderr": kept})


def counted_environment(subject, shim, mode, profile):
    return {
        **harmless_programs.environment(subject),
        "LD_PRELOAD": str(shim),
        "COUNT_ALWAYS": mode,
        "MPICOLOC_PYTHON": sys.executable,
        "MPICOLOC_OUT": str(profile),
        "MPICOLOC_METER": "count",
    }


def counts_of(profile):
    """The agent's counts of a run (tests/c/agent/counts_always.c), from its profile, which is deleted."""
    none = {"changes": 0, "passes": 0, "failed_changes": 0}
    end_s = time.monotonic() + 10
    while not profile.exists() and time.monotonic() < end_s:
        time.sleep(0.1)
    if not profile.exists():
        return none
    nodes = hdf5.read(profile).tables["nodes"]
    text = nodes["meter_reason"][0].decode() if len(nodes) else ""
    profile.unlink()
    numbers = [int(word) for word in text.split() if word.isdigit()]
    if not text.startswith("counted always") or len(numbers) != 4:
        return none
    return {"changes": numbers[0], "passes": numbers[1], "failed_changes": numbers[3]}


def add(row, mode, counted):
    row["runs"][mode] = row["runs"].get(mode, 0) + 1
    row["uncounted"] += counted["passes"] == 0
    for key, n in counted.items():
        row[key] += n


def cells(name, found):
    masked = f"{found.get('masked_lines', 0)} of {found.get('lines', 0)}"
    return [name, found["what"], found["n_ranks"], found["n_threads"], sum(found["runs"].values()),
            found["changes"], found["passes"], masked, len(found["differences"])]  # fmt: skip


def table(found):
    """The table as a result file has it."""
    rows = [cells(name, each) for name, each in found.items()]
    sums = [sum(each[i] for each in rows) for i in (4, 5, 6, 8)]
    rows.append(["all", None, None, None, *sums[:3], None, sums[3]])
    return {"caption": CAPTION, "columns": COLUMNS, "formats": FORMATS, "rows": rows}


def selected(whole):
    """The table with what the page has of it."""
    shown = [i for i, row in enumerate(whole["rows"]) if row[0] in SHOWN or row[-1]]
    return {**whole, "shown": {"rows": shown, "columns": [0, 1, 5, 7, 8]}}


def publish(results):
    """Write the result file and the page."""
    data = [{"program": name, **found} for name, found in results["programs"].items()]
    result = {"title": "Runs with code that changes all the time", "machine": results["machine"],
              "date": results["date"], "command": COMMAND, "text": [TEXT.replace("\n", " ")],
              "tables": [selected(table(results["programs"]))], "short": [], "data": data}  # fmt: skip
    tables.publish("harmless", result)


def arguments():
    text = __doc__.format(N_MORE=N_MORE, packages=toggled_programs.PACKAGES)
    parser = programs.parser(text)
    parser.add_argument("--runs", type=int, default=1000, help="of all programs together, with those resumed")
    parser.add_argument("--seconds", type=float, default=200, help="begin no run after that (default 200)")
    parser.add_argument("--only", default=",".join(harmless_programs.SUBJECTS), help="programs, with commas")
    parser.add_argument("--at-once", type=int, default=2, help="runs at a time (default 2)")
    parser.add_argument("--resume", action="store_true", help="add to the results in --out")
    parser.add_argument("--publish", action="store_true", help="write results/harmless.json and the page")
    parser.add_argument("--work", type=Path, default=Path("/tmp/mpicoloc-harmless"), help="folder for runs")
    parser.add_argument("--out", type=Path, help="results, default in the work folder")
    args = parser.parse_args()
    args.names = args.only.split(",")
    args.work.mkdir(parents=True, exist_ok=True)
    args.out = args.out or args.work / "harmless.json"
    return args


def main():
    args = arguments()
    bench = Bench(args)
    with ThreadPoolExecutor(args.at_once) as pool:
        for worker in [pool.submit(bench.go_on) for _ in range(args.at_once)]:
            worker.result()
    bench.write()
    print(tables.markdown(table(bench.found)))
    if args.publish:
        publish(json.loads(args.out.read_text()))
    return any(row["differences"] for row in bench.found.values())


if __name__ == "__main__":
    sys.exit(main())
