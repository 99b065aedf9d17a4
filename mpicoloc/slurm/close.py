"""The end of a Slurm job: signs its profiles and removes its files from shared memory.

slurmstepd and slurmd run this as root (``mpicoloc slurm close``, ``mpicoloc slurm clean``). A second run is
harmless, because the spool shows what was done. A process that parses a user's profile has neither root's
rights nor the site's key in its memory.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mpicoloc import messages
from mpicoloc.core.profile import Profile
from mpicoloc.errors import MALFORMED, DataError, EnvironmentFault, MpicolocError, UsageError, printable
from mpicoloc.job import init_barrier, leftovers
from mpicoloc.pmpi import contract, elf
from mpicoloc.profile import hdf5, profiles, signature
from mpicoloc.profile.sandbox import NOBODY
from mpicoloc.profile.signature import KeyFile
from mpicoloc.slurm import client, records
from mpicoloc.slurm.client import Start

MAX_PROFILES = 1000
"""Largest number of signed profiles per start of a job."""
MAX_BYTES = 4 << 30
"""Largest total size of the signed profiles of one start of a job."""
MAX_FILE_BYTES = 256 << 20
"""Largest size of one profile."""
MEMORY_BYTES = 3 << 29
"""Memory limit of a process that parses a profile, bytes: no job's limits apply to an epilog."""
KEEPER_S = 10.0
"""Longest wait for the keepers of a killed job to write its profile, s."""
_NAP_S = 0.1
PRICES = ".mpicoloc-prices-"
"""Prefix of the cache files that `price_so_far` keeps in the spool while a job runs."""
_STALE_S = 3600.0
"""Age at which a partly written file is removed, s: its writer must have been killed."""
_PRICES_KEPT_S = 30 * 86400.0
"""Age at which a cache of prices is removed, s: its job ended without an epilog."""
_MARK_KEPT_S = 400 * 86400.0
"""Age at which a mark is removed, s: no job runs that long after its last step."""


def check_pattern(pattern: str) -> None:
    """Raise a UsageError if all steps of a job would share a path, because the pattern lacks the step."""
    if "%s" not in _split(pattern):
        raise UsageError(
            f"--out {pattern!r} has no %s (the step), so all steps would share one file: nothing is signed. "
            "Put %s into it, as in '%j.%s.h5'"
        )


def profile_path(pattern: str, start: Start, step: str) -> str:
    """Path of a step's profile, whether it exists or not."""
    return "".join(step if part == "%s" else part for part in _fill_pattern(pattern, start))


def _fill_pattern(pattern: str, start: Start) -> list[str]:
    """Pieces of the path, in which ``%s`` still stands for the step."""
    values = {"%j": str(start.job), "%u": str(start.uid), "%%": "%"}
    return [values.get(part, part) for part in _split(pattern)]


def _split(pattern: str) -> list[str]:
    return re.split("(%.)", pattern)


def find_profiles(pattern: str, start: Start) -> list[tuple[str, str]]:
    """Profiles that a user's job left, each with its name in the spool.

    Only regular files that belong to that user and to this start of the job are returned.
    """
    parts = _fill_pattern(pattern, start)
    found = glob.glob("".join("*" if part == "%s" else glob.escape(part) for part in parts))
    steps = [f"(?P<step>{records.STEP.pattern})"] + ["(?P=step)"] * parts.count("%s")
    named = re.compile("".join(steps.pop(0) if part == "%s" else re.escape(part) for part in parts))
    matches = (named.fullmatch(path) for path in sorted(found) if _is_recent_file_of(path, start))
    return [(match[0], start.name(match["step"])) for match in matches if match]


def _is_recent_file_of(path: str, start: Start) -> bool:
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == start.uid
        return is_own and status.st_mtime >= start.since_unix_s
    return False


def sign(
    found: tuple[str, str], start: Start, key: signature.Key, spool: str, now_unix_s: float
) -> str | None:
    """Put a signed profile into the spool. Returns its path there, or None if it was signed before.

    Raises `DataError` if the file is not a profile of this job and user, or if the job has too many profiles.
    Raises `EnvironmentFault` if the spool cannot be written.
    """
    path, to = found[0], os.path.join(spool, found[1])
    # The user may have changed the file after it was signed, so a signed profile is not replaced.
    if os.path.lexists(to) or _was_signed_for_earlier_start(path, found[1], spool, start):
        return None
    content = _read_user_file(path, start.uid, signed_profiles(spool, start))
    names = (str(start.uid), client.user_name(start.uid), "")

    def check(job: str, user: str) -> None:
        if job != str(start.job):
            raise DataError(f"{path} is from job {_short(job)}, not from {start.job}: it is not signed")
        if user not in names:
            raise DataError(f"{path} is from user {_short(user)}, not from {start.uid}: it is not signed")

    content = signature.signed(
        path, content, key, now_unix_s, uid=start.uid, check=check, memory_bytes=MEMORY_BYTES
    )
    hdf5.replace(to, content)
    return to


def _was_signed_for_earlier_start(path: str, name: str, spool: str, start: Start) -> bool:
    """Whether the profile was signed for an earlier start.

    The times of files are compared, because Slurm's times are too coarse.
    """
    of_step = name.removeprefix(start.stem)
    same = re.compile(rf"{start.job}\.\d+{re.escape(of_step)}")
    with contextlib.suppress(OSError):
        written_s = os.lstat(path).st_mtime
        taken = glob.glob(os.path.join(glob.escape(spool), f"{start.job}.*{glob.escape(of_step)}"))
        return any(same.fullmatch(os.path.basename(t)) and os.stat(t).st_mtime >= written_s for t in taken)
    return False


def _short(text: str) -> str:
    return repr(printable(text)[:80])


def _read_user_file(path: str, uid: int, before: Iterable[str]) -> bytes:
    """Read a file that its user may replace by another file or a link at any moment."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): it is not signed") from None
    with open(fd, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            raise DataError(f"{path} is not a file of user {uid}: it is not signed")
        if status.st_size > MAX_FILE_BYTES:
            raise DataError(
                f"{path} has more than {MAX_FILE_BYTES >> 20} MiB: it is not signed here; the site can sign "
                "it with `mpicoloc sign`"
            )
        _check_room(path, status.st_size, before)
        return file.read(status.st_size)


def _check_room(path: str, n_bytes: int, before: Iterable[str]) -> None:
    sizes = []
    for other in before:
        with contextlib.suppress(FileNotFoundError):  # the site may remove signed profiles
            sizes.append(os.stat(other).st_size)
    if len(sizes) >= MAX_PROFILES:
        raise DataError(f"{path} is not signed: its job already has {len(sizes)} signed profiles, the limit")
    if sum(sizes) + n_bytes > MAX_BYTES:
        most = f"{MAX_BYTES >> 20} MiB"
        raise DataError(f"{path} is not signed: its job's signed profiles would exceed {most}")


def signed_profiles(spool: str, start: Start) -> list[str]:
    """Sorted paths of the signed profiles of this start of a job."""
    return sorted(glob.glob(os.path.join(glob.escape(spool), f"{start.stem}.*.h5")))


def sweep_spool(spool: str, now_unix_s: float) -> None:
    """Remove partly written files of killed writers, and prices and marks of jobs that ended long ago."""
    oldest_s = {
        ".mpicoloc-*.part": _STALE_S,
        f"{records.NOTES_FOLDER}/.mpicoloc-*.part": _STALE_S,
        f"{PRICES}*.json": _PRICES_KEPT_S,
        records.mark_path("", "*"): _MARK_KEPT_S,
    }
    for name, kept_s in oldest_s.items():
        for path in glob.glob(os.path.join(glob.escape(spool), name)):
            with contextlib.suppress(OSError):
                if os.lstat(path).st_mtime < now_unix_s - kept_s:
                    os.unlink(path)


def read_signed(paths: Sequence[str], start: Start) -> list[Profile]:
    """Profiles, without tables, of this start of a job, parsed with its user's rights."""
    return list(profiles.read_facts(paths, start.uid, MEMORY_BYTES))


def wait_for_writers(start: Start, folder: str, limit_s: float = KEEPER_S) -> bool:
    """Wait for the keepers of a killed job to write its profile. Returns whether the keepers have ended."""
    deadline_s = time.monotonic() + limit_s
    with _as_user(start.uid):
        files = leftovers.files(folder)
        jobs = {key: paths for key, paths in files.items() if _belongs_to(key, paths, start.job)}
    while pids := _processes(start.uid, jobs):
        # Poll only the processes found. When they have ended, search again for processes that they started.
        while any(any(init_barrier.entries(str(pid), "cmdline")) for pid in pids):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_NAP_S)
    return True


def _processes(uid: int, jobs: Mapping[str, Iterable[str]]) -> set[int]:
    with _as_user(uid):
        return leftovers.processes(jobs) if jobs else set()


def remove_shared_files(job: int, uid: int, folder: str) -> int:
    """Remove a job's files from the node's shared memory. Returns the number of files.

    The search and the removal use the rights of the job's user.
    """
    with _as_user(uid):
        found = leftovers.find(folder, quiet_s=0.0)
        return sum(left.remove() for left in found if _belongs_to(left.key, left.paths, job))


@contextlib.contextmanager
def _as_user(uid: int) -> Iterator[None]:
    """Run the block with the user's rights, without any of the user's groups."""
    before, groups = (os.geteuid(), os.getegid()), os.getgroups()
    if before[0] == uid:
        yield
        return
    try:
        os.setgroups([])  # before the process gives up root's rights
        os.setegid(NOBODY)
        os.seteuid(uid)
        yield
    finally:
        os.seteuid(before[0])
        os.setegid(before[1])
        os.setgroups(groups)


def _belongs_to(key: str, paths: Iterable[str], job: int) -> bool:
    """Whether files belong to this job: the PMIx key or the segments must have the job's number."""
    if re.search(rf"\.{job}[.-]\d+$", key):
        return True
    for path in paths:
        if path.endswith(".seg"):
            with contextlib.suppress(MpicolocError, OSError):
                return bool(contract.read_file(path)["job_id"] == str(job).encode())
    return False


# The price of a job by its profiles, written into the job's AdminComment, where its user sees it.
#
# `ledger collect` charges a different amount, computed from Slurm's CPUs and time, which are known only after
# the job has ended.


_PRICE = '{"mpicoloc":'


@dataclass(frozen=True)
class ProfilePrice:
    """Price by one profile; None: not measured. `slowdown` holds value, low and high."""

    runtime_su: float | None
    fair_su: float | None
    slowdown: list[float] | None


def price_so_far(spool: str, start: Start) -> dict[str, Any] | None:
    """Price of a job by the profiles signed so far; None if there are none.

    A cache in the spool keeps the prices, so that each profile is read only once.
    """
    paths = signed_profiles(spool, start)
    before = _read_cache(spool, start)
    prices = {name: before[name] for name in map(_version, paths) if name in before}
    new = [path for path in paths if _version(path) not in prices]
    prices |= {_version(path): price for path, price in _read(new, start)}
    if prices.keys() - before.keys():
        _write_cache(spool, start, prices)
    return sum_prices(list(prices.values())) if prices else None


def remove_cache(spool: str, start: Start) -> None:
    """Remove the cache of a job that has ended."""
    with contextlib.suppress(OSError):
        os.unlink(_cache_path(spool, start))


def _version(path: str) -> str:
    """Name, size and time of a profile. Size or time changes when the site replaces the file."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.basename(path)
    return f"{os.path.basename(path)} {status.st_size} {status.st_mtime_ns}"


def _read(paths: Sequence[str], start: Start) -> Iterator[tuple[str, ProfilePrice]]:
    """Prices by those files that are valid profiles. One process reads all; after an error, each is read
    alone.
    """
    found = read_signed(paths, start)
    if len(found) == len(paths):
        yield from zip(paths, map(price_of_profile, found), strict=True)
        return
    for path in paths:
        yield from ((path, price_of_profile(profile)) for profile in read_signed([path], start))


def _cache_path(spool: str, start: Start) -> str:
    return os.path.join(spool, f"{PRICES}{start.stem}.json")


def _read_cache(spool: str, start: Start) -> dict[str, ProfilePrice]:
    """Prices that earlier steps stored; empty if the cache is missing or damaged."""
    path = _cache_path(spool, start)
    with contextlib.suppress(OSError, AttributeError, *MALFORMED), elf.open_regular(path) as file:
        return {name: ProfilePrice(**values) for name, values in json.load(file).items()}
    return {}


def _write_cache(spool: str, start: Start, prices: dict[str, ProfilePrice]) -> None:
    text = json.dumps({name: asdict(price) for name, price in prices.items()})
    with contextlib.suppress(EnvironmentFault):
        hdf5.replace(_cache_path(spool, start), text.encode())


def price_of_profile(profile: Profile) -> ProfilePrice:
    """Price by a profile."""
    price, slowdown = profile.price, profile.interference.slowdown
    return ProfilePrice(
        None if price is None else price.runtime_su,
        None if price is None else price.fair_su,
        None if slowdown is None else [slowdown.value, slowdown.low, slowdown.high],
    )


def sum_prices(prices: Sequence[ProfilePrice]) -> dict[str, Any]:
    """Total price of a job's steps, and the slowdown of the most expensive step."""
    return {
        "n_profiles": len(prices),
        "slowdown": max(prices, key=lambda price: price.runtime_su or 0.0).slowdown,
        "profile_runtime_su": _sum_if_all_known([price.runtime_su for price in prices]),
        "profile_fair_su": _sum_if_all_known([price.fair_su for price in prices]),
    }


def _sum_if_all_known(prices: list[float | None]) -> float | None:
    known = [price for price in prices if price is not None]
    return round(sum(known), 9) if known and len(known) == len(prices) else None


def write_admin_comment(start: Start, price: dict[str, Any]) -> bool:
    """Write the price into the job's AdminComment, without changing other text there.

    Result: false if the job has ended, because Slurm then accepts no comment. Raises `EnvironmentFault` if
    slurmctld refuses or does not answer. Raises `DataError` if the comment is too long to be read.
    """
    if not start.is_running:
        return False
    if start.admin_comment is None:
        raise DataError(
            f"the AdminComment of job {start.job} has {client.COMMENT_WIDTH} bytes or more, "
            "so the price is not added"
        )
    comment = with_price(start.admin_comment, json.dumps({"mpicoloc": price}, separators=(",", ":")))
    if comment == start.admin_comment:
        return True
    try:
        client.ask(["scontrol", "update", f"JobId={start.address}", f"AdminComment={comment}"])
    except EnvironmentFault as refusal:
        if not re.search("already (finished|complet)", str(refusal)):
            raise
        return False
    return True


def with_price(comment: str, price_text: str) -> str:
    """The comment with its price replaced, or with the price appended if it has none."""
    before, after = comment, ""
    at = comment.find(_PRICE)
    if at >= 0:
        with contextlib.suppress(ValueError):
            end = json.JSONDecoder().raw_decode(comment, at)[1]
            before, after = comment[:at], comment[end:]
    return " ".join(filter(None, (before.strip(), price_text, after.strip())))


def close_job(
    start: Start, key: KeyFile, out: str, spool: str, *, shm_dir: str, step: str | None, ended_s: float
) -> int:
    """Write a job's records and sign its profiles. One bad profile does not stop the others.

    Result: the highest exit code of all errors, or 0.
    """
    code = 0
    if step is not None:
        try:
            records.record_ended_step(start, step, key, spool, ended_s)
        except MpicolocError as error:
            messages.trouble(str(error))
            code = error.exit_code
        folder = os.path.dirname(profile_path(out, start, step)) or "."
        if not os.path.isdir(folder):
            messages.trouble(
                f"there is no folder {folder}, so step {start.job}.{step} has no profile: create it"
            )
    elif not start.is_running:
        code = print_results(records.settle_job(spool, start, key, time.time()))
        if code == 0:
            records.unmark_job(spool, start.job)
    sweep_spool(spool, time.time())
    if not start.is_running and not wait_for_writers(start, shm_dir):
        messages.trouble(f"job {start.job}: its profile is still being written, so it might stay unsigned")
    code = max(code, print_results(_sign(start, key, out, spool)))
    _price(spool, start)
    return code


def _sign(start: Start, key: KeyFile, out: str, spool: str) -> Iterator[str | MpicolocError]:
    """Sign the profiles of a job's steps. Yields like `records.settle_job`."""
    found, strange = records.split_by_known_steps(find_profiles(out, start), spool, start)
    if strange:
        messages.trouble(
            f"{strange[0][0]} belongs to no measured step of job {start.job}, so it is not signed"
            + (f", nor are {len(strange) - 1} more" if strange[1:] else "")
        )
    for profile in found:
        try:
            yield sign(profile, start, key, spool, time.time()) or f"{profile[0]} was signed before"
        except MpicolocError as error:
            yield error if profile[0] in str(error) else type(error)(f"{profile[0]}: {error}")


def _price(spool: str, start: Start) -> None:
    """Write the price into the job's AdminComment, or warn if the job has ended."""
    if start.is_running:
        told = price_so_far(spool, start)
        is_told = told is None or write_admin_comment(start, told)
    else:
        remove_cache(spool, start)
        is_told = not signed_profiles(spool, start)
    if not is_told:
        messages.note(f"job {start.job} has ended, so its price cannot be written into its AdminComment")


def print_results(results: Iterable[str | MpicolocError]) -> int:
    """Print results and report errors. Returns the highest exit code."""
    code = 0
    for result in results:
        if isinstance(result, MpicolocError):
            messages.trouble(str(result))
            code = max(code, result.exit_code)
        else:
            print(result)
    return code
