"""Runs of a program on several nodes with bubbles on some of them: real ones, and those of a replay.

Real runs are noted, so that a series can be resumed. In a replay computation on disturbed nodes takes as many
times longer as the curve of a single node says; who waits for whom, the replay finds out.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpicoloc.bubble.model import monotone
from mpicoloc.bubble.propagation import Profile
from mpicoloc.core.bubbles import SensitivityCurve, check_level
from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.job import sweep
from mpicoloc.job.launcher import Launcher, check_names, hydra, openmpi
from mpicoloc.replay.experiment import PlacedJob, simulate_alone, stretched
from mpicoloc.replay.network import SimulatedNetwork
from mpicoloc.replay.simulate import Settings


def replayed_profile(
    network: SimulatedNetwork, job: PlacedJob, curve: SensitivityCurve, settings: Settings | None = None
) -> Profile:
    """`profile(k, j)` of the propagation algorithms, by replay: no run of the program at all.

    Parameters
    ----------
    network : SimulatedNetwork
    job : PlacedJob
        The program on its nodes, which are the hosts of the network.
    curve : SensitivityCurve
        What computation suffers on one node.
    settings : Settings, optional

    Returns
    -------
    Profile
        Simulated time, s.
    """
    risen, _ = monotone(curve)

    def profile(level: int, n_disturbed: int) -> float:
        disturbed = stretched(job, n_disturbed, risen.at(level).value)
        return simulate_alone(network, disturbed, settings).jobs[0].end_s

    return profile


def replayed_uneven(
    network: SimulatedNetwork, job: PlacedJob, curve: SensitivityCurve, settings: Settings | None = None
) -> Callable[[Sequence[float]], float]:
    """Slowdown of the job while bubbles of different levels run on its nodes, by replay.

    Returns
    -------
    callable
        Takes the level on each node of the job, in the order of the hosts' numbers.

    Raises
    ------
    DataError
        By the callable, if there are not as many levels as nodes.
    """
    risen, _ = monotone(curve)
    hosts, number_of_rank = np.unique(job.hosts, return_inverse=True)
    alone_s = simulate_alone(network, job, settings).jobs[0].end_s

    def slowdown(levels: Sequence[float]) -> float:
        if len(levels) != len(hosts):
            raise DataError(f"job {job.name} has {len(hosts)} nodes, got {len(levels)} levels")
        factors = np.array([risen.at(level).value for level in levels])
        disturbed = replace(job, compute_factor=factors[number_of_rank])
        return simulate_alone(network, disturbed, settings).jobs[0].end_s / alone_s

    return slowdown


END_WITHIN_S = 10.0
"""Bubbles that were told to end and still run are killed after this."""
BubbleCommand = Callable[[float], Sequence[str]]
"""The command of a bubble of a level, which runs until it is ended."""


def bubble_command(level: float, cores: str = "", calibration: str = "") -> list[str]:
    """`mpicoloc bubble run` of this installation; empty: processors and calibration of its own choice."""
    words = [sys.executable, "-m", "mpicoloc", "bubble", "run", "--level", f"{level:g}"]
    given = {"--cores": cores, "--calibration": calibration}
    return [*words, *(word for flag, value in given.items() if value for word in (flag, value))]


class BubbledNodes:
    """Runs on real nodes: a bubble of its own level on each of them while the program runs.

    Parameters
    ----------
    launcher : Launcher
        The mpirun of the program; it starts the bubbles as well, one on each node.
    hosts : sequence of str
        Names of the nodes, of an allocation or of any host file.
    app : sequence of str
        The program and its arguments.
    n_ranks : int
        Ranks on each node.
    bubble : callable
        Command of a bubble of a level.
    mpirun_args : sequence of str
        More for the launcher of the program.
    settle_s : float
        How long bubbles run before the program begins, s: they have to start on their nodes and touch all of
        their memory.
    limit_s : float
        Longest time of one run, s.

    Raises
    ------
    UsageError
        If there are no hosts or ranks.
    """

    def __init__(
        self,
        launcher: Launcher,
        hosts: Sequence[str],
        app: Sequence[str],
        n_ranks: int,
        bubble: BubbleCommand = bubble_command,
        mpirun_args: Sequence[str] = (),
        settle_s: float = 10.0,
        limit_s: float = 3600.0,
    ) -> None:
        if not hosts or n_ranks < 1 or not app:
            raise UsageError(f"bubbled runs need hosts, ranks and a program, got {len(hosts)} and {n_ranks}")
        check_names(hosts, "host")
        self._launcher, self._hosts, self._app = launcher, list(hosts), list(app)
        self._n_ranks, self._bubble, self._mpirun_args = n_ranks, bubble, list(mpirun_args)
        self._settle_s, self._limit_s = settle_s, limit_s

    def time_s(self, levels: Sequence[float]) -> float:
        """Time of the program with a bubble of its own level on each node, 0 for none, s.

        Raises `DataError` if there are not as many levels as nodes, or one is none. Raises `EnvironmentFault`
        if the program fails, takes too long, or a bubble ends before it.
        """
        if len(levels) != len(self._hosts):
            raise DataError(f"there are {len(self._hosts)} nodes, got {len(levels)} levels")
        with (
            tempfile.TemporaryDirectory(prefix="mpicoloc-bubbled-") as folder,
            contextlib.ExitStack() as stack,
        ):
            bubbles = [
                stack.enter_context(self._bubbles(folder, level, levels))
                for level in sorted({check_level(level) for level in levels} - {0.0})
            ]
            if bubbles:
                time.sleep(self._settle_s)
                _check_running(bubbles)
            taken_s = self._run(folder)
            _check_running(bubbles)
            return taken_s

    def _words(self, folder: str, name: str, hosts: Sequence[str], n_ranks: int) -> list[str]:
        """The launcher's command up to the program, with a host file of its family."""
        path = os.path.join(folder, name)
        is_open = self._launcher.family == "openmpi"
        with open(path, "w", encoding="utf-8") as file:
            file.write((openmpi if is_open else hydra)(hosts, n_ranks))
        return [
            self._launcher.path,
            "--hostfile" if is_open else "-f",
            path,
            "-n",
            str(len(hosts) * n_ranks),
        ]

    @contextlib.contextmanager
    def _bubbles(
        self, folder: str, level: float, levels: Sequence[float]
    ) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        """Bubbles of one level on their nodes until the end of the block, and the file of their errors."""
        hosts = [host for host, own in zip(self._hosts, levels, strict=True) if own == level]
        # Else Open MPI would bind it to the first core, which is the program's.
        unbound = ["--bind-to", "none"] if self._launcher.family == "openmpi" else []
        words = [*self._words(folder, f"bubbles-{level:g}", hosts, 1), *unbound, *self._bubble(level)]
        path = os.path.join(folder, f"errors-{level:g}")
        with open(path, "w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        try:
            yield process, path
        finally:
            _end(process)

    def _run(self, folder: str) -> float:
        words = [*self._words(folder, "program", self._hosts, self._n_ranks), *self._mpirun_args, *self._app]
        began_s = time.monotonic()
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            code = process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            raise EnvironmentFault(
                f"{self._app[0]} took longer than {self._limit_s:g} s: give a shorter input, or a larger "
                "--limit-s"
            ) from None
        finally:
            _end(process)
        if code:
            raise EnvironmentFault(f"{self._app[0]} ended with code {code}: run it by hand first")
        return time.monotonic() - began_s


def _check_running(bubbles: Sequence[tuple[subprocess.Popen[bytes], str]]) -> None:
    """Refuse to go on without one; each has a file of what it and its launcher say."""
    for process, path in bubbles:
        if process.poll() is not None:
            with open(path, encoding="utf-8", errors="replace") as file:
                said = [line.strip() for line in file if "mpicoloc: " in line]
            reason = said[-1].partition("mpicoloc: ")[2] if said else "try `mpicoloc bubble run` on each node"
            raise EnvironmentFault(f"a bubble ended before the program: {reason}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher with all that it started: it ends its ranks on other nodes when it is asked to."""
    for number, patience_s in ((signal.SIGTERM, END_WITHIN_S), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)


TimeOf = Callable[[Sequence[float]], float]
"""Time of a run with bubbles of these levels on the nodes, s."""


def resumable(time_s: TimeOf, path: str, settings: Mapping[str, Any]) -> TimeOf:
    """The same runs, each noted in a file; those that it has are not made again.

    Result: the n-th run with some levels has the n-th noted time of these. Raises `DataError` if the file has
    something else than such rows. Raises `EnvironmentFault` if it cannot be written.
    """
    rows = sweep.recover(path)
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror}; name another file") from error
    n_runs: Counter[tuple[float, ...]] = Counter()

    def noted_time_s(levels: Sequence[float]) -> float:
        own = tuple(map(float, levels))
        n_runs[own] += 1
        key = json.dumps([settings, own, n_runs[own]], sort_keys=True)
        if key not in rows:
            rows[key] = {"key": key, "seconds": time_s(levels)}
            sweep.append(path, rows[key])
        seconds = rows[key].get("seconds")
        if not isinstance(seconds, float):
            raise DataError(f"{path}: no seconds in the row {key}: remove that line to make the run again")
        return seconds

    return noted_time_s
