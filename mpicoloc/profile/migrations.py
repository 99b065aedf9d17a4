"""What tables of earlier versions say, in the columns of this one.

A column that an earlier version did not have is empty, unless there is a row here. How the layout may change:
docs/explain/architecture.md, "The layout of profiles".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Moved:
    """A column that is taken from another one where it is missing; `note` tells what differs, if anything."""

    source: str
    note: str = ""


MOVED: Mapping[str, Mapping[str, Moved]] = {
    "call_sites": {
        # Until calls that return at once were timed by sampling, every call was timed.
        "n_timed": Moved("n"),
        "sent_bytes": Moved(
            "bytes", "bytes of call_sites are those of both directions, and stand in sent_bytes"
        ),
    },
}
"""By table and column."""


def moved(name: str, found: Collection[str]) -> dict[str, Moved]:
    """The columns of table `name` that are missing among those found, and can be had from another one."""
    rules = MOVED.get(name, {}).items()
    return {column: rule for column, rule in rules if column not in found and rule.source in found}
