"""When a job of Slurm is over: its profiles are signed, its price is told, its files in memory are removed.

Called as root by slurmstepd and slurmd (``mpicoloc slurm close``, ``mpicoloc slurm clean``). All of it may be
done again: what is in the spool tells what has been done.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pwd
import re
import stat
import tempfile
from collections.abc import Iterator
from typing import Any

from mpicoloc.core.profile import Profile
from mpicoloc.errors import DataError, MpicolocError
from mpicoloc.pmpi import contract
from mpicoloc.run import leftovers, slurm_command
from mpicoloc.store import profiles, signature


def files(pattern: str, job: int, uid: int) -> list[str]:
    """Profiles that a user's job left.

    Parameters
    ----------
    pattern : str
        ``out=`` of plugstack.conf: %j the job, %s the step, %u the user's number, %% a percent sign.
    job, uid : int
        Numbers of the job and its user.

    Returns
    -------
    list of str
        Regular files of that user only.
    """
    values = {"%j": str(job), "%s": "*", "%u": str(uid), "%%": "%"}
    parts = re.split("(%.)", pattern)
    found = glob.glob("".join(values.get(part, glob.escape(part)) for part in parts))
    return sorted(path for path in found if _is_of(path, uid))


def _is_of(path: str, uid: int) -> bool:
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        return stat.S_ISREG(status.st_mode) and status.st_uid == uid
    return False


def sign(path: str, job: int, uid: int, key: bytes, spool: str, now_unix_s: float) -> str | None:
    """Put the signed profile into the spool; returns its path, None if it is there already.

    Raises
    ------
    DataError
        If the file is no profile of that user's, or one of another job.
    EnvironmentFault
        If the spool cannot be written.
    """
    base = os.path.basename(path)
    to = os.path.join(spool, base if base.startswith(f"{job}.") else f"{job}.{base}")
    if os.path.exists(to):  # however the user may have changed his own since
        return None
    with tempfile.TemporaryDirectory(prefix=".new-", dir=spool) as folder:
        taken = os.path.join(folder, base)
        _take(path, uid, taken)
        named = profiles.read(taken).job
        if named.id != str(job):
            raise DataError(f"{path} says that it is of job {named.id!r}, not {job}: it is not signed")
        if named.user not in ("", str(uid), _name(uid)):
            raise DataError(f"{path} says that it is of user {named.user!r}, not {uid}: it is not signed")
        signature.sign(taken, key, now_unix_s, to)
    return to


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _take(path: str, uid: int, to: str) -> None:
    """Copy a user's file, as the user may put another one or a link in its place at any moment."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise DataError(f"{path} cannot be taken ({error.strerror}): it is not signed") from None
    with open(fd, "rb") as file, open(to, "xb") as copy:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            raise DataError(f"{path} is no file of user {uid}: it is not signed")
        if status.st_size > signature.MAX_BYTES:
            raise DataError(f"{path} has more than {signature.MAX_BYTES >> 20} MiB: it is not signed")
        copy.write(file.read(status.st_size))


def signed(spool: str, job: int) -> Iterator[Profile]:
    """Profiles of a job in the spool, in the order of their names."""
    for path in sorted(glob.glob(os.path.join(glob.escape(spool), f"{job}.*"))):
        with contextlib.suppress(MpicolocError):
            yield profiles.read(path)


def price(found: list[Profile]) -> dict[str, Any]:
    """What a job's steps cost together, and the slowdown of that which cost most.

    Returns
    -------
    dict
        ``n_profiles``, ``slowdown`` [value, low, high], ``runtime_su``, ``fair_su``; None for what was not
        measured in every step.
    """
    prices = [profile.price for profile in found]
    costs = [None if price is None else price.runtime_su for price in prices]
    fair = [None if price is None else price.fair_su for price in prices]
    largest = max(found, key=lambda profile: profile.price.runtime_su or 0.0 if profile.price else 0.0)
    slowdown = largest.interference.slowdown
    return {
        "n_profiles": len(found),
        "slowdown": None if slowdown is None else [slowdown.value, slowdown.low, slowdown.high],
        "runtime_su": _sum(costs),
        "fair_su": _sum(fair),
    }


def _sum(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return round(sum(known), 9) if known and len(known) == len(parts) else None


def tell_slurm(job: int, told: dict[str, Any]) -> None:
    """Write it into the job's AdminComment, behind what the pairing service has written there.

    Raises
    ------
    EnvironmentFault
        If slurmctld refuses: the job has ended, or it does not answer.
    """
    # That field alone: others have texts of the user's, which may look like it.
    known = slurm_command.ask(["squeue", "--noheader", "--jobs", str(job), "--Format", "admin_comment:200"])
    share = re.match(r"mpicoloc share \S+ on \S+ limit \d+", known.strip())
    price_text = json.dumps({"mpicoloc": told}, separators=(",", ":"))
    comment = f"{share[0]} {price_text}" if share else price_text
    slurm_command.ask(["scontrol", "update", f"JobId={job}", f"AdminComment={comment}"])


def clean(job: int, uid: int, folder: str) -> int:
    """Remove what a user's job left in the node's shared memory; returns how many files.

    Files are looked for and removed with that user's rights.
    """
    with _as_user(uid):
        found = [left for left in leftovers.find(folder, quiet_s=0.0) if _is_job(left, job)]
        return sum(left.remove() for left in found)


@contextlib.contextmanager
def _as_user(uid: int) -> Iterator[None]:
    before = os.geteuid()
    if before == uid:
        yield
        return
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(before)


def _is_job(left: leftovers.Leftover, job: int) -> bool:
    """Slurm's number is in the segments, or in the key that PMIx gave."""
    if re.search(rf"\.{job}[.-]\d+$", left.key):
        return True
    for path in left.paths:
        if path.endswith(".seg"):
            with contextlib.suppress(MpicolocError, OSError):
                return bool(contract.read_file(path)["job_id"] == str(job).encode())
    return False
