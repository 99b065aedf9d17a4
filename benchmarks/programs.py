"""Programs that the benchmarks run, sized so that each takes a wanted time alone, and how they start."""

import argparse
import dataclasses
import datetime
import functools
import itertools
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import inputs

import mpicoloc
from mpicoloc.job import init_barrier

CALLS = Path(__file__).resolve().parent / "calls"
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
N_RANKS = 2
MARK = "BENCHMARK_JOB"
"""Stands in the environment of every process of a job, with a value of the job's own."""
LEFT_LIMIT_S = 60.0
_NUMBERS = itertools.count()
ROOT_ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def with_niceness(niceness):
    """Prefix that gives the session of a command another weight in the scheduler."""
    return ("sh", "-c", f'echo {niceness} >/proc/self/autogroup; exec nice -n {niceness} "$@"', "sh")


FIRST = with_niceness(-20)
"""Puts a job's session before all others of the machine."""


@dataclass(frozen=True)
class Program:
    """A prepared program: its arguments, and the files that must lie in its working directory.

    `timing` matches the seconds that the program gives for its main part, in the file `timing_file`;
    `size` is what `prepare` takes to make the same program again.
    """

    name: str
    argv: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()
    timing: str = r"(?:Loop time of|loop_s) ([\d.]+)"
    timing_file: str = "output.txt"
    size: int = 0

    def loop_s(self, folder):
        """Seconds that the program gives in its working directory (the last one), or None."""
        path = folder / self.timing_file
        found = re.findall(self.timing, path.read_text(errors="replace")) if path.is_file() else []
        return float(found[-1]) if found else None


@dataclass(frozen=True)
class Launcher:
    """Settings to start jobs with: the mpirun in use, its processors, a command prefix, ranks per job."""

    mpirun: str
    cores: tuple[int, ...]
    before: tuple[str, ...] = ()
    n_ranks: int = N_RANKS
    is_unbound: bool = False
    """Ranks stay unbound on `cores`: Open MPI would bind those of each job to the machine's first cores."""

    @classmethod
    def find(cls, mpirun, cores, first=False, n_ranks=N_RANKS):
        """From the names on the command line; all these processors must be there for this process."""
        path = shutil.which(mpirun)
        if path is None:
            raise SystemExit(f"{mpirun} is not installed (Debian: openmpi-bin); another with --mpirun")
        wanted = {int(core) for core in cores.split(",")} if isinstance(cores, str) else set(cores)
        if missing := wanted - os.sched_getaffinity(0):
            raise SystemExit(f"this process may not use processor {', '.join(map(str, sorted(missing)))}")
        return cls(path, tuple(sorted(wanted)), FIRST if first else (), n_ranks)

    @property
    def before_rank(self):
        """Likewise before each rank: Hydra gives its ranks a session of their own."""
        return () if self.is_openmpi else self.before

    @functools.cached_property
    def is_openmpi(self):
        command = [self.mpirun, "--version"]
        text = subprocess.run(command, capture_output=True, text=True, env=environment()).stdout
        return "Open MPI" in text or "OpenRTE" in text

    def compile(self, source, binary, *flags):
        """Compile a C program for this MPI, with the compiler that stands beside the launcher.

        On a machine without compiler, a binary that was put there serves.
        """
        name = Path(self.mpirun).name.replace("mpirun", "mpicc").replace("mpiexec", "mpicc")
        compiler = Path(self.mpirun).parent / name
        if binary.exists() and not compiler.exists():
            return str(binary)
        binary.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(compiler), "-O2", *flags, "-o", str(binary), str(source), "-lm"], check=True)
        return str(binary)

    def command(self, program):
        """Arguments that start `program`."""
        return [self.mpirun, *self.flags(self.n_ranks), "-n", str(self.n_ranks), *program.argv]

    def flags(self, n_ranks):
        """Nothing where the launcher's own placement will do, which `mpicoloc run` keeps.

        With more ranks than processors, Open MPI would refuse or leave ranks unbound: the application's ranks
        get the processors that they have without the coordinator. It also binds ranks to processors that are
        not its own.
        """
        has_threads = n_ranks < len(self.cores)
        if self.is_openmpi and (self.is_unbound or len(self.cores) == 1 or has_threads):
            return ["--bind-to", "none"]
        if n_ranks <= len(self.cores) or not self.is_openmpi:
            return []
        return ["--map-by", "core:OVERSUBSCRIBE", "--bind-to", "core:overload-allowed"]


def processors(n):
    """So many of the processors that this process may use, of different cores as far as there are."""
    seen, ranked = {}, []
    for cpu in sorted(os.sched_getaffinity(0)):
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        core = path.read_text() if path.exists() else cpu
        seen[core] = seen.get(core, 0) + 1
        ranked.append((seen[core], cpu))
    if len(ranked) < n:
        raise SystemExit(f"needs {n} processors, this process may use {len(ranked)}")
    return tuple(cpu for _, cpu in sorted(ranked)[:n])


def progress(text):
    print(f"  {datetime.datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def setup():
    """Machine, date and version, as result files have them."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text() if cpuinfo.exists() else "")
    machine = f"{platform.node()}, {os.cpu_count()} x {model[1] if model else platform.machine()}"
    return {"machine": machine, "date": datetime.date.today().isoformat(), "mpicoloc": mpicoloc.__version__}


def parser(description):
    """A parser whose help has the lines of a module's docstring."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def environment(extra=None):
    return {**os.environ, **ROOT_ENV, **(extra or {})}


def mpicoloc_said(*words, timeout_s=600):
    """Run mpicoloc; returns its output."""
    command = [sys.executable, "-m", "mpicoloc", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[1:])}: {done.stderr.strip()}")
    return done.stdout


def preload(binary, profile=None):
    """Environment of a job that runs with the shim preloaded, as a user sets it."""
    command = [sys.executable, "-m", "mpicoloc", "preload", binary]
    library = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    env = {"LD_PRELOAD": library, "MPICOLOC_PYTHON": sys.executable}
    return env if profile is None else {**env, "MPICOLOC_OUT": str(profile)}


def way_command(way, launcher, argv, profile):
    """Command and environment of a job that is bare, or measured by preload, wrap or run."""
    python, n_ranks, prefix = sys.executable, launcher.n_ranks, ()
    env = {} if way == "bare" else {"MPICOLOC_OUT": str(profile)}
    if way == "run":
        words = ("run", "-n", str(n_ranks), "--mpirun", launcher.mpirun, "--", *launcher.before_rank)
        return [python, "-m", "mpicoloc", *words, *argv], env
    if way == "wrap":
        n_ranks, prefix = n_ranks + 1, (python, "-m", "mpicoloc.wrap")
    elif way == "preload":
        prefix = ("env", *(f"{name}={value}" for name, value in preload(argv[0], profile).items()))
    words = (*launcher.before_rank, *prefix, *argv)
    return [launcher.mpirun, *launcher.flags(n_ranks), "-n", str(n_ranks), *words], env


def start(command, cwd, cores, env=None, out=None):
    """Start a job on `cores`, its output in a file, or `out`; `stop` reaches its process group."""
    cwd.mkdir(parents=True, exist_ok=True)
    mark = f"{os.getpid()}.{next(_NUMBERS)}"
    with open(cwd / "output.txt", "w") as log:
        job = subprocess.Popen(command, cwd=cwd, env={**environment(env), MARK: mark},
                               stdout=log if out is None else out, stderr=subprocess.STDOUT,
                               start_new_session=True,
                               preexec_fn=lambda: os.sched_setaffinity(0, cores))  # fmt: skip
    job.mark = mark
    return job


def stop(job):
    """End a job that this process started, kindly first: the launcher then takes its ranks along.

    Returns when its keeper and the writer of its profile have ended too: they must not run beside what is
    timed next.
    """
    if job.poll() is None:
        job.terminate()
    try:
        job.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait(10)
    end_s = time.monotonic() + LEFT_LIMIT_S
    while left := processes_of(job):
        if time.monotonic() > end_s:
            raise RuntimeError(f"processes of an ended job still run after {LEFT_LIMIT_S} s: {left}")
        time.sleep(0.05)


def processes_of(job):
    """Process ids of what was started by a job and still runs, wherever in the tree it is by now."""
    entry = f"{MARK}={job.mark}".encode()
    return [pid for pid in filter(str.isdigit, os.listdir("/proc"))
            if entry in init_barrier.entries(pid, "environ")]  # fmt: skip


def run(launcher, program, folder):
    """Run a job to its end without mpicoloc; returns its wall time in seconds, launcher included."""
    return run_command(launcher.command(program), launcher, program, folder)


def run_command(command, launcher, program, folder, env=None):
    """Likewise with a command and environment of the caller's."""
    place(program, folder)
    begin = time.monotonic()
    job = start([*launcher.before, *command], folder, launcher.cores, env)
    try:
        code = job.wait(900)
        wall_s = time.monotonic() - begin
    finally:
        stop(job)
    if code != 0:
        raise RuntimeError(f"{program.name} ended with exit code {code}: see {folder / 'output.txt'}")
    return wall_s


def place(program, folder):
    """Put a program's input files into its working directory."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in program.files:
        (folder / name).write_text(text)


def prepare(name, launcher, folder, seconds, size=None):
    """A program of that size, or one sized so that it takes about `seconds` alone on this machine.

    Raises
    ------
    LookupError
        If the program is not installed, or unknown.
    """
    if name not in PREPARE:
        raise LookupError(f"no program {name!r}; there are {', '.join(PREPARE)}")
    make, trial = PREPARE[name](launcher, folder / f"prepare-{name}")
    size = trial(make, launcher, folder / f"prepare-{name}", seconds) if size is None else size
    return dataclasses.replace(make(size), size=size)


def need(binary, package):
    """Path of an installed program."""
    path = shutil.which(binary)
    if path is None:
        raise LookupError(f"{binary} is not installed (Debian: apt-get install {package})")
    return path


def pseudopotential():
    """File of silicon's."""
    found = sorted(Path("/usr/share/espresso/pseudo").glob("Si*.UPF"))
    if not found:
        raise LookupError("no pseudopotential of silicon (Debian: quantum-espresso-data)")
    return found[0]


def _by_steps(n_trial_steps):
    """Step count by a trial run that the program times itself."""

    def trial(make, launcher, folder, seconds):
        run(launcher, make(n_trial_steps), folder)
        loop_s = make(n_trial_steps).loop_s(folder)
        if loop_s is None:
            raise RuntimeError(f"no loop time in {folder / 'output.txt'}")
        return max(1, round(seconds * n_trial_steps / loop_s))

    return trial


def _by_power(n_trial, exponent):
    """Size by the time of a trial run, which grows with that power of it."""

    def trial(make, launcher, folder, seconds):
        trial_s = run(launcher, make(n_trial), folder)
        return max(1, round(n_trial * (seconds / trial_s) ** (1 / exponent)))

    return trial


def _installed(name, binary, package, argv, file, text, trial, *timing):
    """A program of Debian with one input file: `text(n, n_ranks)`."""

    def prepare_installed(launcher, folder):
        words = (need(binary, package), *argv)
        return lambda n: Program(name, words, ((file, text(n, launcher.n_ranks)),), *timing), trial

    return prepare_installed


def _lammps_metal(n, n_ranks):
    """Copper by the embedded atom method, in a box that fits into a cache."""
    potential = Path("/usr/share/lammps/potentials/Cu_u3.eam")
    if not potential.exists():
        raise LookupError("no potential of copper (Debian: lammps-data)")
    return inputs.LAMMPS_METAL_INPUT.format(box=8, n_steps=n, potential=potential)


def _waters(n, n_ranks):
    waters = "".join(inputs.NWCHEM_WATER.format(z=2.9 * i) for i in range(n))
    return inputs.NWCHEM.format(memory="", waters=waters, basis="cc-pvtz") + inputs.NWCHEM_TASK


def _own(source, name, n_trial_steps, *size, called=None):
    """A C program of this repository; its last argument is the number of steps."""

    def prepare_own(launcher, folder):
        binary = launcher.compile(source / f"{name}.c", folder / name)
        arguments = (binary, *map(str, size))
        return lambda n: Program(called or name, (*arguments, str(n))), _by_steps(n_trial_steps)

    return prepare_own


PREPARE = {
    "lmp": _installed("lmp", "lmp", "lammps", ("-in", "in.lj", "-log", "none"), "in.lj",
                      lambda n, n_ranks: inputs.lammps(20, n), _by_steps(100)),
    "lmp_eam": _installed("lmp_eam", "lmp", "lammps", ("-in", "in.eam", "-log", "none"), "in.eam",
                          _lammps_metal, _by_steps(100)),
    # Between N^2 and N^3: some of HPCC's tests use N^2 memory, HPL and DGEMM do N^3 work.
    "hpcc": _installed("hpcc", "hpcc", "hpcc", (), "hpccinf.txt", inputs.hpcc, _by_power(2000, 2.6),
                       r"MPIRandomAccess_time=([\d.]+)", "hpccoutf.txt"),
    "nwchem": _installed("nwchem", "nwchem.openmpi", "nwchem-openmpi", ("in.nw",), "in.nw", _waters,
                         _by_power(2, 2.5), r"Total times.*wall:\s+([\d.]+)s"),
    "pw": _installed("pw", "pw.x", "quantum-espresso", ("-in", "si.in"), "si.in",
                     lambda n, n_ranks: inputs.still_silicon(pseudopotential(), n), _by_steps(10),
                     r"PWSCF .* CPU +([\d.]+)s WALL"),
    "ranks": _own(CALLS, "ranks", 300),
    "updates": _own(CALLS, "updates", 2000000),
    "heat2d": _own(EXAMPLES, "heat2d", 150, 1400),
    "heat2d_small": _own(EXAMPLES, "heat2d", 10000, 150, called="heat2d_small"),
    "nbody": _own(EXAMPLES, "nbody", 300, 800),
}  # fmt: skip
"""By name: what gives a program of a size, and what finds the size for a time."""
