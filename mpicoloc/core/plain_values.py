"""Conversion to plain values for JSON, and type-checked conversion of plain values to dataclasses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from mpicoloc.core.profile import Estimate

T = TypeVar("T")
_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}


def plain(value: Any) -> Any:
    """A value for JSON: dataclasses become objects, `Estimate` loses its unit, NaN and infinity are None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        kept = names if not isinstance(value, Estimate) else [name for name in names if name != "unit"]
        return {name: plain(getattr(value, name)) for name in kept}
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain_prediction(found: Estimate) -> dict[str, Any]:
    """A predicted number for JSON. The ends of its interval are None if its uncertainty is unknown."""
    ends = {} if found.has_interval else {"low": None, "high": None}
    return {**plain(found), **ends}


def dataclass_from(kind: type[T], values: Mapping[str, Any], **given: Any) -> T:
    """A dataclass from plain values and the fields in `given`. Raises the errors of `checked_value`."""
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in given:
            continue
        value = values[field.name]
        if value is not None or not str(field.type).endswith("| None"):
            checked_value(field, value, kind.__name__)
        given[field.name] = value
    return kind(**given)


def checked_value(field: dataclasses.Field[Any], value: Any, where: Any) -> Any:
    """Return the value if it has the field's type.

    Raises `ValueError`, `OverflowError` if it has another type or is not finite; the message says `where` the
    value is.
    """
    kind = str(field.type).removesuffix(" | None")
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, int | float) and not math.isfinite(value)):
        raise ValueError(
            f"{getattr(where, 'name', where)} has {field.name} {value!r}, which is not of type {kind}"
        )
    return value
