"""A profile as bytes on its way from one process to another (`profile.bundle`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.plain_values import dataclass_from
from mpicoloc.core.profile import (
    Interference,
    Job,
    MeterResult,
    MpiSummary,
    Network,
    NetworkLevel,
    Price,
    Profile,
)
from mpicoloc.profile import bundle

FACTS = ("job", "mpi", "interference", "price", "network")


def pack(profile: Profile, more: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
    """The profile, and plain values beside it, in pieces."""
    facts = {name: _plain(getattr(profile, name)) for name in FACTS}
    head = facts | {"partial": profile.partial, "notes": profile.notes, "more": more}
    return bundle.pack(head, profile.tables)


def _plain(facts: Any) -> dict[str, Any] | None:
    return None if facts is None else dataclasses.asdict(facts)


def unpack(content: memoryview) -> tuple[Profile, Mapping[str, Any]]:
    """What `pack` was given; the tables are views of `content`.

    Raises `ValueError`, `TypeError`, `LookupError`, `ArithmeticError`, `RecursionError`, `DataError` if it is
    no such parcel.
    """
    head, tables = bundle.unpack(content)
    found = head["interference"]
    slowdown = None if found["slowdown"] is None else dataclass_from(Estimate, found["slowdown"])
    others = tuple(dataclass_from(Estimate, other) for other in found["alternatives"])
    meters = tuple(_meter_result(result) for result in found["meters"])
    profile = Profile(
        job=dataclass_from(Job, head["job"]),
        tables=tables,
        mpi=dataclass_from(MpiSummary, head["mpi"]),
        interference=dataclass_from(
            Interference, found, slowdown=slowdown, alternatives=others, meters=meters
        ),
        price=None if head["price"] is None else dataclass_from(Price, head["price"]),
        partial=bool(head["partial"]),
        notes=tuple(map(str, head["notes"])),
        network=None if head["network"] is None else _network(head["network"]),
    )
    return profile, head["more"]


def _meter_result(values: Mapping[str, Any]) -> MeterResult:
    slowdown = None if values["slowdown"] is None else dataclass_from(Estimate, values["slowdown"])
    return dataclass_from(MeterResult, values, slowdown=slowdown)


def _network(values: Mapping[str, Any]) -> Network:
    levels = tuple(dataclass_from(NetworkLevel, row) for row in values["levels"])
    return dataclass_from(Network, values, levels=levels)
