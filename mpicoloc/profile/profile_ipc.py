"""A profile as bytes on its way from one process to another (`core.bundle`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.profile import Interference, Job, MpiSummary, Network, NetworkLevel, Price, Profile
from mpicoloc.profile.facts import checked
from mpicoloc.trace import bundle

T = TypeVar("T")
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

    Raises
    ------
    ValueError, TypeError, LookupError, ArithmeticError, RecursionError, DataError
        If it is no such parcel.
    """
    head, tables = bundle.unpack(content)
    found = head["interference"]
    slowdown = None if found["slowdown"] is None else facts(Estimate, found["slowdown"])
    others = tuple(facts(Estimate, other) for other in found["alternatives"])
    profile = Profile(
        job=facts(Job, head["job"]),
        tables=tables,
        mpi=facts(MpiSummary, head["mpi"]),
        interference=facts(Interference, found, slowdown=slowdown, alternatives=others),
        price=None if head["price"] is None else facts(Price, head["price"]),
        partial=bool(head["partial"]),
        notes=tuple(map(str, head["notes"])),
        network=None if head["network"] is None else _network(head["network"]),
    )
    return profile, head["more"]


def _network(values: Mapping[str, Any]) -> Network:
    levels = tuple(facts(NetworkLevel, row) for row in values["levels"])
    return facts(Network, values, levels=levels)


def facts(kind: type[T], values: Mapping[str, Any], **given: Any) -> T:
    """A dataclass of plain values, each of the type that it must have."""
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in given:
            continue
        value = values[field.name]
        if value is not None or not str(field.type).endswith("| None"):
            checked(field, value, kind.__name__)
        given[field.name] = value
    return kind(**given)
