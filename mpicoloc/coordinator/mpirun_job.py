"""A job that `mpicoloc run` starts: its environment, its mpirun, and the wait for its profile."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

from mpicoloc import config
from mpicoloc.coordinator import launcher
from mpicoloc.core import messages
from mpicoloc.errors import EnvironmentFault

WAIT_PROFILE_S = 15.0
LOOK_EVERY_S = 0.5
"""Between two looks whether a process is left that will remove the job's files."""
_BATCH_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID")


def job_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The job's environment: its key and its name, so that this process finds its files and its profile."""
    job = dict(env)
    for name in (config.WRAPPED_ENV, config.COORDINATOR_ENV, config.SIBLINGS_ENV):
        job.pop(name, None)
    job[config.KEY_ENV] = f"{os.getuid()}.run.{os.getpid()}.{time.monotonic_ns() // 1_000_000 % 10**9}"
    if not job.get("MPICOLOC_JOB_ID"):
        batch = next((env[name].split(".")[0] for name in _BATCH_IDS if env.get(name)), None)
        job["MPICOLOC_JOB_ID"] = f"{batch}-{os.getpid()}" if batch else str(os.getpid())
    # The program may change its folder before MPI_Init, a script for instance.
    job["MPICOLOC_OUT"] = profile_path(job)
    return job


def profile_path(env: Mapping[str, str]) -> str:
    """Where the profile will be."""
    return os.path.abspath(env.get("MPICOLOC_OUT") or f"mpicoloc-{env['MPICOLOC_JOB_ID']}.h5")


def check_writable(profile: str) -> None:
    """Refuse before the job starts what would lose its profile at the end.

    Raises
    ------
    EnvironmentFault
        If the folder does not exist or cannot be written, or the name is that of a folder.
    """
    folder = os.path.dirname(profile)
    if os.path.isdir(profile):
        raise EnvironmentFault(f"the profile {profile} would replace a folder: name a file with --out")
    if not os.path.isdir(folder):
        raise EnvironmentFault(
            f"the profile's folder {folder} does not exist: create it, or choose another with --out"
        )
    try:
        # Only trying tells of read-only and remote file systems.
        _try_to_write(folder)
    except OSError as error:
        raise EnvironmentFault(
            f"the profile's folder {folder} cannot be written ({error.strerror}): choose another with --out"
        ) from None


def _try_to_write(folder: str) -> None:
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600))
    except OSError:  # not every file system has files without a name
        import tempfile

        tempfile.TemporaryFile(dir=folder).close()


def execute(command: Sequence[str], env: Mapping[str, str], n_nodes: int) -> int:
    """Run mpirun; it reads and writes what this process does, and gets its signals."""
    try:
        child = subprocess.Popen(command, env=dict(env))
    except OSError as error:
        raise EnvironmentFault(
            f"{command[0]} cannot be started: {error.strerror}; name another with --mpirun"
        ) from None

    def forward(number: int, _frame: FrameType | None) -> None:
        # A terminal sends its interrupt to the launcher as well; twice means "kill at once" to Open MPI.
        if number != signal.SIGINT or not _in_foreground():
            child.send_signal(number)

    old = {
        number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        code, hung = launcher.await_end(child, lambda: n_nodes == 1 and _only_announced(env))
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    if hung:
        messages.trouble(f"{command[0]} hung when its ranks had ended, and was killed (process {child.pid})")
    return code if code >= 0 else 128 - code


def _only_announced(env: Mapping[str, str]) -> bool:
    """Ranks have begun MPI_Init on this node, and none of them is there any more, or has come out of it."""
    start = os.path.join(str(config.get("shm_dir", env)), f"mpicoloc.{env[config.KEY_ENV]}.")
    return os.path.exists(start + "init") and not glob.glob(glob.escape(start) + "*.seg")


def _in_foreground() -> bool:
    try:
        with open("/dev/tty") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def await_profile(env: Mapping[str, str]) -> None:
    """Wait until the job's files in memory are gone: the profile is written, or nobody is left to do it."""
    folder = str(config.get("shm_dir", env))
    key = env[config.KEY_ENV]
    start = f"mpicoloc.{key}."
    with contextlib.suppress(OSError):
        # Still there only if the coordinator, which removes it, was killed; the keeper knows nothing of it.
        os.unlink(os.path.join(folder, start + "init"))
    began_s = looked_s = time.monotonic()
    while (now_s := time.monotonic()) < began_s + WAIT_PROFILE_S:
        try:
            if not any(name.startswith(start) for name in os.listdir(folder)):
                return
        except OSError:
            return
        if now_s - looked_s >= LOOK_EVERY_S:
            looked_s = now_s
            _remove_ownerless(folder, key)
        time.sleep(min(0.01, max(0.001, (now_s - began_s) / 16)))


def _remove_ownerless(folder: str, key: str) -> None:
    """Remove the job's files if none of its processes lives."""
    from mpicoloc.coordinator import leftovers  # not needed where all went well

    with contextlib.suppress(OSError):
        for leftover in leftovers.find(folder, key, quiet_s=0.0):
            leftover.remove()


@contextlib.contextmanager
def reason_mark(env: dict[str, str]) -> Iterator[Callable[[], bool]]:
    """Whether a process of the job has printed why there is no profile: then it has removed the file."""
    mark = os.path.join(os.environ.get("TMPDIR") or "/tmp", f".mpicoloc-run-{os.urandom(8).hex()}")
    try:
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:  # two lines are better than none
        yield lambda: False
        return
    env[config.REASON_ENV] = mark
    try:
        yield lambda: not os.path.exists(mark)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(mark)


def stamp(path: str) -> tuple[int, int] | None:
    """What changes when a profile is written anew; None: there is none."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
