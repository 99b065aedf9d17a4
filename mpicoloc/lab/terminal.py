"""A lab on one line, and the counters of its links."""

from __future__ import annotations

from typing import Any

from mpicoloc.show.listing import Listing
from mpicoloc.show.output import console


def line(lab: dict[str, Any]) -> str:
    """What a lab is."""
    rates = sorted({f"{rate_bps * 8e-9:g} Gbit/s" for rate_bps in lab["capacity_bps"]})
    return (
        f"lab {lab['name']}: {lab['topology']}, {lab['n_hosts']} hosts, {lab['n_switches']} switches, "
        f"{' and '.join(rates)}, up for {lab['up_s']:.0f} s"
    )


def show_counters(counted: dict[str, Any]) -> None:
    """Print a row for each level and each link."""
    counts = [f"{way} {what}" for way in ("up", "down") for what in ("bytes", "packets")]
    listing = Listing(None, ("link", "level", *counts), lesser=("up packets", "down packets"))
    for level in counted["levels"]:
        links = [link for link in counted["links"] if link["level"] == level["level"]]
        for row in (level, *links):
            name = f"{row['lower']} {row['upper']}" if "lower" in row else f"all {row['n_links']}"
            listing.add_row(name, str(row["level"]), *(str(row[count.replace(" ", "_")]) for count in counts))
    console().print(listing)
