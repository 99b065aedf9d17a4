"""Programs that the benchmarks run, sized so that each takes a wanted time alone, and how they start."""

import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
N_RANKS = 2
ROOT_ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

LAMMPS_INPUT = """\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {box} 0 {box} 0 {box}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
thermo 100
run {n_steps}
"""

HPCC_INPUT = """\
HPLinpack benchmark input file
mpicoloc benchmark
HPL.out
8 device out
1 # of N
{n} Ns
1 # of NBs
80 NBs
0 PMAP
1 # of grids
1 Ps
2 Qs
16.0 threshold
1 # of panel fact
2 PFACTs
1 # of stopping
4 NBMINs
1 # of panels
2 NDIVs
1 # of recursive
1 RFACTs
1 # of broadcast
1 BCASTs
1 # of lookahead
1 DEPTHs
2 SWAP
64 threshold
0 L1
0 U
1 Equilibration
8 alignment
#####
0 # of PTRANS N
1200
0 # of PTRANS NB
40
"""
"""``hpccinf.txt`` for a matrix of n rows on a 1 x 2 grid of ranks; the first word of most lines counts."""


@dataclass(frozen=True)
class Program:
    """A prepared program: its arguments, and the files that must lie in its working directory."""

    name: str
    argv: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Launcher:
    """How jobs are started: the mpirun in use, and the processors that all of them share."""

    mpirun: str
    cores: tuple[int, ...]

    @classmethod
    def find(cls, mpirun, cores):
        """From the names on the command line; keeps to the processors that this process may use."""
        path = shutil.which(mpirun)
        if path is None:
            raise SystemExit(f"{mpirun} is not installed (Debian: openmpi-bin); another with --mpirun")
        wanted = {int(core) for core in cores.split(",")} & os.sched_getaffinity(0)
        return cls(path, tuple(sorted(wanted or os.sched_getaffinity(0))))

    def command(self, program, mpicoloc=()):
        """Arguments that start `program`; `mpicoloc` is what stands before the application, if anything."""
        if mpicoloc:
            return [*mpicoloc, "--", *program.argv]
        return [self.mpirun, *self.flags(N_RANKS), "-n", str(N_RANKS), *program.argv]

    def flags(self, n_ranks):
        """Nothing where the launcher's own placement will do, which `mpicoloc run` keeps.

        With more ranks than processors, Open MPI would refuse or leave ranks unbound: the application's ranks
        get the processors that they have without the coordinator.
        """
        command = [self.mpirun, "--version"]
        text = subprocess.run(command, capture_output=True, text=True, env=environment()).stdout
        if n_ranks <= len(self.cores) or ("Open MPI" not in text and "OpenRTE" not in text):
            return []
        return ["--map-by", "core:OVERSUBSCRIBE", "--bind-to", "core:overload-allowed"]


def environment(extra=None):
    return {**os.environ, **ROOT_ENV, **(extra or {})}


def start(command, cwd, cores, env=None):
    """Start a job on `cores`, its output in a file; in a process group of its own, which `stop` can reach."""
    cwd.mkdir(parents=True, exist_ok=True)
    with open(cwd / "output.txt", "w") as log:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=environment(env),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )


def stop(job):
    """End a job that this process started, kindly first: the launcher then takes its ranks along."""
    if job.poll() is None:
        job.terminate()
    try:
        job.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait(10)


def run(launcher, program, folder):
    """Run a job to its end without mpicoloc; returns its wall time in seconds, launcher included."""
    return run_command(launcher.command(program), launcher, program, folder)


def run_command(command, launcher, program, folder, env=None):
    """Likewise with a command and environment of the caller's."""
    place(program, folder)
    begin = time.monotonic()
    job = start(command, folder, launcher.cores, env)
    try:
        code = job.wait(900)
    finally:
        stop(job)
    if code != 0:
        raise RuntimeError(f"{program.name} ended with exit code {code}: see {folder / 'output.txt'}")
    return time.monotonic() - begin


def place(program, folder):
    """Put a program's input files into its working directory."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in program.files:
        (folder / name).write_text(text)


def prepare(name, launcher, folder, seconds):
    """A program sized so that it takes about `seconds` alone on this machine.

    Raises
    ------
    LookupError
        If the program is not installed, or unknown.
    """
    if name not in PREPARE:
        raise LookupError(f"no program {name!r}; there are {', '.join(PREPARE)}")
    return PREPARE[name](launcher, folder / f"prepare-{name}", seconds)


def _need(binary):
    path = shutil.which(binary)
    if path is None:
        raise LookupError(f"{binary} is not installed (Debian: apt-get install lammps hpcc)")
    return path


def _scaled(make, launcher, folder, seconds, n_trial_steps):
    """Step count by a trial run that the program times itself."""
    run(launcher, make(n_trial_steps), folder)
    found = re.search(r"Loop time of ([\d.]+)|loop_s ([\d.]+)", (folder / "output.txt").read_text())
    if found is None:
        raise RuntimeError(f"no loop time in {folder / 'output.txt'}")
    return make(max(1, round(seconds * n_trial_steps / float(found[1] or found[2]))))


def _lammps(launcher, folder, seconds):
    lmp = _need("lmp")

    def make(n_steps):
        text = LAMMPS_INPUT.format(box=20, n_steps=n_steps)
        return Program("lmp", (lmp, "-in", "in.lj", "-log", "none"), (("in.lj", text),))

    return _scaled(make, launcher, folder, seconds, 100)


def _hpcc(launcher, folder, seconds):
    hpcc, n_trial = _need("hpcc"), 2000

    def make(n):
        return Program("hpcc", (hpcc,), (("hpccinf.txt", HPCC_INPUT.format(n=n)),))

    trial_s = run(launcher, make(n_trial), folder)
    # Between N^2 and N^3: some of HPCC's tests use N^2 memory, HPL and DGEMM do N^3 work.
    return make(int(n_trial * (seconds / trial_s) ** (1 / 2.6)))


def _example(name, size, n_trial_steps):
    def prepare_example(launcher, folder, seconds):
        folder.mkdir(parents=True, exist_ok=True)
        binary = folder / name
        compiler = Path(launcher.mpirun).name.replace("mpirun", "mpicc").replace("mpiexec", "mpicc")
        beside = Path(launcher.mpirun).parent / compiler
        source = EXAMPLES / f"{name}.c"
        subprocess.run([str(beside), "-O2", "-o", str(binary), str(source), "-lm"], check=True)
        return _scaled(lambda n: Program(name, (str(binary), str(size), str(n))), launcher, folder, seconds,
                       n_trial_steps)  # fmt: skip

    return prepare_example


PREPARE = {
    "lmp": _lammps,
    "hpcc": _hpcc,
    "heat2d": _example("heat2d", 1400, 150),
    "nbody": _example("nbody", 800, 300),
}
