"""Estimated against true slowdown of jobs that share two cores.

    python benchmarks/accuracy.py [--pairs lmp+hpcc,lmp+lmp] [--repeats 3] [--seconds 40]

For each pair, runs alternate: each program alone without mpicoloc, both together without it, both together
with it. While the slower one still runs, the other is restarted, so that a co-runner is there all the time
(Breslow et al. 2013, section 7). True times are those of the whole launcher command, which hold the start of
the job (some tenths of a second) as well; the estimate is for MPI_Init to MPI_Finalize, like `wall_s`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import programs

COLUMNS = ("target", "co-runner", "T_solo", "T_co", "true", "true i.", "estimate", "95 % interval", "error",
           "error i.", "meter", "used/taken", "overhead")  # fmt: skip


@dataclass
class Result:
    """What was seen of one target with one co-runner."""

    target: str
    co_runner: str
    solo_s: list = field(default_factory=list)
    corun_s: list = field(default_factory=list)
    corun_instrumented_s: list = field(default_factory=list)
    profiles: list = field(default_factory=list)


def mpicoloc_command(launcher, profile, job_id, meter):
    """What stands before the application to run it under mpicoloc."""
    return [sys.executable, "-m", "mpicoloc", "run", "--mpirun", launcher.mpirun, "-n", str(programs.N_RANKS),
            "--job-id", job_id, "--out", str(profile), "--meter", meter]  # fmt: skip


def corun(launcher, pair, folder, meter=None):
    """Both programs together; returns wall time and profile (or None) of the first run of each.

    The first to end is started again, as often as needed, and stopped when the other has ended.
    """
    jobs, begin, out = {}, {}, {}
    n_runs = dict.fromkeys(range(2), 0)

    def launch(i):
        profile = folder / f"{i}-{pair[i].name}-{n_runs[i]}.h5"
        command = mpicoloc_command(launcher, profile, f"{pair[i].name}-{i}", meter) if meter else ()
        cwd = folder / f"{i}-{pair[i].name}"
        programs.place(pair[i], cwd)
        begin[i] = time.monotonic()
        jobs[i] = programs.start(launcher.command(pair[i], command), cwd, launcher.cores)
        n_runs[i] += 1
        return profile

    first = {i: launch(i) for i in range(2)}
    try:
        while len(out) < 2:
            time.sleep(0.02)
            for i in range(2):
                code = jobs[i].poll()
                if code is None:
                    continue
                if code != 0:
                    where = folder / f"{i}-{pair[i].name}" / "output.txt"
                    raise RuntimeError(
                        f"{pair[i].name} ended with exit code {code}:\n{where.read_text()[-2000:]}"
                    )
                out.setdefault(i, (time.monotonic() - begin[i], first[i] if meter else None))
                if len(out) < 2:
                    launch(i)
    finally:
        for job in jobs.values():
            programs.stop(job)
    return [out[0], out[1]]


def show(profile):
    """The profile as `mpicoloc show --json` prints it; None when there is none."""
    done = subprocess.run([sys.executable, "-m", "mpicoloc", "show", "--json", str(profile)],
                          capture_output=True, text=True)  # fmt: skip
    if done.returncode != 0:
        print(f"no profile: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def measure(launcher, pair, args, folder):
    """All runs of one pair: one `Result` for each role."""
    results = [Result(pair[0].name, pair[1].name), Result(pair[1].name, pair[0].name)]
    for i_repeat in range(args.repeats):
        for i, result in enumerate(results):
            if i == 1 and pair[0].name == pair[1].name:
                result.solo_s = results[0].solo_s
                continue
            result.solo_s.append(programs.run(launcher, pair[i], folder / "solo"))
            progress(f"{result.target} solo: {result.solo_s[-1]:.1f} s")
        for meter in (None, args.meter):
            where = folder / f"{'bare' if meter is None else meter}-{i_repeat}"
            where.mkdir(parents=True, exist_ok=True)
            for result, (time_s, profile) in zip(results, corun(launcher, pair, where, meter), strict=True):
                record(result, time_s, profile)
    return results


def record(result, time_s, profile):
    """Note one co-run."""
    if profile is None:
        result.corun_s.append(time_s)
        progress(f"{result.target} with {result.co_runner}: {time_s:.1f} s")
        return
    data = show(profile)
    result.corun_instrumented_s.append(time_s)
    if data is not None:
        result.profiles.append(data)
        slowdown = data["interference"]["slowdown"]
        text = "null"
        if slowdown:
            text = f"{slowdown['value']:.3f} [{slowdown['low']:.3f}, {slowdown['high']:.3f}]"
        progress(f"{result.target} with {result.co_runner}, instrumented: {time_s:.1f} s, estimate {text}")


def progress(text):
    print(f"  {text}", file=sys.stderr, flush=True)


def rows(result):
    """One row of the table per instrumented run."""
    solo_s, corun_s = statistics.median(result.solo_s), statistics.median(result.corun_s)
    true = corun_s / solo_s
    for time_s, data in zip(result.corun_instrumented_s, result.profiles, strict=False):
        slowdown, shutters = data["interference"]["slowdown"], data["interference"]["shutters"]
        measured = slowdown is not None and slowdown["value"] is not None
        overhead = shutters["overhead_frac"]
        yield (result.target, result.co_runner, f"{solo_s:.1f}", f"{corun_s:.1f}", f"{true:.3f}",
               f"{time_s / solo_s:.3f}", f"{slowdown['value']:.3f}" if measured else "null",
               f"{slowdown['low']:.3f}..{slowdown['high']:.3f}" if measured else "-",
               f"{100 * (slowdown['value'] / true - 1):+.1f} %" if measured else "-",
               f"{100 * (slowdown['value'] / (time_s / solo_s) - 1):+.1f} %" if measured else "-",
               slowdown["method"] if measured else "-", f"{shutters['n_used']}/{shutters['n_taken']}",
               "-" if overhead is None else f"{100 * overhead:.2f} %")  # fmt: skip


def print_table(columns, lines):
    """A table that is also valid Markdown."""
    lines = [tuple(map(str, line)) for line in lines]
    widths = [max(len(line[i]) for line in [columns, *lines]) for i in range(len(columns))]
    for line in [columns, tuple("-" * width for width in widths), *lines]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")


def arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pairs", default="lmp+hpcc", help=f"of {', '.join(programs.PREPARE)} (default lmp+hpcc)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="rounds of runs (default 3)")
    parser.add_argument("--seconds", type=float, default=40.0, help="time of each program alone (default 40)")
    parser.add_argument("--meter", default="auto", help="meter of the instrumented runs (default auto)")
    parser.add_argument("--mpirun", default="mpirun.openmpi", help="launcher (default mpirun.openmpi)")
    parser.add_argument("--cores", default="0,1", help="processors that all jobs share (default 0,1)")
    return parser.parse_args(argv)


def main(argv=None):
    args = arguments(argv)
    launcher = programs.Launcher.find(args.mpirun, args.cores)
    lines = []
    with tempfile.TemporaryDirectory(prefix="mpicoloc-accuracy-", ignore_cleanup_errors=True) as folder:
        prepared = {}
        for pair in args.pairs.split(","):
            try:
                for name in pair.split("+"):
                    if name not in prepared:
                        prepared[name] = programs.prepare(name, launcher, Path(folder), args.seconds)
                a, b = (prepared[name] for name in pair.split("+"))
                for result in measure(launcher, (a, b), args, Path(folder) / pair):
                    lines += rows(result)
            except (LookupError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
                print(f"{pair}: {error}", file=sys.stderr)
    print_table(COLUMNS, lines)
    return 0 if lines else 1


if __name__ == "__main__":
    sys.exit(main())
