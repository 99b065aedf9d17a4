"""Programs whose progress can be seen from outside, for `accuracy.py`: real ones, their inputs, and marks.

A program marks the ends of its steps by lines that it prints, or by MPI calls (`calls/events.c`). `make(n)`
gives the program of n units; a unit is a step, or what has several steps.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import inputs
import programs
import toggled_inputs as texts

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


def need(name, package):
    found = shutil.which(name)
    if found is None:
        raise LookupError(f"{name} is not installed (Debian: apt-get install {package})")
    return found


def run_tool(command, folder, stdin=""):
    """A program that makes input; its output stands in the error."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=folder, input=stdin, text=True, capture_output=True,
                          env=programs.environment({"OMP_NUM_THREADS": "1"}))  # fmt: skip
    if done.returncode != 0:
        raise LookupError(f"{command[0]}: {(done.stdout + done.stderr)[-1500:]}")


def lammps(launcher, folder):
    lmp = need("lmp", "lammps")

    def make(n):
        text = re.sub(r"(?m)^variable every index \d+$", "variable every index 1", inputs.lammps(20, n))
        return programs.Program("lmp", (lmp, "-in", "in.lj", "-log", "none"), (("in.lj", text),))

    return Watched(make, r"^ +\d+ +[-\d.]+ +[-\d.]+ ")


def lammps_metal(launcher, folder):
    lmp, potential = need("lmp", "lammps"), Path("/usr/share/lammps/potentials/Cu_u3.eam")

    def make(n):
        text = inputs.LAMMPS_METAL_INPUT.format(box=8, n_steps=n, potential=potential)
        files = (("in.eam", text.replace("thermo 100", "thermo 5")),)
        return programs.Program("lmp_eam", (lmp, "-in", "in.eam", "-log", "none"), files)

    mark = r"^ +\d+ +[-\d.]+ +[-\d.]+ "
    return Watched(lambda n: make(5 * n), mark)


def pw(launcher, folder):
    binary = need("pw.x", "quantum-espresso")
    pseudo = sorted(Path("/usr/share/espresso/pseudo").glob("Si*.UPF"))
    if not pseudo:
        raise LookupError("no pseudopotential of silicon (Debian: quantum-espresso-data)")

    def make(n):
        text = texts.PW.format(pseudo_dir=pseudo[0].parent, pseudo=pseudo[0].name, n_steps=min(n, 20000))
        return programs.Program("pw", (binary, "-in", "si.in"), (("si.in", text),))

    return Watched(make, r"^ +iteration #")


def nwchem(launcher, folder):
    binary = need("nwchem.openmpi", "nwchem-openmpi")

    def make(n):
        text = texts.NWCHEM + texts.NWCHEM_TASK * min(n, 3000)
        return programs.Program("nwchem", (binary, "in.nw"), (("in.nw", text),))

    return Watched(make, r"^ d= ?\d+,ls")


def cp2k(launcher, folder):
    binary = need("cp2k.psmp", "cp2k")

    def make(n):
        files = (("si.inp", texts.CP2K.format(n_steps=n)),)
        return programs.Program("cp2k", (binary, "-i", "si.inp"), files)

    return Watched(make, r"^ +\d+ (?:OT|P_Mix|DIIS|Broy)")


def gromacs(launcher, folder):
    binary, box = need("gmx_mpi", "gromacs"), folder / "box"
    box.mkdir(parents=True, exist_ok=True)
    (box / "topol.top").write_text(texts.GROMACS_TOPOLOGY)
    (box / "md.mdp").write_text(texts.GROMACS_RUN)
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


def abinit(launcher, folder):
    binary, pseudo = need("abinit", "abinit"), Path("/usr/share/abinit/psp/14si.pspnc")

    def make(n):
        text = texts.ABINIT.format(folder=pseudo.parent, pseudo=pseudo.name, n_steps=min(n, 20000))
        return programs.Program("abinit", (binary, "si.abi"), (("si.abi", text),))

    return Watched(make, r"^ ETOT +\d+")


def meep(launcher, folder):
    binary = need("meep", "meep-mpi-default")

    def make(n):
        return programs.Program("meep", (binary, "box.ctl"), (("box.ctl", texts.MEEP.format(n_steps=n)),))

    return Watched(make, r"^step")


def liggghts(launcher, folder):
    binary = need("liggghts", "liggghts")

    def make(n):
        files = (("in.grains", texts.LIGGGHTS.format(n_steps=10 * n)),)
        return programs.Program("liggghts", (binary, "-in", "in.grains", "-log", "none"), files)

    return Watched(make, r"^ +\d+ +\d+ +[-\d.e+]+")


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
    script = texts.HPCC_BUILD.format(main=programs.CALLS / "hpcc_parts.c")
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


def synthetic(name):
    """A co-runner only: nothing tells its progress."""

    def prepare(launcher, folder):
        binary = launcher.compile(programs.CALLS / "co_runners.c", folder / "co_runners")
        return Watched(lambda n: programs.Program(name, (binary, name)))

    return prepare


PREPARE = {
    "lmp": lammps,
    "lmp_eam": lammps_metal,
    "pw": pw,
    "nwchem": nwchem,
    "cp2k": cp2k,
    "gromacs": gromacs,
    "abinit": abinit,
    "meep": meep,
    "liggghts": liggghts,
    **{f"hpcc_{part}": hpcc(part) for part in HPCC_SIZES},
    "heat2d": own("heat2d", "MPI_Waitall", 1400),
    "nbody": own("nbody", "MPI_Allgatherv", 800),
    "hog": synthetic("hog"),
    "spinner": synthetic("spinner"),
}


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
