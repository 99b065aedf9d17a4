"""Programs whose results `harmless.py` compares: short inputs of real ones, and some of tests/."""

import dataclasses
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import inputs
import programs
import toggled_programs

COUNTED = programs.EXAMPLES.parent / "tests" / "mpi" / "programs" / "counted"
SCRIPTS = Path(__file__).resolve().parent / "scripts"
FORTRAN_FLAGS = ("-fopenmp",)


@dataclass(frozen=True)
class Subject:
    """A program of which no run may differ from bare ones.

    `what`: language, and what it has. `family`: the MPI it needs. `times`: rounded ones in its output.
    `binary_times`: those in its files that are no text.
    """

    program: programs.Program
    what: str
    n_ranks: int = 1
    n_threads: int = 1
    family: str = "openmpi"
    times: str = ""
    binary_times: bytes = b""


HPCC_TIMES = r"^(?:CPU|WALL) .*|(?<=^Tuning:) .*|" + "|".join(
    f"(?<=^{name}:) .*" for name in ("Copy", "Scale", "Add", "Triad")
)
"""PTRANS leaves out the lines whose time it has measured as 0; STREAM rounds its times to few digits."""

CP2K_MEMORY = r"^ +Estimated peak process memory .*|^ MEMORY\| .*"
"""The largest memory of the process: our library and pages of counters are part of it."""


def _toggled(name, n, what, n_ranks=1, n_threads=1, times=""):
    def prepare(launcher, folder):
        program = toggled_programs.PREPARE[name](launcher, folder).make(n)
        return Subject(program, what, n_ranks, n_threads, times=times)

    return prepare


def _hpcc(launcher, folder):
    binary = programs.need("hpcc", "hpcc")
    files = (("hpccinf.txt", inputs.hpcc(400, 1)),)
    return Subject(programs.Program("hpcc", (binary,), files), "C, all eight parts", times=HPCC_TIMES)


GROMACS_TIMES = (
    r"^NOTE: +\d+ % of the run time.*|^ +\d+ % of the run time.*|^ +you might want to increase nstlist.*"
)
"""Advice that it gives where a part of it took long."""


def _gromacs(launcher, folder):
    """Of the benchmark's, without what depends on time; with the final positions."""
    subject = _toggled("gromacs", 150, "C++, SIMD, OpenMP", 1, 2, GROMACS_TIMES)(launcher, folder)
    argv = [word for word in subject.program.argv if word not in ("-v", "-noconfout")]
    if "-stepout" in argv:  # of several ranks it does not say each step
        i = argv.index("-stepout")
        del argv[i : i + 2]
    argv += ["-reprod", "-notunepme", "-dlb", "no", "-ntomp", "2"]
    return dataclasses.replace(subject, program=dataclasses.replace(subject.program, argv=tuple(argv)))


def _cp2k(launcher, folder):
    """Without its table of times, in whose order the routines stand."""
    subject = _toggled("cp2k", 1, "Fortran, OpenMP", 1, 2, CP2K_MEMORY)(launcher, folder)
    (name, text), = subject.program.files  # fmt: skip
    text = text.replace("&END GLOBAL", "  &TIMINGS OFF\n  &END TIMINGS\n&END GLOBAL")
    return dataclasses.replace(subject, program=dataclasses.replace(subject.program, files=((name, text),)))


def _nwchem(launcher, folder):
    """Its run-time database has the time that the task took."""
    subject = _toggled("nwchem", 1, "Fortran, Global Arrays", times=r"^ +Time .*|cpu:.*")(launcher, folder)
    return dataclasses.replace(subject, binary_times=rb"task:(?:walltime|cputime)\0.{8}")


def _script(name, what):
    def prepare(launcher, folder):
        program = programs.Program(name, (sys.executable, str(SCRIPTS / f"{name}.py")))
        return Subject(program, what, family="mpich")

    return prepare


def _small(name, what, *arguments, source="", flags=(), n_threads=1):
    """A program of tests/ that is hard on whoever changes code."""

    def prepare(launcher, folder):
        path = Path(source) if source else next(COUNTED.glob(f"{name}.*"))
        wrapper = {".c": "mpicc", ".cpp": "mpicxx", ".f90": "mpif90"}[path.suffix]
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([f"{wrapper}.openmpi", "-O2", "-fopenmp", *flags, "-o", str(folder / name), str(path),
                        "-ldl", "-lm"], cwd=folder, check=True)  # fmt: skip
        here = tuple(word.format(folder=folder) for word in arguments)
        return Subject(programs.Program(name, (str(folder / name), *here)), what, n_threads=n_threads)

    return prepare


def _unload(launcher, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, salt in (("a", "0x11000000u"), ("b", "0x23000000u")):
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-DSALT={salt}", "-o", str(folder / f"{name}.so"),
                        str(COUNTED / "hot_library.c")], check=True)  # fmt: skip
    make = _small("unload", "C, libraries come and go", "{folder}/a.so", "{folder}/b.so")
    return make(launcher, folder)


def mpirun_of(family):
    """The launcher of that MPI; mpi4py's is the one that is installed beside it."""
    if family == "openmpi":
        return programs.need("mpirun.openmpi", "openmpi-bin")
    own = Path(sysconfig.get_path("scripts")) / "mpiexec"
    return str(own) if own.exists() else shutil.which("mpirun.mpich")


LOOPS = COUNTED.parents[2] / "e2e" / "programs" / "loops.c"
SUBJECTS = {
    "lmp": _toggled("lmp", 60, "C++"),
    "lmp_eam": _toggled("lmp_eam", 30, "C++", 2),
    "hpcc": _hpcc,
    "pw": _toggled("pw", 2, "Fortran", times=r" +[\d.]+s CPU +[\d.]+s WALL"),
    "nwchem": _nwchem,
    "cp2k": _cp2k,
    "gromacs": _gromacs,
    "abinit": _toggled("abinit", 2, "Fortran"),
    "meep": _toggled("meep", 60, "C++, Guile"),
    "liggghts": _toggled("liggghts", 20, "C++"),
    "heat2d": _toggled("heat2d", 60, "C", 2),
    "nbody": _toggled("nbody", 200, "C", 2),
    "arrays": _script("arrays", "Python: NumPy, SciPy, OpenBLAS"),
    "objects": _script("objects", "Python's own interpreter"),
    "loops": _small("loops", "C, threads, SIGALRM, fork", source=str(LOOPS), n_threads=2),
    "exceptions": _small("exceptions", "C++, exceptions in two threads", n_threads=2),
    "timers": _small("timers", "C, SIGALRM, SIGPROF, own stack", n_threads=2),
    "children": _small("children", "C, fork, vfork, posix_spawn", n_threads=2),
    "unload": _unload,
    "leaps": _small("leaps", "C, longjmp, SIGSEGV, cancelled threads"),
    "teams": _small("teams", "C, OpenMP, more threads than processors", n_threads=3),
    "fields": _small("fields", "Fortran, OpenMP", n_threads=2),
}  # fmt: skip


def environment(subject):
    """Without options of ours, and with its threads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MPICOLOC_")}
    threads = str(subject.n_threads)
    return {**kept, **programs.ROOT_ENV, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads,
            "OMP_WAIT_POLICY": "passive", "GMX_NO_QUOTES": "1"}  # fmt: skip


def command(subject):
    """Arguments that start it; two such jobs share two processors."""
    flags = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    flags = flags if subject.family == "openmpi" else []
    return [mpirun_of(subject.family), *flags, "-n", str(subject.n_ranks), *subject.program.argv]
