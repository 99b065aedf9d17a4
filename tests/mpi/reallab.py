"""Runs programs with the installed mpicoloc, as users do: preloaded, or wrapped with a real coordinator."""

import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import once
from shimlab import source_file

from mpicoloc.pmpi import build_shim, paths
from mpicoloc.profile import hdf5

LIMIT_S = 90
N_LAUNCHES = 3
BROKEN_PIPE = (-signal.SIGPIPE, 128 + signal.SIGPIPE)
"""Of a launcher, and of `timeout` around it."""
WAYS = ["preload", "wrap"]
# One name with buffers of several types, and long lines.
_FORTRAN_FLAGS = ("-fallow-argument-mismatch", "-ffree-line-length-none")


@dataclass(frozen=True)
class Mpi:
    """One installed MPI: its commands and the name of its shim."""

    abi: str
    mpicc: str
    mpirun: tuple[str, ...]
    folder: Path
    """For what all tests of a run share."""

    @functools.cached_property
    def version(self):
        """Major and minor number, by its header."""
        header = next(
            path
            for folder in build_shim.include_dirs_of(self.mpicc)
            if (path := Path(folder, "mpi.h")).exists()
        )
        numbers = r"#define (?:OMPI_M\w+OR_VERSION|MPICH_VERSION)\s+(\S+)"
        words = " ".join(re.findall(numbers, header.read_text(errors="replace")))
        return tuple(map(int, re.findall(r"\d+", words)[:2]))

    @functools.cached_property
    def shim(self):
        """The library to preload; None: there is none."""
        return paths.find_shim(paths.abi_of(self.abi, self.abi == "openmpi" and self.version >= (6,)))

    def compile(self, source, *flags):
        """The program, compiled once in a run, or None if this MPI lacks what it uses."""
        stem = Path(source).stem
        out = self.folder / f"{stem}-{_digest(self.mpicc, source, *flags)}" / stem
        return once.value(out.with_suffix(".made"), lambda: self._compile(source, out, flags))

    def _compile(self, source, out, flags):
        compiler = self.mpicc
        if source.endswith(".F90"):
            compiler = self.mpicc.replace("mpicc", "mpif90")
            flags = (*flags, *_FORTRAN_FLAGS, f"-J{out.parent}")
        command = [compiler, "-O1", str(source_file(source)), "-o", str(out), *flags]
        done = subprocess.run(command, capture_output=True, check=False, timeout=LIMIT_S)
        return str(out) if done.returncode == 0 else None


def _digest(*words):
    return hashlib.sha256("\0".join(map(str, words)).encode()).hexdigest()[:16]


def find(name, folder):
    """An MPI of the system (openmpi, mpich) or of this Python's environment (own, abi), or None."""
    if name in ("own", "abi"):
        commands = str(Path(sys.executable).parent)
        mpicc = shutil.which("mpicc_abi" if name == "abi" else "mpicc", path=commands)
        mpirun = shutil.which("mpirun", path=commands)
    else:
        mpicc, mpirun = shutil.which(f"mpicc.{name}"), shutil.which(f"mpirun.{name}")
    if not (mpicc and mpirun):
        return None
    abi = "abi" if name == "abi" else build_shim.family_of(["cc"], build_shim.include_dirs_of(mpicc))
    found = Mpi(abi, mpicc, (mpirun, "--oversubscribe") if abi == "openmpi" else (mpirun,), folder)
    return found if found.shim else None


@dataclass(frozen=True)
class Result:
    """Sorted lines of the ranks, the exit code, and what was said besides."""

    lines: list[str]
    code: int
    stderr: str


def launch(mpi, way, n_ranks, *words, folder, limit_s=LIMIT_S):
    """Run to the end; `way` None: bare, where code 124 means that it hung. The profile is `folder`/out.h5.

    Again where the launcher itself was killed by SIGPIPE: that of MPICH 4.0 is in one of some hundred runs of
    a program that ends at once, without mpicoloc too. And where a bare rank did not wait for PMIx's server,
    which under load takes more than 2 s to note that the rank finalizes.
    """
    env = {
        **os.environ,
        "MPICOLOC_OUT": str(folder / "out.h5"),
        "MPICOLOC_JOB_ID": "job",
        "MPICOLOC_PYTHON": sys.executable,
    }
    prefix = {
        "preload": ["env", f"LD_PRELOAD={mpi.shim}"],
        "wrap": [sys.executable, "-m", "mpicoloc.wrap"],
    }.get(way, [])
    stopped = ["timeout", str(limit_s)] if way is None else []
    for _ in range(N_LAUNCHES):
        done = subprocess.run(
            [*stopped, *mpi.mpirun, "-n", str(n_ranks + (way == "wrap")), *prefix, *map(str, words)],
            capture_output=True,
            text=True,
            env=env,
            cwd=folder,
            timeout=LIMIT_S + 10,
            check=False,
        )
        is_improper = way is None and "exiting improperly" in done.stderr
        if done.returncode not in BROKEN_PIPE and not is_improper:
            break
        for path in folder.glob("*.said.*"):  # what ranks wrote
            path.unlink()
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    return Result(lines, done.returncode, done.stderr)


def bare(mpi, n_ranks, *words, folder, limit_s=LIMIT_S):
    """Result of a program without mpicoloc, run once for all tests that compare with it.

    Only for programs whose arguments name no file in the test's own folder.
    """
    assert not any(str(folder) in str(word) for word in words)
    path = mpi.folder / f"bare-{_digest(*mpi.mpirun, n_ranks, *words)}"
    return once.value(path, lambda: launch(mpi, None, n_ranks, *words, folder=folder, limit_s=limit_s))


def same(mpi, way, n_ranks, *words, folder):
    """Run it with mpicoloc: its lines and exit code are those of a bare run."""
    without = bare(mpi, n_ranks, *words, folder=folder)
    done = launch(mpi, way, n_ranks, *words, folder=folder)
    assert (done.lines, done.code) == (without.lines, without.code), done.stderr
    return done


def calls(found, rank):
    """Number of calls of one rank by name, in a profile."""
    rows = found.tables["call_sites"]
    rows = rows[rows["rank"] == rank]
    numbers = Counter()
    for row in rows:
        numbers[row["call"].decode().removeprefix("MPI_")] += int(row["n"])
    return numbers


def wait_until_empty(folder):
    """Wait for the last process of a job to remove what it shared."""
    deadline_s = time.monotonic() + 20
    while left := sorted(path.name for path in folder.iterdir()):
        assert time.monotonic() < deadline_s, f"left in {folder}: {left}"
        time.sleep(0.05)


def profile(path):
    """A profile as it was written."""
    return hdf5.read(path)
