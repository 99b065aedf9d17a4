"""Prices beside each other, as in Figure 12 of Breslow et al. 2013: for a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from mpicoloc.core.estimate import Estimate, estimate_json
from mpicoloc.core.profile import Job
from mpicoloc.core.tables import printable
from mpicoloc.measure import processor
from mpicoloc.pricing.price import Bill
from mpicoloc.report.terminal.listing import Listing
from mpicoloc.report.terminal.output import console

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
    for _, job, bill in bills:
        prices = [number(getattr(bill, name)) for name in SCHEMES]
        relative = [percent(bill.relative[name], with_interval=False) for name in SCHEMES]
        listing.add_row(escape(printable(job.id)), number(bill.slowdown), *prices, *relative)
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
