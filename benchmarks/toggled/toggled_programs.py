"""Programs whose progress can be seen from outside, for `accuracy.py`: real ones, their inputs, and marks.

A program marks the ends of its steps by lines that it prints, or by MPI calls (`calls/events.c`). `make(n)`
gives the program of n units; a unit is a step, or what has several steps.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass, replace

import inputs
import programs

ENDLESS = 10**6
PACKAGES = """lammps lammps-data quantum-espresso quantum-espresso-data nwchem-openmpi nwchem-data cp2k
cp2k-data gromacs gromacs-data abinit abinit-data meep-mpi-default liggghts libopenmpi-dev
dpkg-dev"""
HPCC_PARTS = ("HPL", "DGEMM", "STREAM", "PTRANS", "RandomAccess", "MPIRandomAccess", "FFT", "MPIFFT")
HPCC_SIZES = {"HPL": 1000, "DGEMM": 1200, "STREAM": 3000, "PTRANS": 1500, "RandomAccess": 1000, "FFT": 2000,
              "MPIFFT": 2000, "MPIRandomAccess": 800, "all": 1000}  # fmt: skip
"""Rows of HPL's matrix, of which each part takes its size: repetitions of some tenths of a second."""


@dataclass(frozen=True)
class Watched:
    """A program and its marks: lines that match `marks` (its group, if any, is the kind of the step)."""

    make: object
    marks: str = ""
    calls: str = ""
    toggle_s: float = 1.0

    @property
    def endless(self):
        return self.make(ENDLESS)


def run_tool(command, folder):
    """A program that makes input; its output stands in the error."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True,
                          env=programs.environment({"OMP_NUM_THREADS": "1"}))  # fmt: skip
    if done.returncode != 0:
        raise LookupError(f"{command[0]}: {(done.stdout + done.stderr)[-1500:]}")


def with_input(name, binary, package, argv, text, marks):
    """A program whose one input file is named in its arguments; `text(n)` is that of n units."""

    def prepare(launcher, folder):
        path = programs.need(binary, package)
        file = next(word for word in argv if "." in word)
        return Watched(lambda n: programs.Program(name, (path, *argv), ((file, text(n)),)), marks)

    return prepare


def lammps_text(n):
    return re.sub(r"(?m)^variable every index \d+$", "variable every index 1", inputs.lammps(20, n))


def lammps_metal_text(n):
    potential = "/usr/share/lammps/potentials/Cu_u3.eam"
    text = inputs.LAMMPS_METAL_INPUT.format(box=8, n_steps=5 * n, potential=potential)
    return text.replace("thermo 100", "thermo 5")


def pw_text(n):
    return inputs.moving_silicon(programs.pseudopotential(), min(n, 20000))


def nwchem_text(n):
    water = inputs.NWCHEM_WATER.format(z=0)
    start = inputs.NWCHEM.format(memory="memory 400 mb\n", waters=water, basis="6-31g*")
    return start + inputs.NWCHEM_TASK * min(n, 3000)


def abinit_text(n):
    return inputs.ABINIT.format(folder="/usr/share/abinit/psp", pseudo="14si.pspnc", n_steps=min(n, 20000))


def gromacs(launcher, folder):
    binary, box = programs.need("gmx_mpi", "gromacs"), folder / "box"
    box.mkdir(parents=True, exist_ok=True)
    (box / "topol.top").write_text(inputs.GROMACS_TOPOLOGY)
    (box / "md.mdp").write_text(inputs.GROMACS_RUN)
    run_tool([binary, "solvate", "-cs", "spc216", "-box", "4", "4", "4", "-o", "conf.gro",
              "-p", "topol.top"], box)  # fmt: skip
    run_tool([binary, "grompp", "-f", "md.mdp", "-c", "conf.gro", "-p", "topol.top", "-o", "water.tpr",
              "-maxwarn", "5"], box)  # fmt: skip
    argv = (binary, "mdrun", "-s", str(box / "water.tpr"), "-nb", "cpu", "-cpt", "-1",
            "-pin", "off", "-noconfout")  # fmt: skip

    def make(n):
        return programs.Program("gromacs", (*argv, "-nsteps", str(n)))

    if launcher.n_ranks > 1:  # mpirun passes 300 lines a second on late where it waits for a processor
        return Watched(make, calls="MPI_Sendrecv")
    return Watched(lambda n: replace(make(n), argv=(*make(n).argv, "-v", "-stepout", "1")), r"^step \d+")


def hpcc_parts(launcher, folder):
    """The program that repeats HPCC's parts, of Debian's source package."""
    binary, folder = folder.parent / "hpcc_parts", folder.parent / "prepare-hpcc"
    if binary.exists():
        return binary
    sources, state = folder / "source", folder / "lists"
    (state / "partial").mkdir(parents=True, exist_ok=True)
    sources.mkdir(parents=True, exist_ok=True)
    (folder / "src.list").write_text("deb-src http://deb.debian.org/debian bookworm main\n")
    apt = ["apt-get", "-o", f"Dir::Etc::sourcelist={folder}/src.list", "-o", "Dir::Etc::sourceparts=-",
           "-o", f"Dir::State::lists={state}"]  # fmt: skip
    subprocess.run([*apt, "update"], cwd=sources, capture_output=True)  # the mirror lacks translations
    run_tool([*apt, "source", "--download-only", "--tar-only", "hpcc"], sources)
    script = inputs.HPCC_BUILD.format(main=programs.CALLS / "hpcc_parts.c")
    run_tool(["sh", "-e", "-c", script], sources)
    shutil.copy(next(sources.glob("hpcc-*/hpcc")), binary)
    return binary


def hpcc(part):
    """One part of HPCC again and again, or all in turn."""

    def prepare(launcher, folder):
        binary = hpcc_parts(launcher, folder)
        text = inputs.hpcc(HPCC_SIZES[part], launcher.n_ranks)
        names = HPCC_PARTS if part == "all" else (part,)
        name = f"hpcc_{part}"
        return Watched(lambda n: programs.Program(name, (str(binary), str(n), *names),
                                                  (("hpccinf.txt", text),)),
                       r"^part (\w+)")  # fmt: skip

    return prepare


def own(name, call, *size):
    """An example of this repository, seen by an MPI call that it makes once a step."""

    def prepare(launcher, folder):
        binary = launcher.compile(programs.EXAMPLES / f"{name}.c", folder / name)
        arguments = (binary, *map(str, size))
        return Watched(lambda n: programs.Program(name, (*arguments, str(n))), calls=call)

    return prepare


def working_set(kind, megabytes):
    """A rank that reads, writes or updates so many megabytes again and again."""

    def prepare(launcher, folder):
        binary = launcher.compile(programs.CALLS / "sets.c", folder / "sets")
        words = (binary, kind, str(megabytes))
        return Watched(
            lambda n: programs.Program(f"{kind}{megabytes}", (*words, str(n))), calls="MPI_Allreduce"
        )

    return prepare


def synthetic(name):
    """A co-runner only: nothing tells its progress."""

    def prepare(launcher, folder):
        binary = launcher.compile(programs.CALLS / "co_runners.c", folder / "co_runners")
        return Watched(lambda n: programs.Program(name, (binary, name)))

    return prepare


LAMMPS_MARKS = r"^ +\d+ +[-\d.]+ +[-\d.]+ "
PREPARE = {
    "lmp": with_input("lmp", "lmp", "lammps", ("-in", "in.lj", "-log", "none"), lammps_text, LAMMPS_MARKS),
    "lmp_eam": with_input("lmp_eam", "lmp", "lammps", ("-in", "in.eam", "-log", "none"), lammps_metal_text,
                          LAMMPS_MARKS),
    "pw": with_input("pw", "pw.x", "quantum-espresso", ("-in", "si.in"), pw_text, r"^ +iteration #"),
    "nwchem": with_input("nwchem", "nwchem.openmpi", "nwchem-openmpi", ("in.nw",), nwchem_text,
                         r"^ d= ?\d+,ls"),
    "cp2k": with_input("cp2k", "cp2k.psmp", "cp2k", ("-i", "si.inp"),
                       lambda n: inputs.CP2K.format(n_steps=n), r"^ +\d+ (?:OT|P_Mix|DIIS|Broy)"),
    "gromacs": gromacs,
    "abinit": with_input("abinit", "abinit", "abinit", ("si.abi",), abinit_text, r"^ ETOT +\d+"),
    "meep": with_input("meep", "meep", "meep-mpi-default", ("box.ctl",),
                       lambda n: inputs.MEEP.format(n_steps=n), r"^step"),
    "liggghts": with_input("liggghts", "liggghts", "liggghts", ("-in", "in.grains", "-log", "none"),
                           lambda n: inputs.LIGGGHTS.format(n_steps=10 * n), r"^ +\d+ +\d+ +[-\d.e+]+"),
    **{f"hpcc_{part}": hpcc(part) for part in HPCC_SIZES},
    "heat2d": own("heat2d", "MPI_Waitall", 1400),
    "nbody": own("nbody", "MPI_Allgatherv", 800),
    **{f"{kind}{size}": working_set(kind, size)
       for kind in ("read", "write", "random", "update") for size in (4, 12, 24, 64)},
    "hog": synthetic("hog"),
    "spinner": synthetic("spinner"),
    "sleeper": synthetic("sleeper"),
}  # fmt: skip


def prepare(name, launcher, work):
    """A program that is ready to run, with its files in a folder below `work`.

    Raises
    ------
    LookupError
        If the program is unknown, or not installed.
    """
    if name not in PREPARE:
        raise LookupError(f"no program {name!r}; there are {', '.join(PREPARE)}")
    return PREPARE[name](launcher, work / f"prepare-{name}")
