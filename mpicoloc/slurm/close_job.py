"""What `mpicoloc slurm close` does when a step or a job ends: record, sign, price, and say what was wrong."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mpicoloc import messages
from mpicoloc.core.profile import Profile
from mpicoloc.errors import MALFORMED, DataError, EnvironmentFault, MpicolocError
from mpicoloc.pmpi import elf
from mpicoloc.profile import hdf5
from mpicoloc.profile.signature import KeyFile
from mpicoloc.slurm import close as slurm_close
from mpicoloc.slurm import record, settle, step_note
from mpicoloc.slurm.close import Start

# The price of a job by its profiles, written into its AdminComment, where its user sees it.
#
# `ledger collect` charges another amount: by Slurm's CPUs and time, which are known only when the job has
# ended.


_PRICE = '{"mpicoloc":'


@dataclass(frozen=True)
class ProfilePrice:
    """Price by one profile; None if not measured. `slowdown` has value, low and high."""

    runtime_su: float | None
    fair_su: float | None
    slowdown: list[float] | None


def price_so_far(spool: str, start: Start) -> dict[str, Any] | None:
    """Price of a job by its profiles that are signed so far; None if there are none.

    Each profile is read once; a cache in the spool has the prices for the steps that end later.
    """
    paths = slurm_close.signed_profiles(spool, start)
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
    """Name, size and time of a profile: they change when the site replaces it."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.basename(path)
    return f"{os.path.basename(path)} {status.st_size} {status.st_mtime_ns}"


def _read(paths: Sequence[str], start: Start) -> Iterator[tuple[str, ProfilePrice]]:
    """Prices of the files that are profiles: read in one process, or one by one if some are none."""
    found = slurm_close.read_signed(paths, start)
    if len(found) == len(paths):
        yield from zip(paths, map(price_of_profile, found), strict=True)
        return
    for path in paths:
        yield from ((path, price_of_profile(profile)) for profile in slurm_close.read_signed([path], start))


def _cache_path(spool: str, start: Start) -> str:
    return os.path.join(spool, f"{slurm_close.PRICES}{start.stem}.json")


def _read_cache(spool: str, start: Start) -> dict[str, ProfilePrice]:
    """Prices that earlier steps have read; empty if the cache is missing or damaged."""
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
    """Price of all steps of a job, and the slowdown of the most expensive one."""
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
    """Write the price into the job's AdminComment, beside what others have written there.

    Result: false if the job has ended, because then Slurm takes no comment. Raises `EnvironmentFault` if
    slurmctld refuses, or does not answer. Raises `DataError` if the comment is longer than what can be read
    of it.
    """
    if not start.is_running:
        return False
    if start.admin_comment is None:
        raise DataError(
            f"the AdminComment of job {start.job} has {slurm_close.COMMENT_WIDTH} bytes or more: "
            "it stays as it is, without the price"
        )
    comment = with_price(start.admin_comment, json.dumps({"mpicoloc": price}, separators=(",", ":")))
    if comment == start.admin_comment:
        return True
    try:
        slurm_close.run_slurm(["scontrol", "update", f"JobId={start.address}", f"AdminComment={comment}"])
    except EnvironmentFault as refusal:
        if not re.search("already (finished|complet)", str(refusal)):
            raise
        return False
    return True


def with_price(comment: str, price_text: str) -> str:
    """A comment with this price in the place of an earlier one, else at its end."""
    before, after = comment, ""
    at = comment.find(_PRICE)
    if at >= 0:
        with contextlib.suppress(ValueError):
            end = json.JSONDecoder().raw_decode(comment, at)[1]
            before, after = comment[:at], comment[end:]
    return " ".join(filter(None, (before.strip(), price_text, after.strip())))


def close(
    start: Start, key: KeyFile, out: str, spool: str, *, shm_dir: str, step: str | None, ended_s: float
) -> int:
    """Sign and settle what a job left; one bad profile does not stop the signing of the others.

    Result: the highest exit code of what went wrong, 0 if nothing did.
    """
    code = 0
    if step is not None:
        try:
            record.record_ended_step((start, step), key, spool, ended_s)
        except MpicolocError as error:
            messages.trouble(str(error))
            code = error.exit_code
        folder = os.path.dirname(slurm_close.profile_path(out, start, step)) or "."
        if not os.path.isdir(folder):
            messages.trouble(f"no folder {folder}, so step {start.job}.{step} has no profile: make it")
    elif not start.is_running:
        code = print_results(settle.settle_job(spool, start, key, time.time()))
        if code == 0:
            step_note.unmark(spool, start.job)
    slurm_close.sweep(spool, time.time())
    if not start.is_running and not slurm_close.wait_for_writers(start, shm_dir):
        messages.trouble(f"job {start.job}: its profile is still being written, so it may not be signed")
    code = max(code, _sign(start, key, out, spool))
    _price(spool, start)
    return code


def _sign(start: Start, key: KeyFile, out: str, spool: str) -> int:
    """Sign what the steps of a job left; returns the highest exit code."""
    code = 0
    found, strange = record.split_by_known_steps(slurm_close.find_profiles(out, start), spool, start)
    if strange:
        messages.trouble(
            f"{strange[0][0]} is of no step of job {start.job} that was measured, so it is not signed"
            + (f", nor are {len(strange) - 1} more" if strange[1:] else "")
        )
    for profile in found:
        try:
            to = slurm_close.sign(profile, start, key, spool, time.time())
        except MpicolocError as error:
            messages.trouble(str(error) if profile[0] in str(error) else f"{profile[0]}: {error}")
            code = max(code, error.exit_code)
        else:
            print(to or f"{profile[0]} was signed before")
    return code


def _price(spool: str, start: Start) -> None:
    """Into AdminComment, while Slurm takes it."""
    if start.is_running:
        told = price_so_far(spool, start)
        is_told = told is None or write_admin_comment(start, told)
    else:
        remove_cache(spool, start)
        is_told = not slurm_close.signed_profiles(spool, start)
    if not is_told:
        messages.note(f"job {start.job} has ended: Slurm takes no price into its AdminComment any more")


def print_results(results: Iterable[str | MpicolocError]) -> int:
    """Print what was made, report what was not; returns the highest exit code."""
    code = 0
    for result in results:
        if isinstance(result, MpicolocError):
            messages.trouble(str(result))
            code = max(code, result.exit_code)
        else:
            print(result)
    return code
