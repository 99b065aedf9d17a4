"""Write the profile of a job from its files in shared memory.

    python -m mpicoloc.profile.assemble KEY [--partial]

The node's keeper runs this command if no coordinator wrote the profile; a coordinator calls `write`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence

from mpicoloc import config
from mpicoloc.core.profile import Job, Profile
from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, print_to_stderr
from mpicoloc.profile import checkpoints, hdf5
from mpicoloc.profile.bundle import NodePart
from mpicoloc.profile.collect import collect
from mpicoloc.profile.merge import merge

_LOCKED_WITHIN_S = 5.0
"""Longest wait for a folder's lock, s. Anyone who can read the folder can hold the lock, and MPI_Finalize
waits meanwhile."""
_CLOCKS_APART_S = 60.0
"""Largest assumed difference between the clocks of a file server and a node."""


def write(found: Sequence[NodePart], partial: bool = False) -> tuple[str, str]:
    """Write the profile of a job. Returns its path and, if this is not the path that the job set, the reason.

    Raises `EnvironmentFault` if it cannot be written anywhere.
    """
    profile = _on_network(merge(found, partial))
    # With LD_PRELOAD alone, no earlier step has checked the environment.
    told = " ".join(profile.notes)
    bad = [words for words in config.bad_values() if words.split()[0] not in told]
    notes = (*profile.notes, *config.variable_warnings(), *bad)
    profile, sign = _signing(dataclasses.replace(profile, notes=notes))
    wanted = found[0].facts["out_path"]
    try:
        path, reason = _write(profile, wanted, sign), "a job that ran at the same time uses that name"
    except (MpicolocError, OSError) as error:
        path, reason = _write_elsewhere(profile, wanted, sign), str(error).split("\n")[0]
    if path == wanted:
        return path, ""
    return path, f"profile cannot be written to {wanted} ({reason}), so it is in {path}"


def _write(profile: Profile, wanted: str, sign: hdf5.Finish | None) -> str:
    """Write the profile, signed if possible, under a name that no concurrent job has used."""
    with _locked(os.path.dirname(wanted)):
        path = next(path for path in _names(wanted, profile.job) if not _is_taken(path, profile.job))
        try:
            hdf5.write(profile, path, sign)
        except DataError as error:  # only signing raises it
            hdf5.write(_unsigned(profile, error), path)
    return path


def _names(wanted: str, job: Job) -> Iterator[str]:
    """Names to try for the profile; if the trace's name has the job's id (`csrc/trace`), all have it."""
    stem = f"{wanted.removesuffix('.h5')}-{os.path.basename(job.id)}"
    if not _has_trace(f"{stem}.trace", job):
        yield wanted
    yield f"{stem}.h5"
    yield from (f"{stem}-{n}.h5" for n in itertools.count(2))


def _has_trace(folder: str, job: Job) -> bool:
    with contextlib.suppress(OSError):
        return any(file.stat().st_mtime >= job.start_unix_s for file in os.scandir(folder))
    return False


def _is_taken(path: str, job: Job) -> bool:
    """Whether the profile at `path` must be kept, because it is of another job that ran at the same time."""
    try:
        if os.stat(path).st_mtime < job.start_unix_s - _CLOCKS_APART_S:
            return False
        from mpicoloc.profile import profiles

        other = profiles.read(path).job
    except (MpicolocError, OSError):
        return False
    # Another node of the same job may have written its part, with a slightly different start.
    is_same = other.id == job.id and (job.n_nodes > 1 or other.start_unix_s == job.start_unix_s)
    return not is_same and other.start_unix_s + other.wall_s > job.start_unix_s


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold the lock of a folder; go on without it if the file system has none or it is not free in time."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # the write itself will fail, with an error that names the remedy
        yield
        return
    deadline_s = time.monotonic() + _LOCKED_WITHIN_S
    try:
        while time.monotonic() < deadline_s:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:
                break
        yield
    finally:
        os.close(handle)


def _on_network(profile: Profile) -> Profile:
    """Add the job's network load, but only if a topology is set, because the import takes 15 ms."""
    if config.get("network.topology") is None:
        return profile
    from mpicoloc.profile.job_network import on_network

    return on_network(profile)


def _unsigned(profile: Profile, error: MpicolocError) -> Profile:
    return dataclasses.replace(profile, notes=(*profile.notes, f"unsigned: {error}"))


def _signing(profile: Profile) -> tuple[Profile, hdf5.Finish | None]:
    """The profile, and the function that signs its file.

    If no key is set, or the key cannot be used, the function is None; in the latter case, the profile has a
    note.
    """
    path = config.get("sign_key_file")
    if path is None:
        return profile, None
    from mpicoloc.profile import signature

    try:
        key = signature.read_key(str(path))
    except MpicolocError as error:
        return _unsigned(profile, error), None
    return profile, lambda file: signature.add(file, key, time.time())


def _write_elsewhere(profile: Profile, wanted: str, sign: hdf5.Finish | None) -> str:
    """Write the profile to the folder for temporary files.

    If another user's file there has the profile's name, the profile gets a random name.
    """
    import tempfile

    folder, name = tempfile.gettempdir(), os.path.basename(wanted) or "mpicoloc.h5"
    try:
        return _write(profile, os.path.join(folder, name), sign)
    except EnvironmentFault:
        return _write(profile, os.path.join(folder, f"{os.urandom(8).hex()}-{name}"), sign)


def _write_own(key: str, partial: bool) -> str:
    """Write the profile, unless another node writes it. Returns the problem, or an empty text."""
    own = collect(key)
    if own.facts["n_nodes"] == 1:
        return write([own], partial)[1]
    from mpicoloc.profile import recover

    found = recover.gather(own)
    path, trouble = write(found, partial) if found else ("", "")
    if len(found) > 1 and not trouble and recover.is_whole(found):
        checkpoints.remove(path)
    return trouble


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command; returns the exit code, which tells the keeper whether the command
    succeeded.
    """
    key, *options = sys.argv[1:] if arguments is None else arguments
    try:
        trouble = _write_own(key, "--partial" in options)
    except MpicolocError as error:
        print_to_stderr(str(error))
        return error.exit_code
    if trouble:
        print_to_stderr(trouble)
    return EnvironmentFault.exit_code if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
