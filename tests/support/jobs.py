"""Starts real MPI jobs with mpicoloc, looks into their shared memory, and ends them for sure."""

import atexit
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import processes
import pytest

from mpicoloc.errors import DataError
from mpicoloc.job import coordinator
from mpicoloc.pmpi import build_shim, contract, elf, paths
from mpicoloc.profile import hdf5

PROGRAMS = Path(__file__).resolve().parents[1] / "e2e" / "programs"
LIMIT_S = 60
FAMILIES = {"openmpi": ["--oversubscribe"], "mpich": []}
"""Flags of mpirun by MPI family."""


@dataclass
class Mpi:
    """One installed MPI and the test program built with it."""

    name: str
    mpirun: str
    flags: list[str]
    program: str
    shim: str


def find_mpi(name, folder, source="life.c"):
    """The MPI family with a test program compiled, or None if it is not installed here."""
    found = commands(name)
    if found is None or shim(found[0], name) is None:
        return None
    program = str(folder / Path(source).stem)
    shutil.copy(_compiled(found[0], source), program)
    return Mpi(name, found[1], FAMILIES[name], program, shim(found[0], name))


def need_mpi(names, folder, source="life.c"):
    """The first of these families that is here, with a test program; else the test is skipped."""
    found = next(filter(None, (find_mpi(name, folder, source) for name in names.split())), None)
    return found or pytest.skip(f"no {names} here, or no shim for it")


@functools.cache
def _compiled(mpicc, source):
    """A test program, compiled once by each process of the run."""
    folder = tempfile.TemporaryDirectory(prefix="mpicoloc-programs-")
    atexit.register(folder.cleanup)
    program = f"{folder.name}/{Path(source).stem}"
    subprocess.run([mpicc, "-O1", str(PROGRAMS / source), "-o", program, "-lm"], check=True, timeout=LIMIT_S)
    return program


def commands(name):
    """Compiler and launcher of a family: a distribution's, else the unsuffixed ones if they are its."""
    for suffix in (f".{name}", ""):
        mpicc, mpirun = (shutil.which(command + suffix) for command in ("mpicc", "mpirun"))
        if not (mpicc and mpirun):
            continue
        if suffix or build_shim.family_of(["cc"], build_shim.include_dirs_of(mpicc)) == name:
            return mpicc, mpirun
    return None


def need_commands(name):
    """Compiler and launcher of a family; the test is skipped where there are none."""
    return commands(name) or pytest.skip(f"no {name} here")


def library(mpicc):
    """The MPI library that programs of this compiler load."""
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/empty"
        source = "#include <mpi.h>\nint main(void) { return MPI_Initialized(&(int){0}); }"
        subprocess.run(
            [mpicc, "-x", "c", "-", "-o", program], input=source, text=True, check=True, timeout=LIMIT_S
        )
        return elf.linked_mpi(program, os.environ.get("LD_LIBRARY_PATH", "")).path


@functools.cache
def shim(mpicc, family):
    """The library to preload into programs of this compiler; None: there is none."""
    has_large_counts = family == "openmpi" and b"MPI_Send_c\0" in elf.names(library(mpicc))
    return paths.find_shim(paths.abi_of(family, has_large_counts))


@dataclass
class Job:
    """A running job; its output goes to files, so that whatever is left of it cannot block the test."""

    process: subprocess.Popen
    out_path: Path
    log_path: Path

    def wait(self):
        """Exit code; the job is killed when it takes too long."""
        try:
            return self.process.wait(LIMIT_S)
        finally:
            self.kill()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def profile(self):
        """Its profile, waited for, because a keeper may write it after the launcher ended."""
        wait_until(self.out_path.exists, f"{self.out_path} to appear; the job said: {self.log}")
        return hdf5.read(self.out_path)


def start(mpi, folder, way, *arguments, n_ranks=2, name="job", out=None, uid=None, before=(), env=None):
    """Start the test program with mpicoloc: `way` is "wrap" or "preload"; as root, also for another user.

    `before` is the begin of the command, which says where it runs.
    """
    command = [*as_user(uid), *before, mpi.mpirun, *mpi.flags, "-n", n_ranks + (way == "wrap")]
    if way == "wrap":
        command += [sys.executable, "-m", "mpicoloc.wrap"]
    else:
        command += ["env", f"LD_PRELOAD={mpi.shim}"]
    return launch([*command, mpi.program, *arguments], folder, name, out, env)


def launch(command, folder, name="job", out=None, env=None):
    """Start a command that is a job, with these options more in the environment."""
    out = out or folder / f"{name}.h5"
    own = {"MPICOLOC_OUT": out, "MPICOLOC_JOB_ID": name, "MPICOLOC_PYTHON": sys.executable, **(env or {})}
    log = folder / f"{name}.log"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            list(map(str, command)),
            env={**os.environ, **{key: str(value) for key, value in own.items()}},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Job(process, Path(out), log)


def as_user(uid):
    """Prefix that runs a command as another user; empty for None."""
    ids = [f"--{kind}={uid}" for kind in ("reuid", "regid")]
    return [] if uid is None else [*reach(), "setpriv", *ids, "--clear-groups", "env", "HOME=/nonexistent"]


_OPENED = """set -e; mount -t tmpfs none /mnt; chmod 755 /mnt; mkdir -p "/mnt/$2"
mount --bind "$1/$2" "/mnt/$2"; mount --rbind /mnt "$1"; shift 2; exec "$@" """


def reach():
    """A view in which all may pass the folder of root's alone in which the interpreter may lie."""
    path = Path(sys.executable).resolve()
    closed = [folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001]
    if not closed:
        return []
    return ["unshare", "-m", "sh", "-c", _OPENED, "sh", str(closed[0]), path.relative_to(closed[0]).parts[0]]


def wait_until(condition, what, limit_s=60.0):
    """Poll until `condition()` gives something true, which is returned."""
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        if result := condition():
            return result
        time.sleep(0.02)
    raise AssertionError(f"waited {limit_s} s in vain for {what}")


def _segments(shm_dir):
    for path in sorted(shm_dir.glob("*.seg")):
        with contextlib.suppress(DataError, OSError, ValueError):  # not complete yet
            yield contract.map_file(path)


def running_ranks(shm_dir, job_id, n_ranks):
    """Segments of a job's ranks once all of them run; else nothing."""
    found = [s for s in _segments(shm_dir) if s["job_id"] == job_id.encode()]
    running = [s for s in found if s["state"] == contract.MC_RANK_RUNNING]
    return running if len(running) == n_ranks else []


def coordinator_of(segment):
    """Process id of the coordinator of a rank's job."""
    key = b"MPICOLOC_KEY=" + segment["key"]
    found = processes.matching(
        lambda one: processes.comm(one) != coordinator.COMMAND_NAME,
        cmdline=[b"mpicoloc.job.coordinator"],
        environ=[key],
    )
    assert found, "the job has no coordinator"
    return found[0]


def assert_nothing_left(shm_dir):
    """Neither files in shared memory nor processes that use them."""
    wait_until(lambda: not list(shm_dir.iterdir()), f"{shm_dir} to be empty: {list(shm_dir.iterdir())}")


def keeper_of(shm_dir):
    """Process id of the keeper, once it is the agent of the one job there."""
    for path in shm_dir.glob("*.node"):
        with contextlib.suppress(DataError, OSError):  # not there or not complete yet
            node = contract.map_file(path)
            if node["keeper_pid"] and node["agent_pid"]:
                return int(node["keeper_pid"])
    return 0


def node_files(shm_dir, n, pattern="*.node"):
    """Wait for the node files of `n` jobs; they are mapped, so they follow changes."""

    def complete():
        with contextlib.suppress(DataError, OSError):  # not there or not complete yet
            found = [contract.map_file(path) for path in shm_dir.glob(pattern)]
            return found if len(found) == n else None

    return wait_until(complete, f"{n} node files")
