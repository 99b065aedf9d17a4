"""Prices of a profile under another rate, price function or true slowdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from mpicoloc import config
from mpicoloc.bill import pricings
from mpicoloc.bill.price import Bill, Tariff, bill, tariff
from mpicoloc.core.estimate import Estimate, estimate_json
from mpicoloc.core.profile import Job, Profile
from mpicoloc.core.tables import printable
from mpicoloc.errors import DataError, MpicolocError, UsageError
from mpicoloc.measure import processor
from mpicoloc.profile import profiles
from mpicoloc.show.listing import Listing
from mpicoloc.show.output import console

Bills = Sequence[tuple[str, Job, Bill]]
"""File, job and prices of each profile."""

SCHEMES = {"runtime": "run time", "fair": "fair", "oracle": "oracle"}
"""The three prices of the figure: its state of practice, POPPA and oracle."""
UNKNOWN = "-"


def as_json(bills: Bills) -> dict[str, Any]:
    """Plain values; what is not known is None, never 0."""
    return {"prices": [_entry(*row) for row in bills], "distribution": distribution(bills)}


def _entry(file: str, job: Job, bill: Bill) -> dict[str, Any]:
    prices = {name: getattr(bill, name) for name in (*SCHEMES, "solo")}
    return {
        "file": file,
        "job": {"id": job.id, "n_cores": bill.n_cores, "wall_s": bill.wall_s},
        "rate_su": bill.tariff.rate_su,
        "pricing": bill.tariff.pricing,
        "slowdown": estimate_json(bill.slowdown),
        "true_slowdown": bill.true_slowdown,
        "price_su": {name: estimate_json(price) for name, price in prices.items()},
        "relative_frac": {name: estimate_json(bill.relative[name]) for name in SCHEMES},
        "discount_frac": {name: discount_frac(bill, prices[name]) for name in ("fair", "oracle")},
        "charged_su": bill.charged_su,
    }


def discount_frac(bill: Bill, price: Estimate | None) -> float | None:
    """How much less than by run time; None when there is no such price."""
    if price is None or bill.runtime.value <= 0:
        return None
    discount = 1.0 - price.value / bill.runtime.value
    return 0.0 if abs(discount) < 1e-12 else discount


def distribution(bills: Bills) -> dict[str, dict[str, float] | None]:
    """Mean, minimum and maximum of the relative prices, by scheme; None where no profile has one."""
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


def show(bills: Bills) -> None:
    """Print the prices."""
    output = console()
    if len(bills) == 1:
        _show_one(output, *bills[0])
        return
    _show_many(output, bills)


def _show_one(console: Console, file: str, job: Job, bill: Bill) -> None:
    tariff = f"{bill.tariff.rate_su:g} SU per core and hour, pricing {escape(bill.tariff.pricing)}"
    name = escape(printable(job.id))
    console.print(f"[bold]job {name}[/bold]  {bill.n_cores} cores, {bill.wall_s:.4g} s, {tariff}")
    is_alone = bill.slowdown is not None and bill.slowdown.method == processor.ALONE
    slowdown = processor.ALONE_WORDS if is_alone else interval(bill.slowdown)
    console.print(f"slowdown {slowdown}, true {_or_unknown(bill.true_slowdown)}")
    listing = Listing(None, ("price", "SU", "of the run alone", "discount"))
    for name, words in SCHEMES.items():
        price = getattr(bill, name)
        saved = None if name == "runtime" else discount_frac(bill, price)
        listing.add_row(words, interval(price), percent(bill.relative[name]),
                        UNKNOWN if saved is None else f"{saved:.1%}")  # fmt: skip
    listing.add_row("the run alone", interval(bill.solo), "", "")
    console.print(listing)
    if bill.fair is None:
        price = f"{bill.charged_su:.6g} SU, as of an unshared run"
        console.print(f"note: slowdown not measured; to charge: {price}")


def _show_many(console: Console, bills: Bills) -> None:
    listing = Listing(
        None,
        (
            *("job", "slowdown"),
            *(f"{words}, {what}" for what in ("SU", "relative") for words in SCHEMES.values()),
        ),
        lesser=("oracle, relative", "oracle, SU", "run time, relative", "run time, SU", "slowdown"),
    )
    for _, job, job_bill in bills:
        prices = [number(getattr(job_bill, name)) for name in SCHEMES]
        relative = [percent(job_bill.relative[name], with_interval=False) for name in SCHEMES]
        listing.add_row(escape(printable(job.id)), number(job_bill.slowdown), *prices, *relative)
    listing.add_section()
    spread = distribution(bills)
    for word in ("mean", "min", "max"):
        cells = [UNKNOWN if (row := spread[name]) is None else f"{row[word]:.1%}" for name in SCHEMES]
        listing.add_row(word, "", "", "", "", *cells)
    console.print(listing)
    console.print("relative: to the price of the run alone, by the true slowdown if that is given, "
                  "else by the measured one")  # fmt: skip


def number(value: Estimate | None) -> str:
    """The value alone."""
    return UNKNOWN if value is None else f"{value.value:.4g}"


def interval(value: Estimate | None) -> str:
    """The value with its interval where it has one."""
    if value is None or value.low == value.high:
        return number(value)
    return f"{value.value:.4g} ({value.low:.4g} to {value.high:.4g})"


def percent(value: Estimate | None, *, with_interval: bool = True) -> str:
    """A share in percent."""
    if value is None:
        return UNKNOWN
    if not with_interval or value.low == value.high:
        return f"{value.value:.1%}"
    return f"{value.value:.1%} ({value.low:.1%} to {value.high:.1%})"


def _or_unknown(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4g}"


def solo_s(text: str, profile: Profile) -> float:
    """Run time of the job alone: `text` is a number of seconds, or the profile of such a run.

    Raises `UsageError` if it is a number and not above 0. Raises `DataError` if the run was none of this job
    alone.
    """
    try:
        float(text)
    except ValueError:
        solo = profiles.read(text)
    else:
        return config.parse_positive("--solo", text)
    if solo.interference.shared_s:
        raise DataError(
            f"{text} is no run alone: it shared its nodes for {solo.interference.shared_s:.4g} s; "
            "run the job alone, or give seconds"
        )
    size, other = ((p.job.n_ranks, p.job.n_cores) for p in (profile, solo))
    if size != other:
        raise DataError(
            f"{text} is a run of {other[0]} ranks on {other[1]} cores, not of {size[0]} on {size[1]}: "
            "not the same job"
        )
    if solo.partial or not solo.job.wall_s > 0:
        raise DataError(f"{text} is the profile of a run that did not end; give one that did, or seconds")
    return solo.job.wall_s


def priced_again(
    file: str, profile: Profile, rate_su: float | None, pricing: str | None, true_slowdown: float | None
) -> Bill:
    """The prices of a profile."""
    try:
        return bill(
            profile.interference.slowdown,
            n_cores=profile.job.n_cores,
            wall_s=profile.job.wall_s,
            tariff=_tariff(profile, rate_su, pricing),
            true_slowdown=true_slowdown,
        )
    except MpicolocError as error:
        raise type(error)(f"{file}: {error}") from error


def _tariff(profile: Profile, rate_su: float | None, name: str | None) -> Tariff:
    priced = profile.price
    if rate_su is None:
        rate_su = float(config.get("price.rate_su") or 0.0) if priced is None else priced.rate_su
    if name is None and priced is not None and pricings.is_code_location(priced.pricing):
        # A profile may come from anybody: its word must not make this process run code.
        raise UsageError(
            f"priced by {priced.pricing!r}, which is code: "
            f"to run it, give --pricing {printable(priced.pricing)}"
        )
    if name is None:
        name = str(config.get("price.pricing")) if priced is None else priced.pricing
    return tariff(rate_su, name)
