"""The price of a job of Slurm, written where its user looks: AdminComment."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from mpicoloc.core.profile import Profile
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.run import slurm_close
from mpicoloc.run.slurm_close import Start

_PRICE = '{"mpicoloc":'


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
