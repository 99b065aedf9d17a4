"""Two MPI jobs of different kind share two cores; each is told what that cost it and what it should pay.

Run by ``launch/demo`` in the project's virtual environment, or by hand:

    python examples/demo.py [--seconds 25] [--dir build/demo]

Exit code 0 when both jobs ended well and left a profile, else 1.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

HERE = Path(__file__).resolve().parent
N_RANKS = 2
N_TOP_CALLS = 3
# -P: what is installed, not the checkout that this may run in.
MPICOLOC = (sys.executable, "-P", "-m", "mpicoloc")


@dataclass(frozen=True)
class Program:
    """One example: problem size, and a number of steps that takes a second or so."""

    name: str
    kind: str
    size: int
    n_trial_steps: int


PROGRAMS = (
    Program("heat2d", "memory-bound stencil, halo exchange", 1400, 150),
    Program("nbody", "compute-bound, all pairs, allgather", 800, 300),
)


class DemoError(Exception):
    """Something the demo needs is missing or failed; the message is for the user."""


def tool(name):
    """Path of a program: beside this interpreter, in the virtual environment, before anything else."""
    beside = Path(sys.executable).parent / name
    if beside.exists():
        return str(beside)
    found = shutil.which(name)
    if found is None:
        raise DemoError(f"no {name} beside {sys.executable} or in PATH: run launch/demo, which installs it")
    return found


def compile_program(program, folder):
    """Compile an example with the embedded MPI; returns its command, without a compiler its NumPy twin's."""
    if shutil.which("cc") is None:
        return [sys.executable, str(HERE / "in_numpy.py"), program.name]
    binary = folder / program.name
    command = [tool("mpicc"), "-O2", "-o", str(binary), str(HERE / f"{program.name}.c"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise DemoError(f"{' '.join(command)} failed:\n{done.stderr}")
    return [str(binary)]


def n_steps_for(program, words, seconds):
    """Steps that take the job about `seconds` when it has half of the cores, whatever the machine's speed."""
    command = [tool("mpiexec"), "-n", str(N_RANKS), *words]
    command += [str(program.size), str(program.n_trial_steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    loop_s = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("loop_s")]
    if done.returncode != 0 or not loop_s:
        raise DemoError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return max(1, round(seconds / 2 * program.n_trial_steps / max(float(loop_s[0]), 1e-3)))


def start(program, words, n_steps, folder):
    """Start one job under mpicoloc; its output goes to a file."""
    profile = folder / f"{program.name}.h5"
    profile.unlink(missing_ok=True)
    command = [*MPICOLOC, "run", "-n", str(N_RANKS), "--out", str(profile), "--job-id", program.name,
               "--", *words, str(program.size), str(n_steps)]  # fmt: skip
    with open(folder / f"{program.name}.log", "w") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def wait_all(jobs, limit_s):
    """Wait for all jobs with a sign of life; returns their exit codes."""
    begin = time.monotonic()
    while any(job.poll() is None for job in jobs):
        elapsed_s = time.monotonic() - begin
        if elapsed_s > limit_s:
            for job in jobs:
                job.terminate()
            raise DemoError(f"the jobs did not end within {limit_s:.0f} s and were stopped")
        if sys.stderr.isatty():
            print(f"\r  both jobs running, {elapsed_s:3.0f} s ", end="", file=sys.stderr, flush=True)
        time.sleep(0.2)
    if sys.stderr.isatty():
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return [job.returncode for job in jobs]


def summary(profile):
    """The profile as `mpicoloc show --json` prints it."""
    done = subprocess.run([*MPICOLOC, "show", "--json", str(profile)], capture_output=True, text=True)
    if done.returncode != 0:
        raise DemoError(f"mpicoloc show {profile} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def top_calls(profile):
    """Share of the ranks' time in the MPI functions that took most of it: [(name, share)]."""
    with h5py.File(profile) as file:
        sites, wall_s = file["call_sites"][...], file["ranks"]["wall_s"].sum()
    names, where = np.unique(sites["call"], return_inverse=True)
    time_s = np.bincount(where, weights=sites["time_ns"] * 1e-9, minlength=names.size)
    order = np.argsort(time_s)[::-1][:N_TOP_CALLS]
    return [(names[i].decode(), time_s[i] / wall_s) for i in order if time_s[i] > 5e-4 * wall_s]


def percent(fraction):
    return "-" if fraction is None else f"{100 * fraction:.1f} %"


def slowdown_rows(data):
    """Rows on the slowdown; says so when it could not be measured."""
    interference = data["interference"]
    note = interference["processor"]["note"]
    more = [("note", note)] if note else []
    slowdown, shutters = interference["slowdown"], interference["shutters"]
    taken = f"{shutters['n_used']} of {shutters['n_taken']} shutters valid"
    taken += f", overhead {percent(shutters['overhead_frac'])}"
    if slowdown is None or slowdown["value"] is None:
        return [("slowdown", "not measured: too little evidence in this run, so no discount is given"),
                ("evidence", taken), *more]  # fmt: skip
    text = f"{slowdown['value']:.2f}  (95 % interval {slowdown['low']:.2f} to {slowdown['high']:.2f})"
    return [("slowdown", text), ("evidence", f"{taken}, {slowdown['method']}"), *more]


def price_rows(data):
    """Rows on the price."""
    price = data["price"]
    if price is None:
        return [("price", "not computed")]
    text = f"{price['fair_su']:.4f} SU instead of {price['runtime_su']:.4f} SU ({price['pricing']})"
    return [("discount", percent(price["discount_frac"])), ("price", text)]


def show(program, profile, data):
    """Print what one job is told."""
    others = data["interference"]["co_runners"]
    co_runners = ", ".join(f"{other['id']} for {other['overlap_s']:.1f} s" for other in others)
    calls = ", ".join(f"{name} {percent(share)}" for name, share in top_calls(profile))
    rows = [("ran", f"{data['job']['wall_s']:.1f} s, shared with {co_runners or 'nobody'}"),
            *slowdown_rows(data), *price_rows(data),
            ("in MPI", f"{percent(data['mpi']['time_frac'])} of its time: {calls or '-'}"),
            ("profile", os.path.relpath(profile))]  # fmt: skip
    print(f"\n{program.name}  ({program.kind})")
    for name, text in rows:
        print(f"  {name:<9} {text}")


def share_two_cores():
    """Keep this process and all that it starts on the same two cores."""
    cores = sorted(os.sched_getaffinity(0))[:N_RANKS]
    os.sched_setaffinity(0, cores)
    return cores


def demo(seconds, folder):
    """Run both jobs and print what each is told; returns the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    cores = share_two_cores()
    print(f"compiling and sizing {len(PROGRAMS)} examples", flush=True)
    commands = [compile_program(program, folder) for program in PROGRAMS]
    n_steps = [n_steps_for(p, c, seconds) for p, c in zip(PROGRAMS, commands, strict=True)]
    names = " and ".join(program.name for program in PROGRAMS)
    where = ", ".join(map(str, cores))
    print(f"running {names}, {N_RANKS} ranks each, side by side on cores {where}", flush=True)
    jobs = [start(p, c, n, folder) for p, c, n in zip(PROGRAMS, commands, n_steps, strict=True)]
    codes = wait_all(jobs, limit_s=max(90.0, 3 * seconds))
    failed = 0
    for program, code in zip(PROGRAMS, codes, strict=True):
        profile = folder / f"{program.name}.h5"
        if code != 0 or not profile.exists():
            failed = 1
            what = f"exit code {code}" if code != 0 else "no profile"
            print(f"\n{program.name}: {what}; its output is in {folder / program.name}.log", file=sys.stderr)
            continue
        show(program, profile, summary(profile))
    mpicoloc = os.path.relpath(tool("mpicoloc"))
    print(f"\nmore of a profile: {mpicoloc} show {os.path.relpath(folder / PROGRAMS[0].name)}.h5")
    return failed


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=25.0, help="time of the jobs, about (default 25)")
    parser.add_argument("--dir", type=Path, default=HERE.parent / "build" / "demo",
                        help="where binaries, outputs and profiles go (default build/demo)")  # fmt: skip
    args = parser.parse_args(argv)
    try:
        return demo(args.seconds, args.dir)
    except (DemoError, OSError, subprocess.TimeoutExpired) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
