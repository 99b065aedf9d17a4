"""The price of a job by its profiles, written into its AdminComment, where its user sees it.

`ledger collect` charges another amount: by Slurm's CPUs and time, which are known only when the job has
ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mpicoloc.core.profile import Profile
from mpicoloc.errors import MALFORMED, DataError, EnvironmentFault
from mpicoloc.launch import elf
from mpicoloc.profile import hdf5
from mpicoloc.slurm import slurm_close
from mpicoloc.slurm.slurm_close import Start

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
    """Price of all steps of a job, and the slowdown of the most expensive one.

    Parameters
    ----------
    prices : sequence of ProfilePrice
        At least one.

    Returns
    -------
    dict
        ``n_profiles``, ``slowdown`` [value, low, high], and by the profiles' own cores and time
        ``profile_runtime_su``, ``profile_fair_su``; None for what was not measured in every step.
    """
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

    Returns
    -------
    bool
        False if the job has ended, because then Slurm takes no comment.

    Raises
    ------
    EnvironmentFault
        If slurmctld refuses, or does not answer.
    DataError
        If the comment is longer than what can be read of it.
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
