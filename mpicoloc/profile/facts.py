"""Facts of a profile as attributes of HDF5 groups: one for each field of a dataclass, its unit beside it."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

import h5py
import numpy as np

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.plain_values import checked_value
from mpicoloc.core.profile import Interference, Job, MeterResult, MpiSummary, Network, NetworkLevel, Price
from mpicoloc.core.tables import text
from mpicoloc.profile.attributes import write_text

_UNITS = {"_s": "s", "_su": "SU", "_frac": "1", "_bytes": "bytes", "_ns": "ns", "_bps": "bytes/s"}
_MAX_BYTES = 1 << 20

Facts = TypeVar("Facts", Job, MpiSummary, Price, Interference, MeterResult, Estimate, Network, NetworkLevel)


def write(group: h5py.Group, facts: Any) -> None:
    """One scalar attribute per field; a field that is None was not measured and has no attribute."""
    for field in fields(facts):
        value = getattr(facts, field.name)
        if value is None or isinstance(value, Estimate | tuple):
            continue
        if isinstance(value, str):
            write_text(group, field.name, value)
        else:
            group.attrs[field.name] = value
        unit = next((unit for end, unit in _UNITS.items() if field.name.endswith(end)), None)
        if unit:
            write_text(group, f"{field.name}.unit", unit)


def read(group: h5py.Group, kind: type[Facts], **given: Any) -> Facts:
    """The dataclass that `write` was given; fields in `given` are not looked for.

    Raises
    ------
    LookupError, ValueError, TypeError, OverflowError
        If one that has no default is missing, or is of another type.
    """
    values = {field.name: _attribute(group, field) for field in fields(kind) if field.name not in given}
    return kind(**{name: value for name, value in values.items() if value is not MISSING}, **given)


def _attribute(group: h5py.Group, field: Field[Any]) -> Any:
    name = field.name.encode()
    if not h5py.h5a.exists(group.id, name):
        if str(field.type).endswith("| None"):
            return None
        if field.default is MISSING:
            raise KeyError(f"{group.name} has no attribute {field.name}")
        return MISSING
    return checked_value(field, _scalar(h5py.h5a.open(group.id, name)), group)


def _scalar(attribute: h5py.h5a.AttrID) -> Any:
    """The value of an attribute, by h5py's lower half: the upper one takes three times as long."""
    if attribute.shape or attribute.get_storage_size() > _MAX_BYTES:
        raise ValueError(f"{attribute.name!r} is no single value")
    cell = np.empty((), attribute.dtype)
    attribute.read(cell)
    value = cell[()]
    if isinstance(value, bytes | str):
        return text(value).rstrip("\0")
    return value.item() if isinstance(value, np.generic) else value
