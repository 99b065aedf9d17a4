"""The trace of every MPI call of a job: one file for each node, in the folder FILE.trace beside the profile.

At first only the list of blocks is read; later accesses read only the blocks with the requested events.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import mpicoloc
from mpicoloc.core.profile import Array, Ints, Profile
from mpicoloc.core.progress import stage
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.network.traffic.job_traffic import rank_offsets_s
from mpicoloc.show import outputs
from mpicoloc.trace import node_file
from mpicoloc.trace.clocks import Alignment, Clock, align, in_order
from mpicoloc.trace.node_file import (
    CALL,
    LANE_SHIFT,
    MESSAGE,
    ONE_SIDED,
    RECEIVED,
    SENT,
    SITE,
    Events,
    TraceFile,
    folder_of,
)

if TYPE_CHECKING:
    import pandas as pd


Arrays = dict[str, NDArray[Any]]
MESSAGES = ("", "sent", "received", "put", "got")
"""Relations of an event to its peer."""


def message_of(call: NDArray[np.uint16]) -> NDArray[np.int8]:
    """Index in `MESSAGES` of each event's relation to its peer."""
    kind = np.where(call & SENT, 1, np.where(call & RECEIVED, 2, 0))
    return (kind + np.where((kind > 0) & (call & ONE_SIDED != 0), 2, 0)).astype(np.int8)


def fields_of(events: Events) -> Arrays:
    """The fields of events that this module uses, one element per event."""
    kinds = events.kinds
    return {
        "t_ns": events.t_ns, "duration_ns": events.duration_ns, "bytes": events.bytes,
        "peer": kinds["peer"][events.kind], "call": kinds["call"][events.kind],
        "lane": (kinds["i_site"] >> LANE_SHIFT)[events.kind],
    }  # fmt: skip


def after(rest: Arrays, fields: Arrays) -> Arrays:
    """The remaining events of a block, followed by those of the next block."""
    return {name: np.concatenate([rest[name], array]) for name, array in fields.items()}


def whole_calls(fields: Arrays) -> tuple[Arrays, Arrays]:
    """Events sorted by lane, with the index of each message's call (`i_call`); and the rest. The rest are
    messages whose call is in a later block, because the trace has a call after its messages.
    """
    order = np.argsort(fields["lane"], kind="stable")
    fields = {name: array[order] for name, array in fields.items()}
    is_call = fields["call"] & MESSAGE == 0
    places = np.flatnonzero(is_call)
    next_call = np.searchsorted(places, np.arange(len(is_call)))
    has_call = next_call < len(places)
    i_call = places[next_call[has_call]]
    has_call[np.flatnonzero(has_call)] = fields["lane"][i_call] == fields["lane"][has_call]
    rest = {name: array[~has_call] for name, array in fields.items()}
    whole = {name: array[has_call] for name, array in fields.items()}
    whole["i_call"] = np.searchsorted(
        np.flatnonzero(whole["call"] & MESSAGE == 0), np.arange(int(has_call.sum()))
    )
    return whole, rest


def messages_in(fields: Arrays) -> Arrays:
    """The messages in the first result of `whole_calls`."""
    is_call = fields["call"] & MESSAGE == 0
    i_call = fields["i_call"]
    # A call's event has the bytes of all its messages and represents the first message; the others have
    # events of their own, so subtract these.
    n_bytes = fields["bytes"].astype(np.int64)
    calls = np.flatnonzero(is_call)
    others = np.bincount(i_call[~is_call], n_bytes[~is_call], len(calls)).astype(np.int64)
    n_bytes[calls] = np.maximum(n_bytes[calls] - others, 0)
    has_message = fields["call"] & (SENT | RECEIVED) != 0
    owner = calls[i_call]
    end_ns = fields["t_ns"] + fields["duration_ns"]
    return {
        "peer": fields["peer"][has_message],
        "message": message_of(fields["call"])[has_message],
        "bytes": n_bytes[has_message],
        "begin_ns": fields["t_ns"][owner][has_message],
        "end_ns": end_ns[owner][has_message],
        "call": (fields["call"] & CALL)[has_message],
    }


def of_one_run(files: Iterable[TraceFile]) -> tuple[TraceFile, ...]:
    """The files of the latest run. Files of earlier runs are left out: they have some of the same ranks."""
    found: list[TraceFile] = []
    for file in sorted(files, key=lambda file: -file.start_ns):
        if not any(np.isin(file.index["rank"], other.index["rank"]).any() for other in found):
            found.append(file)
    return tuple(sorted(found, key=first_rank))


def is_begin_of(file: TraceFile, profile: Profile) -> bool:
    """Whether the file starts at the profile's start time; true if the file is not that of rank 0."""
    start_s = profile.job.start_unix_s
    return first_rank(file) != 0 or start_s == 0 or abs(file.start_ns * 1e-9 - start_s) < 1e-3


def first_rank(file: TraceFile) -> int:
    """The lowest rank with events in the file."""
    return int(file.index["rank"].min(initial=np.iinfo(np.int32).max))


def trouble(files: Sequence[TraceFile]) -> tuple[str, ...]:
    """One line for each truncated file."""
    return tuple(f"{file.path} is not whole: {file.trouble}" for file in files if file.trouble)


def missing(files: Sequence[TraceFile], profile: Profile) -> dict[int, str]:
    """A sentence for each rank that recorded more events than the files have of it."""
    found: dict[int, int] = {}
    for file in files:
        ranks, which = np.unique(file.index["rank"], return_inverse=True)
        for rank, n in zip(ranks.tolist(), np.bincount(which, file.index["n"]).tolist(), strict=True):
            found[rank] = found.get(rank, 0) + int(n)
    lacking = {}
    for row in profile.tables["ranks"]:
        n_missing = int(row["n_events"]) - found.get(int(row["rank"]), 0)
        if n_missing > 0:
            dropped = f"{int(row['n_events_dropped']):,} were dropped"
            lacking[int(row["rank"])] = (
                f"{n_missing:,} of {int(row['n_events']):,} events are missing, {dropped}"
            )
    return lacking


_COLUMNS: Mapping[str, type] = {
    "rank": np.int32, "lane": np.int8, "t_ns": np.int64, "duration_ns": np.int64, "bytes": np.int64,
    "peer": np.int32, "call": np.int16, "i_site": np.int16, "message": np.int8,
}  # fmt: skip
_MESSAGE_COLUMNS: Mapping[str, type] = {
    "rank": np.int32, "peer": np.int32, "message": np.int8, "bytes": np.int64, "begin_ns": np.int64,
    "end_ns": np.int64, "call": np.int16,
}  # fmt: skip
_UNKNOWN = "(unknown)"
MAX_RANKS = 1 << 24
"""Upper bound of ranks, checked because arrays with an element per rank are allocated before reading."""
MAX_MESSAGES_OF_A_CALL = 1 << 22
"""Upper bound, checked because a call's messages are held in memory until the call's event is read."""


@dataclasses.dataclass(frozen=True)
class Trace:
    """Events of a job, read on demand.

    Attributes
    ----------
    files : tuple of TraceFile
        One for each node.
    clocks : tuple of Clock
        Clock of each node relative to that of rank 0's node.
    notes : tuple of str
        Sentences on missing data, if any.
    incomplete : frozenset of int
        Ranks with missing events.
    alignment : Alignment or None
        Correction of the clocks by messages, if the job had several nodes.

    Examples
    --------
    >>> trace = mpicoloc.open("mpicoloc-1234.h5").trace  # doctest: +SKIP
    >>> trace.frame(ranks=[0, 1], begin_s=10.0, end_s=10.5)  # doctest: +SKIP
    """

    files: tuple[TraceFile, ...]
    clocks: tuple[Clock, ...]
    notes: tuple[str, ...] = ()
    incomplete: frozenset[int] = frozenset()
    alignment: Alignment | None = None

    @property
    def n_events(self) -> int:
        """Number of events in the files: calls, and messages of calls that had several messages."""
        return sum(int(file.index["n"].sum(dtype=np.uint64)) for file in self.files)

    def __len__(self) -> int:
        return self.n_events

    @property
    def ranks(self) -> list[int]:
        """Ranks that have events."""
        found = [file.index["rank"] for file in self.files]
        return [int(rank) for rank in np.unique(np.concatenate(found))] if found else []

    @functools.cached_property
    def names(self) -> list[str]:
        """Names of all calls, in the order of the frames' categories."""
        return list(dict.fromkeys(name for file in self.files for name in _names(file)))

    @property
    def origin_ns(self) -> int:
        """Time of the first rank's MPI_Init, from which `begin_s` and `end_s` count."""
        first = min(self.files, key=first_rank)
        clock = self.clocks[self.files.index(first)]
        return int(clock.to_common(np.array([first.t_init_ns]))[0])

    def frame(
        self, ranks: Sequence[int] | None = None, begin_s: float | None = None, end_s: float | None = None
    ) -> pd.DataFrame:
        """Calls of these ranks that began in this interval.

        Parameters
        ----------
        ranks : sequence of int, optional
            Default all.
        begin_s, end_s : float, optional
            Half-open interval [begin_s, end_s) since the first rank's MPI_Init, s; default all.

        Returns
        -------
        DataFrame
            rank, lane (thread), t_ns and duration_ns (of the call, by the clock of rank 0's node), bytes,
            peer (-1: none or unknown), call, i_site, message (relation to peer). Rows of a rank are in the
            order in which the calls ended.

        Raises
        ------
        DataError
            If a file is damaged.
        """
        chosen = self._blocks(ranks, begin_s, end_s)
        n_most = sum(int(rows["n"].sum(dtype=np.uint64)) for rows, _ in chosen)
        return self._joined(_COLUMNS, self._calls(chosen, begin_s, end_s), n_most)

    def frames(
        self, ranks: Sequence[int] | None = None, begin_s: float | None = None, end_s: float | None = None
    ) -> Iterator[pd.DataFrame]:
        """The result of `frame` in pieces of at most 32,768 rows, for traces that do not fit into memory."""
        return map(self._framed, self.pieces(ranks, begin_s, end_s))

    def pieces(
        self, ranks: Sequence[int] | None = None, begin_s: float | None = None, end_s: float | None = None
    ) -> Iterator[Arrays]:
        """`frames` as arrays; each piece is of one rank. `call` indexes `names`; `message` indexes
        `MESSAGES`.
        """
        return self._calls(self._blocks(ranks, begin_s, end_s), begin_s, end_s)

    def messages(
        self, ranks: Sequence[int] | None = None, begin_s: float | None = None, end_s: float | None = None
    ) -> pd.DataFrame:
        """Messages of these ranks: rank, peer, message (sent or received), bytes, begin_ns, end_ns, call.

        begin_ns and end_ns are those of the call that sent or received the message. Arguments as in `frame`.
        """
        low, high = self._window(begin_s, end_s)
        pieces = []
        for i, _ in enumerate(self.files):
            for arrays in self.messages_of(i, self.clocks[i], ranks):
                begin_ns = arrays["begin_ns"]
                is_in = (begin_ns >= low) & (begin_ns < high)
                pieces.append({name: array[is_in] for name, array in arrays.items()})
        n_most = sum(len(piece["peer"]) for piece in pieces)
        return self._joined(_MESSAGE_COLUMNS, iter(pieces), n_most)

    def messages_of(self, i_file: int, clock: Clock, ranks: Sequence[int] | None = None) -> Iterator[Arrays]:
        """Columns of `messages` from one file, in pieces, with times by `clock`."""
        file, codes = self.files[i_file], self._codes[i_file]
        rows = file.index if ranks is None else file.index[np.isin(file.index["rank"], list(ranks))]
        for rank in np.unique(rows["rank"]):
            rest = None
            for _, events in file.events(rows[rows["rank"] == rank]):
                whole, rest = whole_calls(
                    fields_of(events) if rest is None else after(rest, fields_of(events))
                )
                if len(rest["peer"]) > MAX_MESSAGES_OF_A_CALL:
                    of_rank = f"rank {rank} has more than {MAX_MESSAGES_OF_A_CALL:,} messages in one call"
                    raise DataError(f"{file.path} is damaged: {of_rank}; copy it again")
                found = messages_in(whole)
                found["rank"] = np.full(len(found["peer"]), rank, np.int32)
                found["call"] = codes[found["call"]]
                for name in ("begin_ns", "end_ns"):
                    found[name] = clock.to_common(found[name])
                yield found

    def _blocks(
        self, ranks: Sequence[int] | None, begin_s: float | None, end_s: float | None
    ) -> list[tuple[NDArray[np.void], NDArray[np.bool_]]]:
        """For each file, the blocks that can have events of these ranks and times, and, for each block,
        whether all of its events are in this time.
        """
        low, high = self._window(begin_s, end_s)
        found = []
        for file, clock in zip(self.files, self.clocks, strict=True):
            t_min, t_max = (clock.to_common(file.index[name]) for name in ("t_min", "t_max"))
            is_in = (t_max >= low) & (t_min < high)
            if ranks is not None:
                is_in &= np.isin(file.index["rank"], list(ranks))
            found.append((file.index[is_in], ((t_min >= low) & (t_max < high))[is_in]))
        return found

    def _calls(
        self,
        chosen: list[tuple[NDArray[np.void], NDArray[np.bool_]]],
        begin_s: float | None,
        end_s: float | None,
    ) -> Iterator[Arrays]:
        low, high = self._window(begin_s, end_s)
        for i, (rows, is_whole) in enumerate(chosen):
            blocks = self.files[i].events(rows)
            for whole, (rank, events) in zip(is_whole, blocks, strict=True):
                arrays = _calls_of(rank, events, self._codes[i], self.clocks[i])
                if not whole:
                    keep = (arrays["t_ns"] >= low) & (arrays["t_ns"] < high)
                    arrays = {name: array[keep] for name, array in arrays.items()}
                yield arrays

    def _window(self, begin_s: float | None, end_s: float | None) -> tuple[int, int]:
        limits = np.iinfo(np.int64)
        low = limits.min if begin_s is None else self.origin_ns + round(begin_s * 1e9)
        high = limits.max if end_s is None else self.origin_ns + round(end_s * 1e9)
        return low, high

    @functools.cached_property
    def _codes(self) -> list[NDArray[np.int16]]:
        """For each file the category of each call number."""
        place = {name: i for i, name in enumerate(self.names)}
        found = []
        for file in self.files:
            names = _names(file)
            codes = np.full(CALL + 1, place[_UNKNOWN], np.int16)
            codes[: len(names)] = [place[name] for name in names]
            found.append(codes)
        return found

    @functools.cached_property
    def _categories(self) -> dict[str, pd.CategoricalDtype[str]]:
        import pandas as pd

        return {"call": pd.CategoricalDtype(self.names), "message": pd.CategoricalDtype(list(MESSAGES))}

    def _joined(self, columns: Mapping[str, type], pieces: Iterator[Arrays], n_most: int) -> pd.DataFrame:
        """All pieces as one frame. Each piece is released once its rows are copied."""
        try:
            arrays: Arrays = {name: np.empty(n_most, kind) for name, kind in columns.items()}
        except MemoryError as error:
            raise DataError(
                f"{n_most:,} events do not fit into memory: select ranks or a time, or use frames()"
            ) from error
        n = 0
        for piece in pieces:
            n_more = len(next(iter(piece.values())))
            for name, array in arrays.items():
                array[n : n + n_more] = piece[name]
            n += n_more
        return self._framed({name: array[:n] for name, array in arrays.items()})

    def _framed(self, arrays: Arrays) -> pd.DataFrame:
        import pandas as pd

        columns: dict[str, Any] = dict(arrays)
        for name, kind in self._categories.items():
            columns[name] = pd.Categorical.from_codes(columns[name], dtype=kind, validate=False)
        return pd.DataFrame(columns, copy=False)


def _names(file: TraceFile) -> list[str]:
    """Names of the file's call numbers."""
    names = file.names or tuple(f"call {i}" for i in range(CALL))
    return [*(name or _UNKNOWN for name in names[:CALL]), _UNKNOWN]


def _calls_of(rank: int, events: Events, codes: NDArray[np.int16], clock: Clock) -> Arrays:
    kinds = events.kinds
    arrays: Arrays = {
        "lane": (kinds["i_site"] >> LANE_SHIFT).astype(np.int8)[events.kind],
        "t_ns": clock.to_common(events.t_ns),
        "duration_ns": _durations(events, clock),
        "bytes": events.bytes.view(np.int64),
        "peer": kinds["peer"][events.kind],
        "call": codes[kinds["call"] & CALL][events.kind],
        "i_site": (kinds["i_site"] & SITE).astype(np.int16)[events.kind],
        "message": message_of(kinds["call"])[events.kind],
    }
    is_more = kinds["call"] & MESSAGE != 0
    if is_more.any():
        is_call = ~is_more[events.kind]
        arrays = {name: array[is_call] for name, array in arrays.items()}
    return {"rank": np.full(len(arrays["t_ns"]), rank, np.int32), **arrays}


def _durations(events: Events, clock: Clock) -> NDArray[np.int64]:
    if clock.is_even:
        return events.duration_ns.view(np.int64)
    return clock.to_common(events.t_ns + events.duration_ns) - clock.to_common(events.t_ns)


def read_folder(folder: str | os.PathLike[str]) -> Trace:
    """The trace in a folder without a profile; the times of each node are by the node's own clock.

    Raises
    ------
    DataError
        If the folder has no trace.
    """
    files = _files(os.fspath(folder))
    return Trace(files, tuple(Clock.same() for _ in files), trouble(files))


def read(path: str | os.PathLike[str], profile: Profile) -> Trace:
    """The trace of the profile that was read from `path`.

    Raises `DataError` if there is no trace, or it is of another job.
    """
    folder = folder_of(path)
    if not 0 < profile.job.n_ranks <= MAX_RANKS:
        raise DataError(f"{os.fspath(path)} has {profile.job.n_ranks} ranks: it is damaged")
    if not os.path.isdir(folder):
        raise DataError(f"{os.fspath(path)} has no trace of every call: run the job with --trace all")
    job = (profile.job.id, profile.job.n_ranks)
    files = of_one_run(file for file in _files(folder) if (file.job_id, file.n_ranks) == job)
    if not files or not is_begin_of(files[0], profile):
        raise DataError(f"the trace in {folder} is not of job {profile.job.id}, or is of another run of it")
    offsets_ns = np.rint(rank_offsets_s(profile) * 1e9).astype(np.int64)
    clocks = []
    for file in files:
        first = int(file.index["rank"].min(initial=len(offsets_ns)))
        clocks.append(Clock.shifted(int(offsets_ns[first]) if 0 <= first < len(offsets_ns) else 0))
    lacking = missing(files, profile)
    notes = tuple(f"rank {rank}: {text}" for rank, text in lacking.items())
    return Trace(files, tuple(clocks), trouble(files) + notes, frozenset(lacking))


def _files(folder: str) -> tuple[TraceFile, ...]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".mct"))
    except OSError as error:
        raise DataError(f"{folder} is not a folder with a trace: {error.strerror}") from error
    files = [node_file.read(os.path.join(folder, name)) for name in names]
    if not files:
        raise DataError(f"{folder} has no file of a trace in it (*.mct)")
    n_blocks = sum(len(file.index) for file in files)
    if n_blocks > node_file.MAX_BLOCKS:
        raise DataError(f"{folder} has {n_blocks:,} blocks, more than a trace can have: it is damaged")
    return tuple(sorted(files, key=first_rank))


MIN_EVENTS = 1 << 20
"""The alignment of a trace with fewer events is not cached: such a trace is read in less than a second."""
_VERSION = 1
"""Version of the clock correction, part of the cache's file name."""


def load(trace: Trace) -> Alignment | None:
    """The alignment that `save` stored for the same trace and initial clocks; None if there is none."""
    if trace.n_events < MIN_EVENTS:
        return None
    try:
        with open(_path(trace), encoding="utf-8") as file:
            found = json.load(file)
        clocks = tuple(
            Clock(**{name: tuple(numbers) for name, numbers in clock.items()})
            for clock in found.pop("clocks")
        )
        return Alignment(clocks, **found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def save(trace: Trace, found: Alignment) -> None:
    """Store the alignment of a large trace in the user's cache, if that is writable."""
    if trace.n_events < MIN_EVENTS:
        return
    path = _path(trace)
    with contextlib.suppress(OSError, EnvironmentFault):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with outputs.text_file(path) as file:
            json.dump(dataclasses.asdict(found), file, default=lambda number: number.item())


def _path(trace: Trace) -> str:
    """Cache file, named by a digest of everything on which the alignment depends.

    For the content of the blocks, the digest covers their checksums, which are in the lists of blocks.
    """
    digest = hashlib.sha256(f"{mpicoloc.__version__} {_VERSION} {sorted(trace.incomplete)}".encode())
    for file, clock in zip(trace.files, trace.clocks, strict=True):
        digest.update(file.index.tobytes())
        digest.update(repr(clock).encode())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "mpicoloc", f"clocks-{digest.hexdigest()[:32]}.json")


_SENT, _RECEIVED = MESSAGES.index("sent"), MESSAGES.index("received")
Ends = Mapping[tuple[int, int], Array]
"""Times by sender and receiver."""
MAX_MESSAGES = 1 << 29
"""Largest number of sends and receives between nodes that are used to correct clocks: 4 GiB of times."""


class _TooManyError(Exception):
    """The trace has more than `MAX_MESSAGES` messages between nodes."""


def aligned(trace: Trace) -> Trace:
    """The same trace with clocks corrected so that no message is received before it is sent.

    This reads all messages between nodes, which takes 16 bytes of memory for each message; for a large trace,
    only the first call does so. A trace of one node, or with more than `MAX_MESSAGES` such messages, stays
    unchanged.

    Result: `alignment` has the correction; a note says if some messages are still early. Raises `DataError`
    if a file is damaged.
    """
    if len(trace.files) < 2:
        return trace
    found = load(trace)
    if found is None:
        try:
            messages = _between_nodes(trace)
        except _TooManyError:
            note = f"more than {MAX_MESSAGES:,} messages between nodes: the clocks are not corrected by them"
            return replace(trace, notes=(*trace.notes, note))
        with stage("aligning the nodes' clocks"):
            found = align(trace.clocks, messages)
        save(trace, found)
    notes = trace.notes
    if found.n_after:
        early = f"{found.n_after:,} of {found.n_messages:,} messages between nodes"
        notes += (f"{early} are received up to {found.worst_after_ns * 1e-9:.2g} s before they are sent",)
    return replace(trace, clocks=found.clocks, alignment=found, notes=notes)


def _between_nodes(trace: Trace) -> dict[tuple[int, int], tuple[Array, Array]]:
    nodes_of = _Nodes(trace)
    with stage("reading messages between nodes", trace.n_events, "events"):
        sends, receives = _ends(trace, nodes_of)
    found: dict[tuple[int, int], list[tuple[Array, Array]]] = {}
    for (src, dst), begins in sends.items():
        # If some sends of a rank are missing, receives cannot be paired with its sends.
        if (src, dst) in receives and src not in trace.incomplete:
            i_src, i_dst = nodes_of.of(np.array([src, dst])).tolist()
            found.setdefault((i_src, i_dst), []).append(in_order(begins, receives[src, dst]))
    return {
        nodes: (np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs]))
        for nodes, pairs in found.items()
    }


class _Nodes:
    """File of each rank; -1 if it has none."""

    def __init__(self, trace: Trace) -> None:
        # Sorted ranks, not an array indexed by rank: a damaged file may have huge rank numbers.
        ranks = [np.unique(file.index["rank"]) for file in trace.files]
        found, first = np.unique(np.concatenate(ranks), return_index=True)
        self._ranks = found
        self._nodes = np.repeat(np.arange(len(ranks)), [len(of_file) for of_file in ranks])[first]

    def of(self, ranks: Array) -> Ints:
        """The files of these ranks."""
        if not len(self._ranks):
            return np.full(len(ranks), -1)
        place = np.minimum(np.searchsorted(self._ranks, ranks), len(self._ranks) - 1)
        return np.where(self._ranks[place] == ranks, self._nodes[place], -1)


def _ends(trace: Trace, nodes_of: _Nodes) -> tuple[Ends, Ends]:
    """Begins of sends and ends of receives of the messages between nodes, by the nodes' own clocks."""
    sends: dict[tuple[int, int], list[Array]] = {}
    receives: dict[tuple[int, int], list[Array]] = {}
    n_ends = 0
    for i in range(len(trace.files)):
        for arrays in trace.messages_of(i, Clock.same()):
            node = nodes_of.of(arrays["peer"])
            is_between = (node >= 0) & (node != i)
            if not is_between.any():
                continue
            n_ends += int(is_between.sum())
            if n_ends > MAX_MESSAGES:
                raise _TooManyError
            rank = int(arrays["rank"][0])
            for message, column in ((_SENT, "begin_ns"), (_RECEIVED, "end_ns")):
                is_chosen = is_between & (arrays["message"] == message)
                for peer in np.unique(arrays["peer"][is_chosen]).tolist():
                    values = arrays[column][is_chosen & (arrays["peer"] == peer)]
                    if message == _SENT:
                        sends.setdefault((rank, peer), []).append(values)
                    else:
                        receives.setdefault((peer, rank), []).append(values)
    joined = ({pair: np.concatenate(parts) for pair, parts in side.items()} for side in (sends, receives))
    return next(joined), next(joined)
