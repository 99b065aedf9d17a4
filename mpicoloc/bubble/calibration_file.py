"""Calibrations in files, one for each kind of machine: lines of text that `mpicoloc-bubble` reads as well."""

from __future__ import annotations

import os
import re

import numpy as np

from mpicoloc.bubble.calibration import BubbleSetting, Calibration
from mpicoloc.core.bubbles import LEVELS, SensitivityCurve
from mpicoloc.errors import MALFORMED, DataError, EnvironmentFault, UsageError
from mpicoloc.profile import hdf5, machine

FIRST_LINE = "mpicoloc bubble calibration 1"
_REMEDY = "run `mpicoloc bubble calibrate`"


def default_path() -> str:
    """Where the calibration of this kind of machine is kept, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    model, n_cpus = this_machine()
    name = re.sub(r"[^A-Za-z0-9]+", "-", model).strip("-") or "unknown"
    return os.path.join(cache, "mpicoloc", "bubbles", f"{name}-{n_cpus}-cpus.txt")


def this_machine() -> tuple[str, int]:
    """Model and number of its processors."""
    facts = machine.node()
    return str(facts["cpu_model"]), int(facts["n_cpus"])


def write(calibration: Calibration, path: str) -> None:
    """Write a calibration, all of it or nothing.

    Raises `EnvironmentFault` if the file cannot be written.
    """
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        hdf5.replace(path, as_text(calibration).encode())
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be written ({error.strerror}): name another file with --calibration"
        ) from None


def as_text(one: Calibration) -> str:
    """The lines of the file."""
    lines = [
        FIRST_LINE,
        f"model {one.cpu_model}",
        f"cpus {one.n_cpus} {one.n_bubble_cpus}",
        f"probe {one.probe.working_set_bytes} {one.probe.lines_per_s!r}",
        f"probe_alone {float(one.probe_alone_lines_per_s)!r}",
        f"turns {one.curve.n}",
        "# level, bytes, lines/s, slowdown of the probe with the ends of its interval",
    ]
    for i, setting in enumerate(one.settings):
        slowdown = [float(ends[i]) for ends in (one.curve.slowdown, one.curve.low, one.curve.high)]
        words = [i, setting.working_set_bytes, float(setting.lines_per_s), *slowdown]
        lines.append("level " + " ".join(map(repr, words)))
    return "\n".join(lines) + "\n"


def read(path: str | None = None) -> Calibration:
    """The calibration in a file, else that of this kind of machine.

    Raises `UsageError` if the file that was named is not there. Raises `EnvironmentFault` if this machine was
    never calibrated. Raises `DataError` if the file is none of ours, or of another machine.
    """
    chosen = path or default_path()
    try:
        with open(chosen, encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 16)
    except OSError as error:
        if path is not None:
            raise UsageError(f"calibration {path} cannot be read: {error.strerror}; {_REMEDY}") from None
        model, n_cpus = this_machine()
        raise EnvironmentFault(
            f"bubbles are not calibrated for this machine ({model}, {n_cpus} CPUs): {_REMEDY}"
        ) from None
    found = parse(text, chosen)
    if (found.cpu_model, found.n_cpus) != this_machine():
        raise DataError(
            f"calibration {chosen} is of another machine ({found.cpu_model}, {found.n_cpus} CPUs): {_REMEDY}"
        )
    return found


def parse(text: str, path: str) -> Calibration:
    """A calibration from the text of its file.

    Raises `DataError` if it is none.
    """
    lines = text.splitlines()
    if not lines or lines[0] != FIRST_LINE:
        raise DataError(f"{path} is no calibration of bubbles: {_REMEDY}")
    try:
        words = dict(line.split(" ", 1) for line in lines[1:] if not line.startswith(("#", "level ")))
        rows = [line.split()[1:] for line in lines if line.startswith("level ")]
        if [int(row[0]) for row in rows] != list(LEVELS):
            raise ValueError(f"levels must be {LEVELS[0]} to {LEVELS[-1]}")
        n_cpus, n_bubble_cpus = map(int, words["cpus"].split())
        levels = np.array(LEVELS, float)
        value, low, high = (np.array([float(row[i]) for row in rows]) for i in (3, 4, 5))
        curve = SensitivityCurve("the probe", levels, value, low, high, int(words["turns"]))
        settings = tuple(BubbleSetting(int(row[1]), float(row[2])) for row in rows)
        size, rate = words["probe"].split()
        probe = BubbleSetting(int(size), float(rate))
        alone = float(words["probe_alone"])
        return Calibration(words["model"], n_cpus, n_bubble_cpus, settings, probe, alone, curve)
    except MALFORMED as error:
        raise DataError(f"calibration {path} is damaged ({error}): {_REMEDY}") from None
