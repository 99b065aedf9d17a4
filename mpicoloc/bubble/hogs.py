"""Bubbles and the probe as processes: `mpicoloc-bubble`, controlled through its standard input."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mpicoloc.bubble.calibration import BubbleSetting
from mpicoloc.bubble.shutters import Progress, Turns
from mpicoloc.core.progress import stage
from mpicoloc.errors import EnvironmentFault
from mpicoloc.pmpi import paths

JITTER_FRAC = 0.3
"""Each turn is prolonged by a random fraction up to this, so that turns do not align with program steps."""


def take_turns(
    apply: Callable[[float], None],
    levels: Sequence[float],
    turn_s: float,
    is_over: Callable[[], bool],
    rng: np.random.Generator,
    seconds: float,
    what: str,
) -> Turns:
    """Apply all levels repeatedly, in a new random order each time, with a rest (level 0) before each level.

    The result lacks the turn in which `is_over` became true.
    """
    rows: list[tuple[float, float, float]] = []
    begin_s = time.monotonic()
    known = seconds if np.isfinite(seconds) else None
    with stage(what, known, "s") as advance:
        for level in _order(levels, rng):
            apply(level)
            start_s = time.monotonic()
            time.sleep(turn_s * (1 + rng.uniform(0, JITTER_FRAC)))
            end_s = time.monotonic()
            if is_over():
                break
            rows.append((start_s, end_s, level))
            advance(end_s - start_s)
            if level == 0 and end_s > begin_s + seconds:
                break
    return Turns(*np.array(rows, float).reshape(-1, 3).T)


def _order(levels: Sequence[float], rng: np.random.Generator) -> Iterator[float]:
    while True:
        for level in rng.permutation(np.array(levels, float)):
            yield 0.0
            yield float(level)


SILENCE = BubbleSetting(0, 0.0)
_START_LIMIT_S = 60.0
_LOOK_S = 0.002
_END_LIMIT_S = 2.0


def program() -> str:
    """Path of the memory hog's executable.

    Raises `EnvironmentFault` if the file does not exist.
    """
    path = os.path.join(paths.lib_dir(), paths.BUBBLE)
    if not os.path.exists(path):
        raise EnvironmentFault(f"{path} does not exist: install mpicoloc again")
    return path


class Hog:
    """A memory hog: a process on one processor. It ends with its parent process, even if that is killed.

    Without `is_reporting` the hog reports only that it has started, so `progress` has no data.
    """

    def __init__(self, cpu: int, n_bytes: int, *, is_reporting: bool = True) -> None:
        self._reports = tempfile.TemporaryFile()  # noqa: SIM115 (until close)
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (until close)
        command = [program(), "--cpus", str(cpu), "--bytes", str(max(1, n_bytes)), "--listen"]
        command.append("--report" if is_reporting else "--report-once")
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=self._reports, stderr=self._complaints
            )
        except OSError as error:
            raise EnvironmentFault(f"{command[0]} cannot be started: {error.strerror}") from None
        try:
            self._await_first_report()
        except BaseException:
            self.close()
            raise

    def _await_first_report(self) -> None:
        """Wait for the first report, which the hog writes when its memory is allocated."""
        end_s = time.monotonic() + _START_LIMIT_S
        while os.fstat(self._reports.fileno()).st_size == 0:
            if self._process.poll() is not None or time.monotonic() > end_s:
                raise EnvironmentFault(self._complaint())
            time.sleep(_LOOK_S)

    def _complaint(self) -> str:
        words = _content(self._complaints.fileno()).decode(errors="replace").strip().splitlines()
        own = words[-1].removeprefix("mpicoloc-bubble: ") if words else ""
        if self._process.poll() is None:
            return own or f"mpicoloc-bubble did not start within {_START_LIMIT_S:g} s: end other programs"
        return own or f"mpicoloc-bubble ended with {self._process.poll()}"

    def set(self, setting: BubbleSetting) -> None:
        """Change the bubble's setting, within 5 ms.

        Raises `EnvironmentFault` if another process has killed the bubble.
        """
        line = f"{setting.working_set_bytes} {setting.lines_per_s!r}\n"
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError:
            raise EnvironmentFault(f"another process ended a bubble: {self._complaint()}") from None

    def progress(self) -> Progress:
        """Cache lines touched and processor time used at each report."""
        whole = _content(self._reports.fileno()).rpartition(b"\n")[0]
        rows = np.array(whole.split(), np.float64).reshape(-1, 3)
        return Progress(rows[:, 0] / 1e9, rows[:, 2], rows[:, 1] / 1e9)

    def is_alive(self) -> bool:
        """Whether the hog is still running."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reports.close()
        self._complaints.close()


def _content(file: int) -> bytes:
    """The content of a file that a child is writing. Reading must not move the offset, which both share."""
    return os.pread(file, os.fstat(file).st_size, 0)


class Bubble:
    """A bubble: a hog on each processor, with equal shares, until it is closed. It is silent at first."""

    def __init__(self, cpus: Sequence[int], n_bytes: int, *, is_reporting: bool = True) -> None:
        self._hogs: list[Hog] = []
        try:
            for cpu in cpus:
                self._hogs.append(Hog(cpu, -(-n_bytes // len(cpus)), is_reporting=is_reporting))
        except BaseException:
            self.close()
            raise

    def set(self, setting: BubbleSetting) -> None:
        """Change the setting of the whole bubble, of which each hog takes an equal share."""
        n = len(self._hogs)
        share = BubbleSetting(setting.working_set_bytes // n, setting.lines_per_s / n)
        for hog in self._hogs:
            hog.set(share)

    def progress(self) -> list[Progress]:
        """Progress of the hog on each processor."""
        return [hog.progress() for hog in self._hogs]

    def rate(self) -> float:
        """Cache lines per second that the bubble touched in the last tenth of a second."""
        total = 0.0
        for hog in self._hogs:
            done = hog.progress()
            last = done.time_s[-1]
            total += (done.work[-1] - np.interp(last - 0.1, done.time_s, done.work)) / 0.1
        return float(total)

    def is_alive(self) -> bool:
        """Whether all hogs are still running."""
        return all(hog.is_alive() for hog in self._hogs)

    def close(self) -> None:
        """End it."""
        for hog in self._hogs:
            hog.close()
