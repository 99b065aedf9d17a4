"""Programs that the benchmarks run, sized so that each takes a wanted time alone, and how they start."""

import argparse
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

CALLS = Path(__file__).resolve().parent / "calls"
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


NWCHEM_WATER = "O 0 0 {z:.2f}\nH 0.757 0.586 {z:.2f}\nH -0.757 0.586 {z:.2f}\n"
NWCHEM_INPUT = """\
start water
geometry units angstrom noautosym
{waters}end
basis
* library cc-pvtz
end
dft
xc b3lyp
vectors input atomic
end
task dft energy
"""

PW_INPUT = """\
&control
  calculation = 'scf'
  pseudo_dir = '{pseudo_dir}'
  outdir = '.'
  disk_io = 'none'
/
&system
  ibrav = 2, celldm(1) = 10.2, nat = 2, ntyp = 1, ecutwfc = 40, nbnd = 20, nosym = .true., noinv = .true.
/
&electrons
  conv_thr = 1e-60, electron_maxstep = {n_steps}, scf_must_converge = .false.
  diago_thr_init = 1e-4
/
ATOMIC_SPECIES
Si 28.086 {pseudo}
ATOMIC_POSITIONS alat
Si 0.00 0.00 0.00
Si 0.25 0.25 0.25
K_POINTS automatic
3 3 3 0 0 0
"""
"""Silicon, so many steps to self-consistency."""


FIRST = ("sh", "-c", 'echo -20 >/proc/self/autogroup; exec nice -n -20 "$@"', "sh")
"""Puts a job's session before all others of the machine."""


@dataclass(frozen=True)
class Program:
    """A prepared program: its arguments, and the files that must lie in its working directory.

    `timing` matches the seconds that the program gives for its main part, in the file `timing_file`.
    """

    name: str
    argv: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()
    timing: str = r"(?:Loop time of|loop_s) ([\d.]+)"
    timing_file: str = "output.txt"

    def loop_s(self, folder):
        """Seconds that the program gives in its working directory (the last one), or None."""
        path = folder / self.timing_file
        found = re.findall(self.timing, path.read_text(errors="replace")) if path.is_file() else []
        return float(found[-1]) if found else None


@dataclass(frozen=True)
class Launcher:
    """How jobs are started: the mpirun in use, its processors, what stands before it, the ranks of a job."""

    mpirun: str
    cores: tuple[int, ...]
    before: tuple[str, ...] = ()
    n_ranks: int = N_RANKS

    @classmethod
    def find(cls, mpirun, cores, first=False, n_ranks=N_RANKS):
        """From the names on the command line; keeps to the processors that this process may use."""
        path = shutil.which(mpirun)
        if path is None:
            raise SystemExit(f"{mpirun} is not installed (Debian: openmpi-bin); another with --mpirun")
        wanted = {int(core) for core in cores.split(",")} & os.sched_getaffinity(0)
        cores = tuple(sorted(wanted or os.sched_getaffinity(0)))
        return cls(path, cores, FIRST if first else (), n_ranks)

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
        """Compile a C program for this MPI, with the compiler that stands beside the launcher."""
        binary.parent.mkdir(parents=True, exist_ok=True)
        name = Path(self.mpirun).name.replace("mpirun", "mpicc").replace("mpiexec", "mpicc")
        compiler = Path(self.mpirun).parent / name
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
        if self.is_openmpi and len(self.cores) == 1:
            return ["--bind-to", "none"]
        if n_ranks <= len(self.cores) or not self.is_openmpi:
            return []
        return ["--map-by", "core:OVERSUBSCRIBE", "--bind-to", "core:overload-allowed"]


def repeats_parser(description, seconds):
    """Options of a benchmark that runs jobs of its own, several times each."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kind (default 3)")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help=f"time of a job alone (default {seconds:g})"
    )
    parser.add_argument("--mpirun", default="mpirun.openmpi", help="an Open MPI (default mpirun.openmpi)")
    return parser


def environment(extra=None):
    return {**os.environ, **ROOT_ENV, **(extra or {})}


def preload(binary, profile=None):
    """Environment of a job that runs with the shim preloaded, as a user sets it."""
    command = [sys.executable, "-m", "mpicoloc", "preload", binary]
    library = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    env = {"LD_PRELOAD": library, "MPICOLOC_PYTHON": sys.executable}
    return env if profile is None else {**env, "MPICOLOC_OUT": str(profile)}


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
    job = start([*launcher.before, *command], folder, launcher.cores, env)
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
        raise LookupError(
            f"{binary} is not installed (Debian: apt-get install lammps hpcc nwchem-openmpi quantum-espresso)"
        )
    return path


def _scaled(make, launcher, folder, seconds, n_trial_steps):
    """Step count by a trial run that the program times itself."""
    run(launcher, make(n_trial_steps), folder)
    loop_s = make(n_trial_steps).loop_s(folder)
    if loop_s is None:
        raise RuntimeError(f"no loop time in {folder / 'output.txt'}")
    return make(max(1, round(seconds * n_trial_steps / loop_s)))


def _lammps(launcher, folder, seconds):
    lmp = _need("lmp")

    def make(n_steps):
        text = LAMMPS_INPUT.format(box=20, n_steps=n_steps)
        return Program("lmp", (lmp, "-in", "in.lj", "-log", "none"), (("in.lj", text),))

    return _scaled(make, launcher, folder, seconds, 100)


def _hpcc(launcher, folder, seconds):
    hpcc, n_trial = _need("hpcc"), 2000

    def make(n):
        files = (("hpccinf.txt", HPCC_INPUT.format(n=n)),)
        return Program("hpcc", (hpcc,), files, r"MPIRandomAccess_time=([\d.]+)", "hpccoutf.txt")

    trial_s = run(launcher, make(n_trial), folder)
    # Between N^2 and N^3: some of HPCC's tests use N^2 memory, HPL and DGEMM do N^3 work.
    return make(int(n_trial * (seconds / trial_s) ** (1 / 2.6)))


def _nwchem(launcher, folder, seconds):
    nwchem, n_trial = _need("nwchem.openmpi"), 2

    def make(n):
        waters = "".join(NWCHEM_WATER.format(z=2.9 * i) for i in range(n))
        files = (("in.nw", NWCHEM_INPUT.format(waters=waters)),)
        return Program("nwchem", (nwchem, "in.nw"), files, r"Total times.*wall:\s+([\d.]+)s")

    trial_s = run(launcher, make(n_trial), folder)
    return make(max(1, round(n_trial * (seconds / trial_s) ** (1 / 2.5))))


def _pw(launcher, folder, seconds):
    pw, pseudos = _need("pw.x"), sorted(Path("/usr/share/espresso/pseudo").glob("Si*.UPF"))
    if not pseudos:
        raise LookupError("no pseudopotential of silicon (Debian: quantum-espresso-data)")

    def make(n_steps):
        text = PW_INPUT.format(pseudo_dir=pseudos[0].parent, pseudo=pseudos[0].name, n_steps=n_steps)
        return Program("pw", (pw, "-in", "si.in"), (("si.in", text),), r"PWSCF .* CPU +([\d.]+)s WALL")

    return _scaled(make, launcher, folder, seconds, 10)


def _many_calls(name, n_trial_steps):
    def prepare_many_calls(launcher, folder, seconds):
        binary = launcher.compile(CALLS / f"{name}.c", folder / name)
        return _scaled(lambda n: Program(name, (binary, str(n))), launcher, folder, seconds, n_trial_steps)

    return prepare_many_calls


def _example(name, size, n_trial_steps):
    def prepare_example(launcher, folder, seconds):
        binary = launcher.compile(EXAMPLES / f"{name}.c", folder / name)
        return _scaled(lambda n: Program(name, (binary, str(size), str(n))), launcher, folder, seconds,
                       n_trial_steps)  # fmt: skip

    return prepare_example


PREPARE = {
    "lmp": _lammps,
    "hpcc": _hpcc,
    "nwchem": _nwchem,
    "pw": _pw,
    "ranks": _many_calls("ranks", 300),
    "updates": _many_calls("updates", 2000000),
    "heat2d": _example("heat2d", 1400, 150),
    "nbody": _example("nbody", 800, 300),
}
