"""Calls of simulated jobs, as the formats of traces read recorded ones: all jobs as ranks of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Interference, Job, MpiSummary, Profile
from mpicoloc.core.tables import COLUMNS, table
from mpicoloc.errors import DataError
from mpicoloc.replay.experiment import Experiment
from mpicoloc.replay.programs import timeline
from mpicoloc.replay.programs.timeline import Spans
from mpicoloc.trace.export.calls import Calls, Recording, Side

Ints = NDArray[np.int64]
_SENDS = (timeline.NAMES.index("MPI_Send"), timeline.NAMES.index("MPI_Isend"))


class SimulatedCalls(Recording):
    """Calls of all jobs of a run with marks; the ranks of a job follow those of the job before.

    Raises
    ------
    DataError
        If the run had no marks.
    """

    names = timeline.NAMES
    is_whole = True

    def __init__(self, found: Experiment) -> None:
        super().__init__(_profile(found))
        parts, received = [], []
        first_rank = first_row = 0
        for i, job in enumerate(found.jobs):
            own = timeline.spans(found.sharing, i, job.programs)
            received.append(np.stack(timeline.received(own, job.programs)) + first_row)
            parts.append(_shifted(own, first_rank))
            first_rank, first_row = first_rank + job.programs.n_ranks, first_row + len(own.rank)
        self._spans = _joined(parts)
        self._takes, self._posts = np.concatenate(received, axis=1)
        if not len(self._spans.rank):
            raise DataError("the simulated jobs made no MPI call, so there is nothing to write")
        self.tracks: Sequence[tuple[int, int]] = [(int(rank), 0) for rank in np.unique(self._spans.rank)]
        self.span_ns = (0, int(self._spans.end_ns.max()))

    def _calls(self, rank: int, track: int) -> Iterator[Calls]:
        """The calls of a rank."""
        own = self._spans
        rows = slice(*np.searchsorted(own.rank, [rank, rank + 1]))
        columns = (own.begin_ns, own.end_ns, own.n_bytes, own.peer, own.function)
        yield Calls(*(column[rows] for column in columns))

    def _ends(self) -> tuple[Side, Side]:
        """Sends, and receives where they were taken; those of which the program names the partner."""
        own = self._spans
        sends = np.flatnonzero(np.isin(own.function, _SENDS) & (own.peer >= 0))
        is_known = own.peer[self._posts] >= 0
        takes, posts = self._takes[is_known], self._posts[is_known]
        return self._side(sends, sends), self._side(takes, posts)

    def _side(self, rows: Ints, posts: Ints) -> Side:
        own = self._spans
        tracks = np.zeros(len(rows), np.int64)
        columns = (own.peer[posts], own.n_bytes[posts], own.begin_ns[rows], own.end_ns[rows])
        return Side(own.rank[rows], tracks, *columns)


def _shifted(own: Spans, first_rank: int) -> Spans:
    peer = np.where(own.peer >= 0, own.peer + first_rank, -1)
    return Spans(
        own.rank + first_rank, own.function, own.operation, peer, own.n_bytes, own.begin_ns, own.end_ns
    )


def _joined(parts: Sequence[Spans]) -> Spans:
    names = ("rank", "function", "operation", "peer", "n_bytes", "begin_ns", "end_ns")
    return Spans(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def recording(found: Experiment) -> Recording:
    """The jobs that ran together, as one recording."""
    return SimulatedCalls(found)


def _profile(found: Experiment) -> Profile:
    """What the formats ask of a profile: names of hosts, and where each rank ran."""
    hosts = np.concatenate([job.hosts for job in found.jobs])
    used, i_node = np.unique(hosts, return_inverse=True)
    names = [f"h{host}" for host in used.tolist()]
    tables = {name: table(name) for name in COLUMNS}
    tables["nodes"] = table("nodes", {"hostname": np.array(names, "S64")})
    tables["ranks"] = table("ranks", {"rank": np.arange(len(hosts)), "i_node": i_node})
    words = ", ".join(f"{job.name} ({job.programs.n_ranks} ranks)" for job in found.jobs)
    job = Job("simulated", words, len(hosts), len(used), len(hosts), "simulated", found.sharing.end_s)
    return Profile(job, tables, MpiSummary(), Interference(), None)
