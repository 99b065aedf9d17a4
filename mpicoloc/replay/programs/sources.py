"""Sources of jobs to replay: mpicoloc's profiles, and traces of other programs."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from mpicoloc.core.profile import Array
from mpicoloc.core.progress import steps
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network.traffic.collective import Library
from mpicoloc.network.traffic.mpich import MPICH
from mpicoloc.replay.programs import goal, simgrid_ti
from mpicoloc.replay.programs.builder import Chosen, RankPrograms
from mpicoloc.replay.programs.recorded import Part

_LIST = "trace.txt"
"""File of a SimGrid trace that lists the files of all ranks."""
_OTF2 = "traces.otf2"
_LONGEST_S = 1e9
RECORDED = frozenset({"cpu_speed", "algorithms", "is_unmatched_left_out", "part_s"})
"""Fields of `Choices` that apply to traces with times and collectives."""
_PROFILE = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class Choices:
    """A user's choices for a replayed job.

    Parameters
    ----------
    cpu_speed : float
        Speed of its processors relative to the recorded run.
    algorithms : tuple of (str, str)
        Pairs of a collective and the algorithm that replaces the library's choice; see `builder.algorithms`.
    flops_per_s : float
        Speed of a processor of a SimGrid trace, which counts computation in flops.
    is_unmatched_left_out : bool
        Leave out messages whose other end a profile or an OTF2 archive lacks, with a note. Otherwise such
        a trace is refused, see `check_matched`.
    is_wall_time : bool
        Computation takes the wall time between two calls, even if ranks of a profile waited for a processor.
    part_s : tuple of float, optional
        Start and end of the part to replay, s since the trace's first call.
    """

    cpu_speed: float = 1.0
    algorithms: tuple[tuple[str, str], ...] = ()
    flops_per_s: float = 1e9
    is_unmatched_left_out: bool = False
    is_wall_time: bool = False
    part_s: tuple[float, float] | None = None

    def part(self, origin_ns: int) -> Part | None:
        """The part to replay, if the trace's first call begins at `origin_ns`; None: the whole run."""
        if self.part_s is None:
            return None
        begin_ns, end_ns = (origin_ns + round(min(at_s, _LONGEST_S) * 1e9) for at_s in self.part_s)
        return Part(begin_ns, end_ns)


@dataclass(frozen=True)
class Source:
    """A job that can be replayed.

    Parameters
    ----------
    n_ranks : int
    obeyed : frozenset of str
        Fields of `Choices` that apply to its programs.
    hostnames : callable
        Returns the name of the host where each rank ran. Raises `UsageError` if that is unknown.
    programs : callable
        Returns the programs of the ranks for the hosts of a placement.
    """

    n_ranks: int
    obeyed: frozenset[str]
    hostnames: Callable[[], list[str]]
    programs: Callable[[Array], RankPrograms]


def foreign(path: str, rank_programs: RankPrograms, obeyed: Iterable[str]) -> Source:
    """A job whose trace has no host names, and whose programs do not depend on hosts."""

    def hostnames() -> list[str]:
        raise UsageError(f"{path} does not say where its ranks ran: give --placement F8, RF or a file")

    return Source(rank_programs.n_ranks, frozenset(obeyed), hostnames, lambda hosts: rank_programs)


def read(path: str, choices: Choices) -> Source:
    """The job of a profile, of a SimGrid trace (folder or list of files), an OTF2 archive or a GOAL text.

    Raises `DataError` if the format is unknown, or the job cannot be replayed.
    """
    path = _anchor(path)
    if path.endswith(".otf2"):
        from mpicoloc.replay.programs import otf2_programs

        return otf2_programs.read(path, choices)
    if _begins(path).startswith(_PROFILE):
        from mpicoloc.replay.programs import profile_programs

        job = profile_programs.read(path, choices)
        return Source(len(job.calls), RECORDED | {"is_wall_time"}, job.hostnames, job.programs)
    return _text(path, choices)


def _anchor(path: str) -> str:
    """The main file of a trace in a folder. A path that is not a folder is returned unchanged."""
    if not os.path.isdir(path):
        return path
    inside = (os.path.join(path, name) for name in (_OTF2, _LIST))
    found = next(filter(os.path.exists, inside), None)
    if found is None:
        raise DataError(f"folder {path} has neither {_LIST} (SimGrid) nor {_OTF2}: give the file of a trace")
    return found


def files_of(path: str) -> list[str]:
    """The files of the trace or profile at `path`; missing files of an archive are left out.

    Raises `DataError` if the path is a folder without a trace.
    """
    path = _anchor(path)
    if path.endswith(".otf2"):
        stem = path.removesuffix(".otf2")
        events = (os.path.join(where, name) for where, _, names in os.walk(stem) for name in names)
        return [each for each in (path, f"{stem}.def") if os.path.exists(each)] + sorted(events)
    folder = os.path.dirname(path)
    if os.path.isfile(path) and not _begins(path).startswith(_PROFILE) and len(_first_words(path)) == 1:
        return [path, *(os.path.join(folder, name) for _, line in _lines(path) if (name := line.strip()))]
    return [path]


def check_readable(path: str) -> None:
    """Refuse a path without readable files for a trace or a profile. Only the first bytes of each file are
    read.
    """
    for file in files_of(path) or [path]:
        _begins(file)


def check_matched(path: str, choices: Choices, n_unmatched: int, n_all: int, first: str) -> list[str]:
    """A note on unmatched messages, which are left out.

    Raises `DataError` if there are any and the user did not choose to leave them out.
    """
    if not n_unmatched:
        return []
    if not choices.is_unmatched_left_out:
        raise DataError(
            f"{path}: {n_unmatched:,} of {n_all:,} messages lack their send or receive; the first is "
            f"{first}: record the job again to its end, or leave them out with --allow-unmatched"
        )
    return [f"{path}: {n_unmatched:,} of {n_all:,} messages are left out: the trace lacks one end"]


def library_of(choices: Choices) -> Library:
    """The MPI library that chooses algorithms of collectives if the recorded library is unknown."""
    return Chosen(MPICH(), dict(choices.algorithms)) if choices.algorithms else MPICH()


def _text(path: str, choices: Choices) -> Source:
    name = os.path.basename(path)
    words = _first_words(path)
    if words[:1] == ["num_ranks"]:
        rank_programs = goal.programs(name.removesuffix(".goal"), _lines(path), choices.cpu_speed)
        return foreign(path, rank_programs, {"cpu_speed"})
    if name == _LIST:
        name = os.path.basename(os.path.dirname(os.path.abspath(path)))
    lines = _lines(path)
    if len(words) == 1:
        lines = _listed(path)
    rank_programs = simgrid_ti.programs(
        name, lines, choices.flops_per_s, library_of(choices), choices.cpu_speed
    )
    return foreign(path, rank_programs, {"cpu_speed", "algorithms", "flops_per_s"})


def _listed(path: str) -> Iterator[tuple[str, str]]:
    """Lines of all files that a file lists."""
    folder = os.path.dirname(path)
    names = [(where, line.strip()) for where, line in _lines(path) if line.strip()]
    for where, name in steps(names, "reading traces", unit="files"):
        inside = os.path.join(folder, name)
        try:
            open(inside, encoding="utf-8").close()
        except OSError as error:
            raise DataError(
                f"{where} names {name}, which cannot be read: {error.strerror}: give a profile, a trace, or "
                "a list of a trace's files"
            ) from None
        yield from _lines(inside)


def _lines(path: str) -> Iterator[tuple[str, str]]:
    with _opened(path) as file:
        for i, line in enumerate(io.TextIOWrapper(file, "utf-8", "replace"), 1):
            yield f"{path}, line {i}", line


def _first_words(path: str) -> list[str]:
    """Words of the first line that is not empty."""
    return next((words for _, line in _lines(path) if (words := line.split("#", 1)[0].split())), [])


def _opened(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}: give a profile or a trace") from None


def _begins(path: str) -> bytes:
    with _opened(path) as file:
        return file.read(len(_PROFILE))
