"""What a campaign runs: the file that names its programs, and the order of its experiments."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpicoloc.errors import DataError, UsageError

LIMIT_S = 3600.0
"""Longest time of a run unless the file says otherwise."""
MAX_PROGRAMS = 1000
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
"""Which processors are hardware threads of one core."""


@dataclass(frozen=True)
class Program:
    """One program of a campaign.

    `argv` is the application if `n_ranks` is given, else what starts the whole job, with mpicoloc in it.
    The files of `folder` are copied into the working directory of each run.
    """

    name: str
    argv: tuple[str, ...]
    n_ranks: int | None = None
    folder: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    mpirun_args: tuple[str, ...] = ()
    limit_s: float = LIMIT_S


@dataclass(frozen=True)
class Campaign:
    """Programs by name, how often each experiment is made, and the processors of the two places."""

    programs: Mapping[str, Program]
    rounds: int
    places: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, order=True)
class Experiment:
    """One program alone, or two at the same time; the first on the first place."""

    i_round: int
    names: tuple[str, ...] = field(default=())

    @property
    def kind(self) -> str:
        """``solo`` or ``pair``."""
        return "solo" if len(self.names) == 1 else "pair"


def read(path: str) -> Campaign:
    """The campaign that a TOML file describes.

    Raises `UsageError` if there is no such file. Raises `DataError` if it is not TOML, or says what no
    campaign has.
    """
    try:
        with open(path, "rb") as file:
            told = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is no TOML: {error}") from None
    known = {"rounds", "places", "programs"}
    if unknown := sorted(set(told) - known):
        raise DataError(f"{path}: unknown key {unknown[0]!r}; there are {', '.join(sorted(known))}")
    tables = told.get("programs")
    if not isinstance(tables, dict) or not 0 < len(tables) <= MAX_PROGRAMS:
        raise DataError(f"{path}: needs 1 to {MAX_PROGRAMS} tables [programs.NAME]")
    base = os.path.dirname(os.path.abspath(path))
    programs = {name: _program(path, base, name, table) for name, table in tables.items()}
    rounds = _checked(path, "rounds", told.get("rounds", 4), int)
    if rounds < 2:
        raise DataError(f"{path}: rounds must be at least 2, to measure how far runs scatter")
    return Campaign(programs, rounds, _places(path, told.get("places")))


def _checked(path: str, what: str, value: object, kind: type, of: type | None = None) -> Any:
    is_right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    if is_right and of is not None:
        items = value.values() if isinstance(value, dict) else value
        is_right = all(isinstance(item, of) for item in items)  # type: ignore[attr-defined]
    if not is_right:
        wanted = {int: "a whole number", str: "a text", list: "a list", dict: "a table", float: "a number"}
        inner = f" of {of.__name__}" if of else ""
        raise DataError(f"{path}: {what} must be {wanted[kind]}{inner}, got {value!r}")
    return value


def _program(path: str, base: str, name: str, table: object) -> Program:
    told = dict(_checked(path, f"programs.{name}", table, dict))
    what = f"programs.{name}"
    if not name or "/" in name or name.startswith("."):
        raise DataError(f"{path}: {what}: a name becomes part of file names, so without / and leading dot")
    command = told.pop("command", None)
    argv = shlex.split(command) if isinstance(command, str) else command
    if not argv or not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        raise DataError(f"{path}: {what}.command must be a text or a list of words, got {command!r}")
    if "/" in argv[0]:
        argv[0] = os.path.normpath(os.path.join(base, argv[0]))
    n_ranks = told.pop("n_ranks", None)
    if n_ranks is not None and _checked(path, f"{what}.n_ranks", n_ranks, int) < 1:
        raise DataError(f"{path}: {what}.n_ranks must be at least 1, got {n_ranks}")
    folder = told.pop("folder", None)
    if folder is not None:
        folder = os.path.join(base, _checked(path, f"{what}.folder", folder, str))
        if not os.path.isdir(folder):
            raise DataError(f"{path}: {what}.folder: there is no folder {folder}")
    env = _checked(path, f"{what}.env", told.pop("env", {}), dict, str)
    args = _checked(path, f"{what}.mpirun_args", told.pop("mpirun_args", []), list, str)
    limit_s = float(_checked(path, f"{what}.limit_s", told.pop("limit_s", int(LIMIT_S)), int))
    if told:
        raise DataError(f"{path}: {what} has an unknown key {min(told)!r}")
    return Program(name, tuple(argv), n_ranks, folder, tuple(sorted(env.items())), tuple(args), limit_s)


def _places(path: str, told: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    usable = sorted(os.sched_getaffinity(0))
    if told is None:
        return halves(usable)
    lists = _checked(path, "places", told, list, list)
    if len(lists) != 2 or not all(lists):
        raise DataError(f"{path}: places must be two lists of processors, got {told!r}")
    for cpu in itertools.chain(*lists):
        if _checked(path, "places", cpu, int) not in usable:
            raise DataError(f"{path}: places: processor {cpu} is none of {usable}, those of this process")
    return tuple(lists[0]), tuple(lists[1])


def halves(cpus: Sequence[int], siblings: str = SIBLINGS) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two places that have no core in common, as far as there are two cores; of one processor the same
    twice.
    """
    cores: dict[object, list[int]] = {}
    for cpu in cpus:
        key: object = cpu
        with contextlib.suppress(OSError), open(siblings.format(cpu), encoding="ascii") as file:
            key = file.read()
        cores.setdefault(key, []).append(cpu)
    parts = list(cores.values()) if len(cores) > 1 else [[cpu] for cpu in cpus]
    half = (len(parts) + 1) // 2
    first, second = (tuple(sorted(itertools.chain(*some))) for some in (parts[:half], parts[half:]))
    return first, second or first


def experiments(
    campaign: Campaign, names: Sequence[str], n_pairs: int | None, rng: np.random.Generator
) -> list[Experiment]:
    """Every experiment of a campaign, round after round, in random order within each.

    The order is random so that what drifts with time, on a machine that warms up or that others use, is not
    taken for the effect of one program. Of each pair both slowdowns come from one experiment (Zacarias et
    al. 2021, section 3.2, runs one for each of them).

    Raises `UsageError` if a name is unknown.
    """
    for name in names:
        if name not in campaign.programs:
            raise UsageError(f"no program {name!r} in the campaign; there are {', '.join(campaign.programs)}")
    pairs = list(itertools.combinations_with_replacement(names, 2))
    if n_pairs is not None and n_pairs < len(pairs):
        pairs = [pairs[i] for i in sorted(rng.choice(len(pairs), n_pairs, replace=False))]
    result = []
    for i_round in range(campaign.rounds):
        wanted: list[tuple[str, ...]] = [(name,) for name in names]
        # A place may be better than the other one.
        wanted += [pair if i_round % 2 == 0 else pair[::-1] for pair in pairs]
        result += [Experiment(i_round, wanted[i]) for i in rng.permutation(len(wanted))]
    return result
