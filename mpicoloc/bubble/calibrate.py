"""Calibrate bubbles on this machine, so that the probe's slowdown grows by the same amount at each level."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc import messages
from mpicoloc.bubble.calibration import SLOPE, BubbleSetting, Calibration
from mpicoloc.bubble.hogs import SILENCE, Bubble, Hog, take_turns
from mpicoloc.bubble.shutters import QUIET_FRAC, Progress, Turns, curve, rising, slowdowns, turn_paces
from mpicoloc.core.bubbles import LEVELS, MAX_LEVEL, Floats, SensitivityCurve
from mpicoloc.core.profile import Estimate
from mpicoloc.errors import MALFORMED, DataError, EnvironmentFault, UsageError
from mpicoloc.profile import hdf5, machine

FIRST_LINE = "mpicoloc bubble calibration 1"
_REMEDY = "run `mpicoloc bubble calibrate`"


def default_path() -> str:
    """Path of the calibration of this kind of machine, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    model, n_cpus = this_machine()
    name = re.sub(r"[^A-Za-z0-9]+", "-", model).strip("-") or "unknown"
    return os.path.join(cache, "mpicoloc", "bubbles", f"{name}-{n_cpus}-cpus.txt")


def this_machine() -> tuple[str, int]:
    """Model and number of this machine's processors."""
    facts = machine.node()
    return str(facts["cpu_model"]), int(facts["n_cpus"])


def write_file(calibration: Calibration, path: str) -> None:
    """Write a calibration atomically.

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
    """The text of a calibration's file."""
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


def read_file(path: str | None = None) -> Calibration:
    """The calibration in a file, by default the file of this kind of machine.

    Raises `UsageError` if the named file cannot be read. Raises `EnvironmentFault` if this machine was never
    calibrated. Raises `DataError` if the file is not a calibration, or belongs to another machine.
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
            f"calibration {chosen} is for another machine ({found.cpu_model}, {found.n_cpus} CPUs): {_REMEDY}"
        )
    return found


def parse(text: str, path: str) -> Calibration:
    """A calibration from the text of its file.

    Raises `DataError` if the text is not a calibration.
    """
    lines = text.splitlines()
    if not lines or lines[0] != FIRST_LINE:
        raise DataError(f"{path} is not a calibration of bubbles: {_REMEDY}")
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


TURN_S, GUARD_S = 0.06, 0.012
N_POSITIONS = 12
"""Number of points of the path that are measured in the first half of the calibration."""
SMALLEST_FRAC = 1 / 64
"""Ratio of the working set at the start of the path to that at its end."""
SLOWEST_FRAC = 0.02
"""Ratio of the rate of cache lines at the start of the path to that at its end."""
CACHES_OF_BUBBLE, CACHES_OF_PROBE = 2.0, 0.75
"""Largest working set of bubbles, and working set of the probe, in multiples of the last-level cache."""
SMALL_GAIN = 0.03
"""If the largest bubble slows the probe by less than this, the levels hardly differ, and a note says so."""
MOST_SPOILT_FRAC = 0.1
"""If other programs disturb a larger fraction of the turns than this, a note suggests a quieter machine."""
_WARM_S = 0.5
_DEFAULT_CACHE_BYTES = 32 << 20


@dataclass(frozen=True)
class Place:
    """Processors of the bubble and of the probe, and size of the last-level cache."""

    bubble_cpus: Sequence[int]
    probe_cpu: int
    cache_bytes: int


def last_cache_bytes(cpu: int) -> int:
    """Size of a processor's last-level cache; 32 MiB if the kernel does not report it."""
    sizes = []
    for i in range(8):
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/cache/index{i}/size") as file:
                text = file.read().strip()
        except OSError:
            break
        unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG")) * unit)
    return max(sizes, default=_DEFAULT_CACHE_BYTES)


def path(position: float, n_bytes: int, full_lines_per_s: float) -> BubbleSetting:
    """Setting at a position on the path, in (0, 1]: working set and rate grow exponentially with position."""
    return BubbleSetting(
        int(n_bytes * SMALLEST_FRAC ** (1 - position)), full_lines_per_s * SLOWEST_FRAC ** (1 - position)
    )


def positions_of_levels(positions: Floats, slowdown: Floats) -> Floats:
    """Positions of levels 1 to 8, chosen so that the slowdown grows by equal steps up to its largest value.

    Shapes: `positions` (n,), `slowdown` (n,), result (8,). If the largest bubble slows the probe by less than
    `SMALL_GAIN`, the result is evenly spaced, because such small differences are noise.
    """
    at, curve = np.concatenate([[0.0], positions]), rising(np.concatenate([[1.0], slowdown]))
    parts = np.array(LEVELS[1:]) / LEVELS[-1]
    gain = float(curve[-1]) - 1
    if gain < SMALL_GAIN:
        return parts
    # The result is at least half the first position, because the path starts above 0.
    return np.maximum(np.interp(1 + gain * parts, curve + SLOPE * at, at), positions[0] / 2)


def calibrate(place: Place, seconds: float, rng: np.random.Generator) -> Calibration:
    """Calibrate this machine.

    Raises `DataError` if there were too few quiet turns. Raises `EnvironmentFault` if memory or processors
    are not available.
    """
    n_bytes = int(CACHES_OF_BUBBLE * place.cache_bytes)
    probe = BubbleSetting(int(CACHES_OF_PROBE * place.cache_bytes), 0.0)
    with contextlib.closing(Bubble(place.bubble_cpus, n_bytes)) as bubble:
        full = _full_rate(bubble, n_bytes)
        positions = np.arange(1, N_POSITIONS + 1) / N_POSITIONS
        tried = [path(position, n_bytes, full) for position in positions]
        found, _ = _measure(bubble, tried, probe, place, seconds / 2, rng, "finding levels")
        chosen = positions_of_levels(positions, np.array([one.value for one in found.values()]))
        settings = [path(position, n_bytes, full) for position in chosen]
        settings[-1] = replace(settings[-1], lines_per_s=full)
        found, alone = _measure(bubble, settings, probe, place, seconds / 2, rng, "measuring levels")
    model, n_cpus = this_machine()
    rows = (SILENCE, *settings)
    _note_small_gain(found[MAX_LEVEL].value - 1)
    return Calibration(model, n_cpus, len(place.bubble_cpus), rows, probe, alone, _curve(found))


def _note_small_gain(gain: float) -> None:
    if gain < SMALL_GAIN:
        messages.note(
            f"the largest bubble slows the probe by only {max(0.0, gain):.1%}, so scores of programs "
            "will hardly differ: with --cores and --probe-core, choose processors that share a cache or "
            "memory, or calibrate on a quieter machine"
        )


def _full_rate(bubble: Bubble, n_bytes: int) -> float:
    """Cache lines per second that the largest bubble touches without a rate limit and without the probe."""
    bubble.set(BubbleSetting(n_bytes, 0.0))
    time.sleep(_WARM_S)
    rate = bubble.rate()
    bubble.set(SILENCE)
    return rate


def _measure(
    bubble: Bubble,
    settings: Sequence[BubbleSetting],
    probe: BubbleSetting,
    place: Place,
    seconds: float,
    rng: np.random.Generator,
    what: str,
) -> tuple[Mapping[float, Estimate], float]:
    """Slowdown of the probe beside each setting, by the setting's number from 1; the probe's pace alone."""
    with contextlib.closing(Hog(place.probe_cpu, probe.working_set_bytes)) as hog:
        hog.set(probe)
        time.sleep(_WARM_S)
        steps = [SILENCE, *settings]
        turns = take_turns(
            lambda i: bubble.set(steps[int(i)]),
            range(1, len(steps)),
            TURN_S,
            lambda: not hog.is_alive(),
            rng,
            seconds,
            what,
        )
        progress = hog.progress()
    return _slowdowns_of(progress, bubble.progress(), turns, len(settings)), _alone(progress, turns)


def _alone(probe: Progress, turns: Turns) -> float:
    """The probe's lines per second of processor time while the bubble rests."""
    pace, _ = turn_paces(probe, turns.without_beginnings(GUARD_S), QUIET_FRAC)
    pace = pace[(turns.level == 0) & ~np.isnan(pace)]
    if not len(pace):
        raise DataError("other programs kept the probe from its processor: calibrate on a quiet machine")
    return float(np.median(pace))


def _slowdowns_of(
    probe: Progress, bubble: Sequence[Progress], turns: Turns, n: int
) -> Mapping[float, Estimate]:
    inner = turns.without_beginnings(GUARD_S)
    spoilt = np.any([inner.disturbed(one) for one in bubble], axis=0)
    frac = float(spoilt.sum() / max(1, np.count_nonzero(turns.level)))
    if frac > MOST_SPOILT_FRAC:
        messages.note(
            f"other programs ran on the bubble's processors in {frac:.0%} of its turns, which are not used: "
            "calibrate again on a quiet machine"
        )
    by_number = slowdowns(probe, inner.without(spoilt), QUIET_FRAC, is_steady=True)
    if len(by_number) < n:
        raise DataError(
            "too few quiet turns to measure all levels: give more --seconds, or end other programs"
        )
    return by_number


def _curve(found: Mapping[float, Estimate]) -> SensitivityCurve:
    """The probe's curve. If the measured curve falls somewhere, it is corrected and a note is printed."""
    measured = curve("the probe", found)
    mended = rising(measured.slowdown)
    most = float(np.max(np.abs(mended - measured.slowdown)))
    if most > 0:
        messages.note(
            f"the probe's curve fell at some level: it was corrected by up to {most:.4f} so that it rises"
        )
    mended[0] = 1.0
    mended = np.maximum.accumulate(mended)
    low, high = np.minimum(measured.low, mended), np.maximum(measured.high, mended)
    return replace(measured, slowdown=mended, low=low, high=high)
