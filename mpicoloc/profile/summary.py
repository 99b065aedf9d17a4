"""The output of ``mpicoloc show --json`` for other programs: fixed keys with the values of a profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpicoloc.bubble import shutters
from mpicoloc.core.plain_values import plain
from mpicoloc.core.profile import Estimate, Profile, text
from mpicoloc.errors import MpicolocError
from mpicoloc.measure import processor
from mpicoloc.measure.advice import advice
from mpicoloc.measure.co_runners import slowdown_by_job
from mpicoloc.profile import profiles


def summary(profile: Profile) -> dict[str, Any]:
    """Plain values under the keys fixed in DESIGN.md; None, never 0, for anything not measured."""
    job, mpi, found, price = profile.job, profile.mpi, profile.interference, profile.price
    return {
        "schema_version": profile.schema_version,
        "partial": profile.partial,
        "job": {name: getattr(job, name)
                for name in ("id", "command", "n_ranks", "n_nodes", "n_cores", "mpi_library", "wall_s")}
        | {"start_unix_s": job.start_unix_s or None, "user": job.user or None,
           "hosts": [text(row["hostname"]) for row in profile.tables["nodes"]]},
        "mpi": plain(mpi),
        "interference": {
            "slowdown": plain(found.slowdown),
            "meters": {result.meter: _number_json(result.slowdown, result.reason) for result in found.meters},
            "co_runners": [
                {"id": one.id, "overlap_s": one.overlap_s, "slowdown": _ends_json(one.slowdown)}
                for one in co_runners(profile)],
            "shutters": {
                "n_taken": found.n_taken, "n_used": found.n_used, "overhead_frac": found.overhead_frac},
            "processor": {
                "cpu_s": found.cpu_s, "run_delay_s": found.run_delay_s,
                "run_delay_frac": processor.run_delay_frac(found.cpu_s, found.run_delay_s),
                "involuntary_switches": found.involuntary_switches,
                "foreign_delay_frac": found.foreign_delay_frac, "note": processor.delay_note(profile)},
        },
        "price": {name: getattr(price, name, None)
                  for name in ("rate_su", "runtime_su", "fair_su", "discount_frac", "pricing")},
        # All values are None if no topology was known.
        "network": {name: plain(getattr(profile.network, name, None))
                    for name in ("topology", "levels", "demand_class", "duration_s")},
        "bubbles": bubbles_json(profile),
        "advice": list(advice(profile)),
    }  # fmt: skip


def bubbles_json(profile: Profile) -> dict[str, Any] | None:
    """The results of bubbles in the job's shutters, or why there are none; None if none were requested."""
    if not shutters.ran_any(profile.tables["shutters"]):
        reason = shutters.why_none(profile)
        return {"reason": reason, "n_taken": 0, "n_used": 0} if reason else None
    found = shutters.from_tables(profile.tables, profile.job.command)
    counted: dict[str, Any] = {"n_taken": found.n_taken, "n_used": found.n_used}
    counted["score"] = _number_json(found.score, found.score_reason)
    if found.curve is None:
        return {"reason": found.reason, **counted}
    return (
        plain({name: getattr(found.curve, name) for name in ("levels", "slowdown", "low", "high")}) | counted
    )


def _ends_json(value: Estimate | None) -> dict[str, float | None]:
    """An estimate's value and interval; each is None if not known."""
    return {name: getattr(value, name, None) for name in ("value", "low", "high")}


def _number_json(value: Estimate | None, reason: str) -> dict[str, Any]:
    """An estimate with its interval, or the reason why there is none."""
    if value is None:
        return {"reason": reason}
    return {name: number for name, number in plain(value).items() if name != "method"}


@dataclass(frozen=True)
class CoRunner:
    """A co-runner, its longest time on a node with this job, and the slowdown that it alone causes."""

    id: str
    overlap_s: float
    slowdown: Estimate | None


def co_runners(profile: Profile) -> list[CoRunner]:
    """Co-runners, in descending order of the time that they shared a node with this job."""
    longest: dict[str, float] = {}
    for row in profile.tables["corunners"]:
        name = text(row["job_id"])
        longest[name] = max(longest.get(name, 0.0), float(row["overlap_s"]))
    slowdowns = slowdown_by_job(profile.tables["corunners"])
    ordered = sorted(longest.items(), key=lambda item: -item[1])
    return [CoRunner(name, overlap_s, slowdowns.get(name)) for name, overlap_s in ordered]


def result_words(file: str) -> str:
    """Slowdown and price in a few words, or the reason why the profile cannot be read."""
    try:
        profile = profiles.read(file)
    except MpicolocError as error:
        return f", but {error}"
    words = f": slowdown {processor.slowdown_words(profile.interference.slowdown)}"
    price = "" if profile.price is None else f", price {profile.price.fair_su:.4g} SU"
    frac = processor.notable_frac(profile)
    lost = "" if frac is None else f", no processor for {frac:.0%} of the time (see `mpicoloc show`)"
    return words + lost + price + (", partial" if profile.partial else "")
