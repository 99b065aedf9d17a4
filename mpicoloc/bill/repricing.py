"""Prices of a profile under another rate, price function or true slowdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rich.markup import escape
from rich.text import Text

from mpicoloc import config
from mpicoloc.bill import pricings
from mpicoloc.bill.price import Bill, Tariff, bill, billing_per_cpu, price, tariff
from mpicoloc.cli import arguments
from mpicoloc.core.plain_values import plain
from mpicoloc.core.profile import Estimate, Job, Profile
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, MpicolocError, UsageError, printable
from mpicoloc.measure import processor
from mpicoloc.measure.advice import advice
from mpicoloc.profile import profiles
from mpicoloc.show import table
from mpicoloc.show.table import Column, console

Bills = Sequence[tuple[str, Job, Bill]]
"""For each profile: its file, its job and its prices."""

SCHEMES = {"runtime": "run time", "fair": "fair", "oracle": "oracle"}
"""The three prices of Figure 12 in Breslow et al. 2013: state of practice, POPPA and oracle."""
UNKNOWN = "-"


def as_json(bills: Bills) -> dict[str, Any]:
    """Plain values; unknown values are None, never 0."""
    return {"prices": [_entry(*row) for row in bills], "distribution": distribution(bills)}


def _entry(file: str, job: Job, bill: Bill) -> dict[str, Any]:
    prices = {name: getattr(bill, name) for name in (*SCHEMES, "solo")}
    return {
        "file": file,
        "job": {"id": job.id, "n_cores": bill.n_cores, "wall_s": bill.wall_s},
        "rate_su": bill.tariff.rate_su,
        "pricing": bill.tariff.pricing,
        "slowdown": plain(bill.slowdown),
        "true_slowdown": bill.true_slowdown,
        "price_su": plain(prices),
        "relative_frac": {name: plain(bill.relative[name]) for name in SCHEMES},
        "discount_frac": {name: discount_frac(bill, prices[name]) for name in ("fair", "oracle")},
        "charged_su": bill.charged_su,
    }


def discount_frac(bill: Bill, price: Estimate | None) -> float | None:
    """Discount as a fraction of the price by run time; None if either price is missing."""
    if price is None or bill.runtime.value <= 0:
        return None
    discount = 1.0 - price.value / bill.runtime.value
    return 0.0 if abs(discount) < 1e-12 else discount


def distribution(bills: Bills) -> dict[str, dict[str, float] | None]:
    """Mean, minimum and maximum of each scheme's relative prices; None if no profile has such a price."""
    found: dict[str, dict[str, float] | None] = {}
    for name in SCHEMES:
        known = [row[2].relative[name] for row in bills]
        values = [value.value for value in known if value is not None]
        found[name] = (
            {"mean": sum(values) / len(values), "min": min(values), "max": max(values), "n": len(values)}
            if values
            else None
        )
    return found


def show(bills: Bills, advised: Sequence[tuple[str, str]]) -> None:
    """Print the prices, and the advice for each job by its id."""
    if len(bills) == 1:
        _show_one(*bills[0])
    else:
        _show_many(bills)
    for job_id, words in advised:
        of_job = "" if len(bills) == 1 else f" for job {job_id}"
        console().print(Text(printable(f"advice{of_job}: {words}"), style="green"))


def _text(value: Estimate | None, form: str = ".4g") -> str:
    return UNKNOWN if value is None else table.with_interval(value, form)


def _show_one(file: str, job: Job, bill: Bill) -> None:
    out = console()
    tariff = f"{bill.tariff.rate_su:g} SU per core and hour, pricing {escape(bill.tariff.pricing)}"
    out.print(
        f"[bold]job {escape(printable(job.id))}[/bold]  {counted(bill.n_cores, 'core')}, "
        f"{bill.wall_s:.4g} s, {tariff}"
    )
    is_alone = bill.slowdown is not None and bill.slowdown.method == processor.ALONE
    slowdown = processor.ALONE_WORDS if is_alone else _text(bill.slowdown)
    true = UNKNOWN if bill.true_slowdown is None else f"{bill.true_slowdown:.4g}"
    out.print(f"slowdown {slowdown}, true {true}")
    columns = (
        Column("price", lambda name: SCHEMES[name]),
        Column("SU", lambda name: getattr(bill, name), _text),
        Column("of the run alone", bill.relative.__getitem__, lambda value: _text(value, ".1%")),
        Column(
            "discount",
            lambda name: None if name == "runtime" else discount_frac(bill, getattr(bill, name)),
            ".1%",
        ),
    )
    listing = table.listing(columns, SCHEMES)
    listing.add_row("the run alone", _text(bill.solo), "", "")
    out.print(listing)
    if bill.fair is None:
        out.print(f"note: slowdown not measured; to charge: {bill.charged_su:.6g} SU, priced as unshared")


_LEFT_OUT = {"oracle": 1, "runtime": 3, "fair": 0}
"""Rank of each price's columns in the order in which a narrow terminal hides columns; 0: never hidden."""


def _show_many(bills: Bills) -> None:
    def price(name: str) -> Callable[[tuple[str, Job, Bill]], Estimate | None]:
        return lambda row: getattr(row[2], name)  # type: ignore[no-any-return]

    def relative(name: str) -> Callable[[tuple[str, Job, Bill]], Estimate | None]:
        return lambda row: row[2].relative[name]

    columns = [
        Column("job", lambda row: row[1].id),
        Column("slowdown", price("slowdown"), ".4g", left_out=5),
        *(
            Column(f"{words}, SU", price(name), ".4g", left_out=_LEFT_OUT[name] and _LEFT_OUT[name] + 1)
            for name, words in SCHEMES.items()
        ),
        *(
            Column(f"{words}, relative", relative(name), ".1%", left_out=_LEFT_OUT[name])
            for name, words in SCHEMES.items()
        ),
    ]
    listing = table.listing(columns, bills)
    listing.add_section()
    spread = distribution(bills)
    for word in ("mean", "min", "max"):
        cells = [UNKNOWN if (row := spread[name]) is None else f"{row[word]:.1%}" for name in SCHEMES]
        listing.add_row(word, "", "", "", "", *cells)
    out = console()
    out.print(listing)
    out.print("relative: to the price of the run alone, by the true slowdown if that is given, "
              "else by the measured one")  # fmt: skip


def solo_s(text: str, profile: Profile) -> float:
    """Run time of the job alone, from `text`: a number of seconds, or the file of a solo run's profile.

    Raises `UsageError` if the number is not above 0. Raises `DataError` if the profile is not of this job
    alone.
    """
    try:
        float(text)
    except ValueError:
        solo = profiles.read(text)
    else:
        return arguments.parse("--solo", text, arguments.positive)
    if solo.interference.shared_s:
        raise DataError(
            f"{text} is not a solo run: it shared its nodes for {solo.interference.shared_s:.4g} s; "
            "run the job alone, or give its run time in seconds"
        )
    size, other = ((p.job.n_ranks, p.job.n_cores) for p in (profile, solo))
    if size != other:
        raise DataError(
            f"{text} is a run of {other[0]} ranks on {other[1]} cores, not of {size[0]} ranks on {size[1]}: "
            "give a run of the same job"
        )
    if solo.partial or not solo.job.wall_s > 0:
        raise DataError(f"{text} is the profile of an incomplete run: give a complete one, or seconds")
    return solo.job.wall_s


def priced_again(
    file: str,
    profile: Profile,
    rate_su: float | None,
    pricing: str | None,
    true_slowdown: float | None,
    memory_bytes: int | None = None,
) -> Bill:
    """The prices of a profile; `memory_bytes` as for `billing_per_cpu`."""
    try:
        per_cpu = billing_per_cpu(profile, profile.job.n_cores, memory_bytes)
        return bill(
            profile.interference.slowdown,
            n_cores=profile.job.n_cores,
            wall_s=profile.job.wall_s,
            tariff=_tariff(profile, rate_su, pricing).weighted(per_cpu),
            true_slowdown=true_slowdown,
        )
    except MpicolocError as error:
        raise type(error)(f"{file}: {error}") from error


def advice_again(profile: Profile, bill: Bill) -> tuple[str, ...]:
    """Advice by this bill's prices; empty if the true slowdown is known: advice is for the measured one."""
    if bill.true_slowdown is not None:
        return ()
    chosen, slowdown = bill.tariff, profile.interference.slowdown
    again = price(
        slowdown, n_cores=bill.n_cores, wall_s=bill.wall_s, rate_su=chosen.rate_su, pricing=chosen.pricing
    )
    return advice(replace(profile, price=again))


def _tariff(profile: Profile, rate_su: float | None, name: str | None) -> Tariff:
    priced = profile.price
    if rate_su is None:
        rate_su = float(config.get("price.rate_su") or 0.0) if priced is None else priced.rate_su
    if name is None and priced is not None and pricings.is_code_location(priced.pricing):
        # A profile may come from anybody, so its pricing must not make this process run code.
        raise UsageError(
            f"the profile was priced by {priced.pricing!r}, which is code: "
            f"to run this code, give --pricing {printable(priced.pricing)}"
        )
    if name is None:
        name = str(config.get("price.pricing")) if priced is None else priced.pricing
    return tariff(rate_su, name)
