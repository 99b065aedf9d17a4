"""Model files: arrays and a card, but no code, so that reading a stranger's file is safe."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from mpicoloc import messages
from mpicoloc.bubble import curves_file, model as stored
from mpicoloc.bubble.model import BubbleModel
from mpicoloc.core.bubbles import METHOD
from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import CORES, JobFeatures, machine_from_values, read_layout
from mpicoloc.errors import DataError
from mpicoloc.pairing import arrays_file
from mpicoloc.pairing.fitted import (
    Band,
    FittedModel,
    Kernel,
    Layers,
    Linear,
    Preparation,
    Product,
    Regressor,
    Similar,
    Trees,
)

Array = np.ndarray[Any, Any]
StoredModel: TypeAlias = FittedModel | BubbleModel
FORMAT = "mpicoloc slowdown model"
VERSION = 1
_REGRESSORS: Mapping[str, type] = {
    kind.__name__: kind for kind in (Trees, Linear, Product, Similar, Kernel, Layers)
}
_WHOLE = {"roots", "feature", "left", "right", "flagged", "sizes", "activation"}
_FLAGS = {"missing_left"}
_STRANGE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)


def to_document(model: StoredModel) -> tuple[dict[str, Any], dict[str, Array]]:
    """Plain values and arrays of a model."""
    if isinstance(model, BubbleModel):
        return stored.to_document(model)
    told = {
        "kind": model.kind,
        "features": list(model.features),
        "regressor": type(model.regressor).__name__,
        "band": dataclasses.asdict(model.band),
        "usual": list(model.usual),
        "most": model.most,
        "n_rows": model.n_rows,
        "machine": None if model.machine is None else dataclasses.asdict(model.machine),
        "card": dict(model.card),
    }
    arrays = _arrays("regressor", model.regressor)
    if model.preparation is not None:
        arrays |= _arrays("preparation", model.preparation)
    return told, arrays


def _arrays(prefix: str, part: Any) -> dict[str, Array]:
    return {f"{prefix}.{field.name}": getattr(part, field.name) for field in dataclasses.fields(part)}


def from_document(told: Mapping[str, Any], arrays: Mapping[str, Array]) -> StoredModel:
    """The model from the result of `to_document`.

    Raises `DataError` if it is not a valid model. The message does not name the file.
    """
    try:
        if told["kind"] == METHOD:
            return stored.from_document(told, arrays)
        model = _model(told, arrays)
    except _STRANGE as error:
        raise DataError(str(error) or type(error).__name__) from error
    if reason := _trouble(model):
        raise DataError(reason)
    return model


def _model(told: Mapping[str, Any], arrays: Mapping[str, Array]) -> FittedModel:
    regressor: Regressor = _REGRESSORS[told["regressor"]](**_fields("regressor", arrays))
    prepared = _fields("preparation", arrays)
    value, low, high = map(float, told["usual"])
    return FittedModel(
        kind=str(told["kind"]),
        features=tuple(map(str, told["features"])),
        regressor=regressor,
        preparation=Preparation(**prepared) if prepared else None,
        band=Band(**{str(name): float(number) for name, number in told["band"].items()}),
        usual=(value, low, high),
        most=float(told["most"]),
        n_rows=int(told["n_rows"]),
        machine=machine_from_values(told["machine"]),
        card=_card(told["card"]),
    )


def _card(told: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(told)
    return found | {"layout": read_layout(found["layout"])} if "layout" in found else found


def _fields(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    found = {}
    for name, array in arrays.items():
        part, _, field = name.partition(".")
        if part == prefix:
            kind = "?" if field in _FLAGS else "i8" if field in _WHOLE else "f8"
            found[field] = array.astype(kind, casting="same_kind", copy=False)
    return found


def _trouble(model: FittedModel) -> str:
    """Why a model is not valid; empty if it is valid."""
    band = model.band
    numbers = (*model.usual, model.most, *dataclasses.astuple(band))
    value, low, high = model.usual
    if not all(map(math.isfinite, numbers)) or model.n_rows < 0 or not model.features:
        return "a number that is invalid"
    if not (1 <= low <= value <= high and model.most >= 1):
        return "slowdowns that are invalid"
    if not (band.below <= 0 <= band.above and band.fixed >= 0 and band.per_excess >= 0 and band.least >= 0):
        return "an interval that is invalid"
    n = len(model.features)
    if (found := model.preparation) is not None:
        if reason := _not_prepared(found, n):
            return reason
        n += len(found.flagged)
    reason = model.regressor.trouble(2 * n)
    return reason and f"a {type(model.regressor).__name__} with {reason}"


def _not_prepared(found: Preparation, n: int) -> str:
    n_all = n + len(found.flagged)
    shapes = (found.scale.shape, found.fill.shape, found.mean.shape, found.sd.shape, found.flagged.ndim)
    if shapes != ((n,), (n,), (n_all,), (n_all,), 1):
        return "a preparation of other features"
    if len(found.flagged) and not (found.flagged.min() >= 0 and found.flagged.max() < n):
        return "a preparation of features that do not exist"
    whole = np.concatenate([found.scale, found.fill, found.mean, found.sd])
    is_right = np.isfinite(whole).all() and (found.scale > 0).all() and (found.sd > 0).all()
    return "" if is_right else "a scale of 0"


def write(model: StoredModel, path: str | os.PathLike[str]) -> None:
    """Write a model. Raises the errors of `arrays_file.write`."""
    told, arrays = to_document(model)
    arrays_file.write(path, FORMAT, VERSION, told, arrays)


def read(path: str | os.PathLike[str]) -> StoredModel:
    """Read a model.

    Raises `DataError` if the file does not exist, is damaged, is not a model or has another version. Raises
    `EnvironmentFault` if it cannot be opened.
    """
    told, arrays = arrays_file.read(path, FORMAT, VERSION)
    try:
        return from_document(told, arrays)
    except DataError as error:
        raise arrays_file.damaged(os.fspath(path), FORMAT, error) from error


def layout(model: object) -> str:
    """Layout of the jobs whose slowdowns a model has learnt; empty: unknown. Curves are of `CORES`."""
    if isinstance(model, BubbleModel):
        return CORES
    return str(getattr(model, "card", {}).get("layout", ""))


def card(model: StoredModel) -> dict[str, Any]:
    """The description of a model for people, as plain values."""
    told, _ = to_document(model)
    return {name: told[name] for name in ("kind", "machine", "n_rows", "band")} | told["card"]


def of_curves(path: str) -> BubbleModel:
    """The model from a file of curves and scores. Prints the model's notes.

    Raises the errors of `curves_file.read`.
    """
    model = BubbleModel(curves_file.read(path))
    for note in model.notes:
        messages.note(note)
    return model


def each_beside_each_other(
    model: StoredModel, jobs: Sequence[JobFeatures]
) -> list[tuple[JobFeatures, list[JobFeatures], Estimate]]:
    """Target, co-runner and slowdown of all ordered pairs of jobs; a single job is paired with itself."""
    found = model.predict_pairs(jobs)
    pairs = []
    for i, target in enumerate(jobs):
        for j, beside in enumerate(jobs):
            if i != j or len(jobs) == 1:
                ends = (float(found.value[i, j]), float(found.low[i, j]), float(found.high[i, j]))
                pairs.append((target, [beside], Estimate(*ends, model.n_rows, "1", model.kind)))
    return pairs
