"""A model of bubbles as plain values and arrays, and back; nothing is believed before it was checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from mpicoloc.core.bubbles import METHOD, ProgramPressure, SensitivityCurve, pressure_score
from mpicoloc.core.machine import machine_from_values
from mpicoloc.errors import DataError
from mpicoloc.slowdown.bubbles.model import BubbleModel

Array = np.ndarray[Any, Any]
_COLUMNS = ("levels", "slowdown", "low", "high")


def to_document(model: BubbleModel) -> tuple[dict[str, Any], dict[str, Array]]:
    """Plain values and arrays of a model; of `otherwise` nothing is kept.

    Curves stand one after the other in each array, scores one row each.
    """
    programs = list(model.programs.values())
    told = {
        "kind": METHOD,
        "combine": model.combine,
        "programs": [one.program for one in programs],
        "policies": [one.policy for one in programs],
        "sources": [one.curve.source for one in programs],
        "machine": None if model.machine is None else dataclasses.asdict(model.machine),
        "n_rows": model.n_rows,
        "band": {},
        "card": dict(model.card),
    }
    arrays: dict[str, Array] = {
        f"curve.{name}": np.concatenate([getattr(one.curve, name) for one in programs] or [np.empty(0)])
        for name in _COLUMNS
    }
    arrays["curve.length"] = np.array([len(one.curve.levels) for one in programs], np.int64)
    arrays["curve.n"] = np.array([one.curve.n for one in programs], np.int64)
    scores = [(one.score.value, one.score.low, one.score.high) for one in programs]
    arrays["score.ends"] = np.array(scores, np.float64).reshape(len(programs), 3)
    arrays["score.n"] = np.array([one.score.n for one in programs], np.int64)
    return told, arrays


def from_document(told: Mapping[str, Any], arrays: Mapping[str, Array]) -> BubbleModel:
    """The model that `to_document` took apart.

    Raises
    ------
    DataError
        If it is none.
    LookupError, ValueError, TypeError
        If parts are missing or of another kind.
    """
    names = list(map(str, told["programs"]))
    columns = [arrays[f"curve.{name}"].astype(np.float64, casting="same_kind") for name in _COLUMNS]
    length, n, n_score = (
        arrays[name].astype(np.int64, casting="same_kind") for name in ("curve.length", "curve.n", "score.n")
    )
    scores = arrays["score.ends"].astype(np.float64, casting="same_kind")
    if scores.shape != (len(names), 3) or any(a.shape != (len(names),) for a in (length, n, n_score)):
        raise DataError("curves and scores of other programs")
    if (length < 2).any() or any(column.shape != (length.sum(),) for column in columns):
        raise DataError("curves that are not there")
    ends = np.cumsum(length)
    found = {}
    rows = zip(names, told["policies"], told["sources"], ends - length, ends, strict=True)
    for i, (name, policy, source, start, end) in enumerate(rows):
        levels, slowdown, low, high = (column[start:end] for column in columns)
        curve = SensitivityCurve(name, levels, slowdown, low, high, int(n[i]), str(source))
        value, low_end, high_end = map(float, scores[i])
        score = pressure_score(value, low_end, high_end, int(n_score[i]))
        found[name] = ProgramPressure(name, curve, score, None if policy is None else str(policy))
    if len(found) < len(names):
        raise DataError("a program that is there twice")
    machine = machine_from_values(told["machine"])
    return BubbleModel(found, str(told["combine"]), machine=machine, card=dict(told["card"]))
