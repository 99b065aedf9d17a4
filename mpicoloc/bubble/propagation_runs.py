"""Real and replayed runs of a program on several nodes, with bubbles on some of them.

Real runs are recorded in a file, so that a series of runs can be resumed. A replay multiplies the time of
computation on disturbed nodes by the slowdown from the curve of a single node, and simulates the waiting that
this causes. This module has the actions of `mpicoloc bubble propagation` and `mpicoloc replay --propagation`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mpicoloc import messages
from mpicoloc.bubble import curves_file, propagation
from mpicoloc.bubble.model import monotone
from mpicoloc.bubble.propagation import PolicyChoice, Profile
from mpicoloc.bubble.propagation_verb import UNEVEN_RUNS
from mpicoloc.cli import arguments
from mpicoloc.core import progress
from mpicoloc.core.bubbles import LEVELS, PropagationMatrix, SensitivityCurve, check_level
from mpicoloc.core.number_lists import parse_cpus
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, EnvironmentFault, UsageError, printable
from mpicoloc.job import flags, launcher as job_launcher, sweep, target
from mpicoloc.job.launcher import Launcher, check_names, hydra, openmpi
from mpicoloc.network.topology import hostlist
from mpicoloc.replay import scene as scenes
from mpicoloc.replay.experiment import PlacedJob, simulate_alone, stretched
from mpicoloc.replay.network import SimulatedNetwork
from mpicoloc.replay.simulate import Settings
from mpicoloc.show.table import Listing, console


def replayed_profile(
    network: SimulatedNetwork, job: PlacedJob, curve: SensitivityCurve, settings: Settings | None = None
) -> Profile:
    """`profile(k, j)` of the propagation algorithms, by replay, so that the program itself need not run.

    Parameters
    ----------
    network : SimulatedNetwork
    job : PlacedJob
        The program on its nodes, which are the hosts of the network.
    curve : SensitivityCurve
        Slowdown of computation on one node.
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
    """Slowdown of the job with bubbles of different levels on its nodes, by replay.

    Returns
    -------
    callable
        Takes the level on each node of the job, in the order of the hosts' numbers.

    Raises
    ------
    DataError
        Raised by the callable if the numbers of levels and nodes differ.
    """
    risen, _ = monotone(curve)
    hosts, number_of_rank = np.unique(job.hosts, return_inverse=True)
    alone_s = simulate_alone(network, job, settings).jobs[0].end_s

    def slowdown(levels: Sequence[float]) -> float:
        if len(levels) != len(hosts):
            raise DataError(f"job {job.name} has {len(hosts)} nodes, but got {len(levels)} levels")
        factors = np.array([risen.at(level).value for level in levels])
        disturbed = replace(job, compute_factor=factors[number_of_rank])
        return simulate_alone(network, disturbed, settings).jobs[0].end_s / alone_s

    return slowdown


END_WITHIN_S = 10.0
"""Grace period between SIGTERM and SIGKILL, s."""
BubbleCommand = Callable[[float], Sequence[str]]
"""Maps a level to the command of a bubble that runs until it gets a signal."""


def bubble_command(level: float, cores: str = "", calibration: str = "") -> list[str]:
    """Command line of `mpicoloc bubble run`. If `cores` or `calibration` is empty, its default applies."""
    words = [sys.executable, "-m", "mpicoloc", "bubble", "run", "--level", f"{level:g}"]
    given = {"--cores": cores, "--calibration": calibration}
    return [*words, *(word for flag, value in given.items() if value for word in (flag, value))]


class BubbledNodes:
    """Runs on real nodes, each with a bubble of its own level while the program runs.

    Parameters
    ----------
    launcher : Launcher
        The mpirun of the program. It also starts the bubbles, one on each node.
    hosts : sequence of str
        Names of the nodes, from an allocation or a host file.
    app : sequence of str
        The program and its arguments.
    n_ranks : int
        Ranks on each node.
    bubble : callable
        Maps a level to the command of its bubble.
    mpirun_args : sequence of str
        Further arguments for the launcher of the program.
    settle_s : float
        Time from the start of the bubbles to the start of the program, s. In this time the bubbles must start
        on their nodes and touch all of their memory.
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
            raise UsageError(
                f"runs with bubbles need hosts, ranks, a program; got {len(hosts)} and {n_ranks}"
            )
        check_names(hosts, "host")
        self._launcher, self._hosts, self._app = launcher, list(hosts), list(app)
        self._n_ranks, self._bubble, self._mpirun_args = n_ranks, bubble, list(mpirun_args)
        self._settle_s, self._limit_s = settle_s, limit_s

    def time_s(self, levels: Sequence[float]) -> float:
        """Time of the program with these levels of bubbles on the nodes (0: no bubble), s.

        Raises `DataError` if the numbers of levels and nodes differ, or a level is invalid. Raises
        `EnvironmentFault` if the program fails or takes too long, or a bubble ends before the program.
        """
        if len(levels) != len(self._hosts):
            raise DataError(f"there are {len(self._hosts)} nodes, but got {len(levels)} levels")
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
        """The launcher's command up to the program. Writes a host file in the format of its MPI family."""
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
        """Run the bubbles of one level until the block ends. Yields their launcher and its error file."""
        hosts = [host for host, own in zip(self._hosts, levels, strict=True) if own == level]
        # Otherwise Open MPI would bind the bubble to the first core, which the program uses.
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
                f"{self._app[0]} took longer than {self._limit_s:g} s: give a smaller input, or a larger "
                "--limit-s"
            ) from None
        finally:
            _end(process)
        if code:
            raise EnvironmentFault(f"{self._app[0]} ended with code {code}: run it by hand first")
        return time.monotonic() - began_s


def _check_running(bubbles: Sequence[tuple[subprocess.Popen[bytes], str]]) -> None:
    """Raise an error if a bubble has ended, with the reason from its error file."""
    for process, path in bubbles:
        if process.poll() is not None:
            with open(path, encoding="utf-8", errors="replace") as file:
                said = [line.strip() for line in file if "mpicoloc: " in line]
            reason = said[-1].partition("mpicoloc: ")[2] if said else "try `mpicoloc bubble run` on each node"
            raise EnvironmentFault(f"a bubble ended before the program: {reason}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher and its processes. Send SIGTERM first, because it makes launchers end remote ranks."""
    for number, patience_s in ((signal.SIGTERM, END_WITHIN_S), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)


TimeOf = Callable[[Sequence[float]], float]
"""Maps the levels of bubbles on the nodes to the time of a run, s."""


def resumable(time_s: TimeOf, path: str, settings: Mapping[str, Any]) -> TimeOf:
    """Record the time of each run in a file, and reuse recorded times instead of repeating runs.

    The n-th call with the same levels returns the n-th time that is recorded for these levels. Raises
    `DataError` if a row of the file is malformed. Raises `EnvironmentFault` if the file cannot be written.
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
            raise DataError(f"{path}: row {key} has no seconds: remove that row to repeat the run")
        return seconds

    return noted_time_s


def _matrix_json(name: str, matrix: PropagationMatrix, choice: PolicyChoice | None) -> dict[str, Any]:
    """The matrix for JSON: a row for each level, from 1 node on. Policy None: none was determined."""
    return {
        "program": name,
        "n_nodes": matrix.n_nodes,
        "levels": list(range(1, matrix.n_pressures + 1)),
        "slowdown": matrix.times[:, 1:].tolist(),
        "is_measured": matrix.is_measured[:, 1:].tolist(),
        "cost_frac": matrix.cost_frac,
        "policy": None if choice is None else dataclasses.asdict(choice),
    }


def _show_matrix(name: str, matrix: PropagationMatrix, choice: PolicyChoice | None) -> None:
    """Print a row for each level. Measured entries are marked with a star."""
    nodes = range(1, matrix.n_nodes + 1)
    table = Listing(None, ("level", *(f"{n} disturbed" if n == 1 else str(n) for n in nodes)))
    for i, (times, is_measured) in enumerate(zip(matrix.times, matrix.is_measured, strict=True)):
        cells = (f"{times[n]:.3f}{'*' if is_measured[n] else ' '}" for n in nodes)
        table.add_row(str(i + 1), *cells)
    out = console()
    out.print(table)
    n_run = 1 + int(matrix.is_measured[:, 1:].sum())
    words = f"{printable(name)}: slowdown by level and disturbed nodes; * {counted(n_run, 'run')}, "
    out.print(f"{words}{100 * matrix.cost_frac:.0f} % of all", soft_wrap=not out.is_terminal, markup=False)
    if choice is not None:
        out.print(_policy(choice), soft_wrap=not out.is_terminal, markup=False)


def _policy(choice: PolicyChoice) -> str:
    errors = ", ".join(f"{policy} {100 * error:.1f} %" for policy, error in choice.error.items())
    more = "" if choice.is_stable else ", not stable yet: more --uneven-runs can give another"
    return f"policy {choice.policy} after {counted(choice.n_samples, 'uneven run')}{more}; errors: {errors}"


Uneven = Callable[[Sequence[float]], float]
"""Maps the levels of bubbles on the nodes to the slowdown of the program."""


def _check_matrix_flags(args: argparse.Namespace) -> None:
    """Check flags and files before long runs."""
    if args.profiling not in (None, *propagation.METHODS):
        raise UsageError(
            f"--profiling must be one of {', '.join(propagation.METHODS)}, got {args.profiling!r}"
        )
    for flag in ("propagation", "curves"):
        path = getattr(args, flag)
        if path is not None and not os.access(os.path.dirname(path) or ".", os.W_OK):
            raise UsageError(f"--{flag} {path}: its folder is missing or read-only: make it, or name another")
    curves_file.check_update_matrices(args.propagation)
    curves_file.check_update(args.curves)


def _fill_matrix(
    args: argparse.Namespace,
    name: str,
    n_nodes: int,
    profile: Profile,
    uneven_slowdown: Uneven,
    rng: np.random.Generator,
) -> int:
    """Fill the matrix, find the policy, print both, and write them to the files."""
    method = args.profiling or propagation.METHODS[0]
    threshold = args.threshold or propagation.THRESHOLD
    matrix = propagation.fill(method, profile, args.max_level or len(LEVELS) - 1, n_nodes, rng, threshold)
    max_runs = UNEVEN_RUNS if args.uneven_runs is None else args.uneven_runs
    if args.propagation is not None:
        curves_file.update_matrices(args.propagation, name, matrix)
    choice: PolicyChoice | None = None
    if n_nodes > 1 and max_runs:
        choice = propagation.choose_by_runs(matrix, uneven_slowdown, rng, max_runs)
    if args.json:
        print(json.dumps(_matrix_json(name, matrix, choice), indent=2, allow_nan=False))
    else:
        _show_matrix(name, matrix, choice)
    sys.stdout.flush()
    if choice is None or args.curves is None:
        return 0
    if not curves_file.update(args.curves, name, policy=choice.policy):
        messages.note(
            f"{args.curves} lacks the curve or score of {name} that `place` needs: run `mpicoloc bubble "
            "sensitivity` and `score`, too"
        )
    return 0


_OF_REPLAY = (
    "out", "perfetto", "paraver", "window_s", "figures", "format", "against", "stretch", "sweep",
    "processes", "no_base",
)  # fmt: skip
"""Flags for results that `--propagation` does not produce."""
N_ALONE = 3
"""Least number of runs without bubbles."""


@arguments.bounded
def run_replay(args: argparse.Namespace) -> int:
    """Replay the job for each setting that the matrix needs."""
    for flag in _OF_REPLAY:
        if getattr(args, flag):
            raise UsageError(
                f"--{flag.replace('_', '-')} does not go with --propagation: leave one of them out"
            )
    if args.curves is None:
        raise UsageError("--propagation needs the program's curve on one node: give --curves FILE")
    if (n_jobs := scenes.count_jobs(args)) != 1:
        raise UsageError(f"--propagation takes one job, got {n_jobs}: give one trace")
    _check_matrix_flags(args)
    scene = scenes.scene_of(args)
    for note in scene.notes:
        messages.note(note)
    job = scene.jobs[0]
    name = args.name or job.name
    curve = curves_file.curve_of(args.curves, name)
    profile = replayed_profile(scene.network, job, curve, scene.settings)
    uneven = replayed_uneven(scene.network, job, curve, scene.settings)
    return _fill_matrix(args, name, job.n_hosts, profile, uneven, np.random.default_rng(args.random_state))


def run_on_nodes(args: argparse.Namespace) -> int:
    """Run the program for each setting that the matrix needs."""
    app = flags.application(
        args.app, "application", "mpicoloc bubble propagation --hosts LIST [--] app [arguments]"
    )
    hosts = hostlist.expand(args.hosts, "--hosts")
    if twice := next((host for host in hosts if hosts.count(host) > 1), None):
        raise UsageError(f"--hosts names {twice} twice: give each node once")
    rng = np.random.default_rng(args.seed)
    if args.cores is not None and not parse_cpus(args.cores):
        raise UsageError(f"--cores must be a list of processors such as 0-3,8, got {args.cores!r}")
    _check_matrix_flags(args)

    bubble = partial(bubble_command, cores=args.cores or "", calibration=args.calibration or "")
    launcher, n_repeats = _launcher(args, app), args.repeats
    nodes = BubbledNodes(
        launcher, hosts, app, args.ranks_per_node, bubble, args.mpirun_arg, args.settle_s, args.limit_s
    )
    one_run = _resumable(args, app, hosts, nodes.time_s)
    time_s = _median_of_runs(one_run, n_repeats)
    with progress.stage("running the program", unit="runs"):
        # All slowdowns are divided by this time, so it is the median of more runs.
        alone_s = _median_of_runs(one_run, max(N_ALONE, n_repeats))([0] * len(hosts))

        def profile(level: int, n_disturbed: int) -> float:
            if not n_disturbed:
                return alone_s
            return time_s([level] * n_disturbed + [0] * (len(hosts) - n_disturbed))

        name = args.name or os.path.basename(app[0])
        return _fill_matrix(args, name, len(hosts), profile, lambda levels: time_s(levels) / alone_s, rng)


def _resumable(args: argparse.Namespace, app: Sequence[str], hosts: Sequence[str], time_s: TimeOf) -> TimeOf:
    """The function `time_s`. If `--runs` names a file, the function records its runs there."""
    if args.runs is None:
        return time_s

    settings = {name: getattr(args, name) for name in ("mpirun", "mpirun_arg", "cores")}
    settings |= {"program": list(app), "hosts": list(hosts), "calibration": _content_of(args.calibration)}
    return resumable(time_s, args.runs, settings | {"ranks_per_node": str(args.ranks_per_node)})


def _content_of(path: str | None) -> str | None:
    """A digest of the file, or its name if it cannot be read here, as it may exist only on the nodes."""
    try:
        with open(path or "", "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return path


def _median_of_runs(time_s: TimeOf, n_repeats: int) -> TimeOf:
    """A function that returns the median time of `n_repeats` runs. With -v, each run is shown."""

    def median_s(levels: Sequence[float]) -> float:
        found = []
        for _ in range(n_repeats):
            found.append(time_s(levels))
            progress.count("runs", 1)
            messages.detail(f"levels {' '.join(f'{level:g}' for level in levels)}: {found[-1]:.2f} s")
        return statistics.median(found)

    return median_s


def _launcher(args: argparse.Namespace, app: Sequence[str]) -> Launcher:
    """The mpirun that `--mpirun` names, else the one of the program's MPI library."""
    if args.mpirun:
        chosen = job_launcher.given(args.mpirun)
    else:
        found = target.find(app, os.environ)
        chosen = job_launcher.find(found.abi, found.libmpi, found.file)
    if chosen.family != "openmpi" and not args.mpirun_arg:
        messages.note(
            "this mpirun does not bind ranks, so bubbles may take their processors: give "
            "--mpirun-arg=-bind-to --mpirun-arg=core, or bind the ranks in another way"
        )
    return chosen
