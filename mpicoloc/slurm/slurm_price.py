"""What a job's profiles say of its price, written where its user looks: AdminComment.

It is not what `ledger collect` charges, by Slurm's CPUs and time, which are known when the job has ended.
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
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.launch import elf
from mpicoloc.profile import hdf5
from mpicoloc.slurm import slurm_close
from mpicoloc.slurm.slurm_close import Start
from mpicoloc.trace.bundle import STRANGE

_PRICE = '{"mpicoloc":'


@dataclass(frozen=True)
class Part:
    """What one profile says of its job's price; None: not measured. `slowdown` has value, low and high."""

    runtime_su: float | None
    fair_su: float | None
    slowdown: list[float] | None


def so_far(spool: str, start: Start) -> dict[str, Any] | None:
    """The price of a job by all of its profiles that are signed by now; None: there is none.

    Each profile is read once, however many steps of its job end after: the next one waits for this.
    """
    paths = slurm_close.signed(spool, start)
    before = _kept(spool, start)
    parts = {name: before[name] for name in map(_version, paths) if name in before}
    new = [path for path in paths if _version(path) not in parts]
    parts |= {_version(path): part for path, part in _read(new, start)}
    if parts.keys() - before.keys():
        _keep(spool, start, parts)
    return price(list(parts.values())) if parts else None


def forget(spool: str, start: Start) -> None:
    """Remove what is kept of a job that has ended."""
    with contextlib.suppress(OSError):
        os.unlink(_kept_in(spool, start))


def _version(path: str) -> str:
    """Its name, and what tells it from another one that the site puts in its place."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.basename(path)
    return f"{os.path.basename(path)} {status.st_size} {status.st_mtime_ns}"


def _read(paths: Sequence[str], start: Start) -> Iterator[tuple[str, Part]]:
    """Those that are profiles, many in one process; which ones they are is known where all of them are."""
    found = slurm_close.read_back(paths, start)
    if len(found) == len(paths):
        yield from zip(paths, map(part_of, found), strict=True)
        return
    for path in paths:
        yield from ((path, part_of(profile)) for profile in slurm_close.read_back([path], start))


def _kept_in(spool: str, start: Start) -> str:
    return os.path.join(spool, f"{slurm_close.PRICES}{start.stem}.json")


def _kept(spool: str, start: Start) -> dict[str, Part]:
    """What was read at the ends of earlier steps: none of it is needed."""
    path = _kept_in(spool, start)
    with contextlib.suppress(OSError, AttributeError, *STRANGE), elf.open_regular(path) as file:
        return {name: Part(**values) for name, values in json.load(file).items()}
    return {}


def _keep(spool: str, start: Start, parts: dict[str, Part]) -> None:
    text = json.dumps({name: asdict(part) for name, part in parts.items()})
    with contextlib.suppress(EnvironmentFault):
        hdf5.replace(_kept_in(spool, start), text.encode())


def part_of(profile: Profile) -> Part:
    """What a profile says of its job's price."""
    price, slowdown = profile.price, profile.interference.slowdown
    return Part(
        None if price is None else price.runtime_su,
        None if price is None else price.fair_su,
        None if slowdown is None else [slowdown.value, slowdown.low, slowdown.high],
    )


def price(parts: Sequence[Part]) -> dict[str, Any]:
    """What a job's steps cost together, and the slowdown of that which cost most.

    Parameters
    ----------
    parts : sequence of Part
        At least one.

    Returns
    -------
    dict
        ``n_profiles``, ``slowdown`` [value, low, high], and by the profiles' own cores and time
        ``profile_runtime_su``, ``profile_fair_su``; None for what was not measured in every step.
    """
    return {
        "n_profiles": len(parts),
        "slowdown": max(parts, key=lambda part: part.runtime_su or 0.0).slowdown,
        "profile_runtime_su": _sum([part.runtime_su for part in parts]),
        "profile_fair_su": _sum([part.fair_su for part in parts]),
    }


def _sum(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return round(sum(known), 9) if known and len(known) == len(parts) else None


def tell_slurm(start: Start, told: dict[str, Any]) -> bool:
    """Write it into the job's AdminComment, beside what others have written there.

    Returns
    -------
    bool
        False where Slurm takes no comment any more, as the job has ended.

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
    comment = with_price(start.admin_comment, json.dumps({"mpicoloc": told}, separators=(",", ":")))
    if comment == start.admin_comment:
        return True
    try:
        slurm_close.ask(["scontrol", "update", f"JobId={start.address}", f"AdminComment={comment}"])
    except EnvironmentFault as refusal:
        if not re.search("already (finished|complet)", str(refusal)):
            raise
        return False
    return True


def with_price(comment: str, price_text: str) -> str:
    """A comment with this price in the place of the one before, or behind all that others wrote."""
    before, after = comment, ""
    at = comment.find(_PRICE)
    if at >= 0:
        with contextlib.suppress(ValueError):
            end = json.JSONDecoder().raw_decode(comment, at)[1]
            before, after = comment[:at], comment[end:]
    return " ".join(filter(None, (before.strip(), price_text, after.strip())))
