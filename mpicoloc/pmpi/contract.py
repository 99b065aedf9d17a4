"""csrc/common/mpicoloc.h seen from Python: layouts, constants, shared-memory files and the node agent.

The only module that imports the compiled contract. NumPy is imported where it is needed, so that the
coordinator, beside a running application, starts without it. Constants of the header are attributes of this
module (`contract.MC_RANK_FINALIZING`).
"""

from __future__ import annotations

import functools
import glob
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.pmpi import shared_files

try:
    from mpicoloc._contract import ffi, lib  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:  # pragma: no cover - a broken installation
    raise EnvironmentFault(
        f"mpicoloc._contract cannot be loaded ({error}): install mpicoloc again"
    ) from error

if TYPE_CHECKING:
    import numpy as np

_STRUCT_OF_SUFFIX = {".seg": "mc_segment", ".node": "mc_node", ".board": "mc_board"}


class Counter(NamedTuple):
    """One row of the counter table."""

    name: str
    unit: str
    meaning: str


class SegmentHead(NamedTuple):
    """Who a rank is and how it is."""

    world_rank: int
    pid: int
    state: int
    job_id: str


class Common(NamedTuple):
    """What a node agent says of the shutters that its job has in common with other nodes: see `mc_common`."""

    i_answered: int
    is_free: int
    i_judged: int
    verdict: int
    n_jobs: int
    period_ns: int
    duration_ns: int


def __getattr__(name: str) -> int:
    if name.startswith("MC_") and hasattr(lib, name):
        return int(getattr(lib, name))
    raise AttributeError(f"the contract has no {name!r}")


@functools.cache
def dtype(name: str) -> np.dtype[Any]:
    """NumPy dtype of a C type of the contract; char arrays become byte strings.

    Parameters
    ----------
    name : str
        As in the header, for example "mc_segment".

    Returns
    -------
    numpy.dtype
        Same size, same offsets.
    """
    from mpicoloc.core import c_layout

    return c_layout.dtype_of(ffi, ffi.typeof(name))


@functools.cache
def counters() -> tuple[Counter, ...]:
    """The counter table of the header, in the order of the struct mc_counters."""
    rows: list[Counter] = []
    while (name := lib.mc_counter_name(len(rows))) != ffi.NULL:
        i = len(rows)
        texts = name, lib.mc_counter_unit(i), lib.mc_counter_meaning(i)
        rows.append(Counter(*(ffi.string(text).decode() for text in texts)))
    return tuple(rows)


def shm_path(key: str, what: str) -> str:
    """Path of a job's file on this node; `what` is "node", "<rank>.seg" ..."""
    buffer = ffi.new("char[]", lib.MC_PATH_LEN)
    status = lib.mc_shm_path(buffer, lib.MC_PATH_LEN, key.encode(), what.encode())
    if status != lib.MC_OK:
        raise EnvironmentFault(
            f"path of job key {key!r} in shared memory is too long: shorten MPICOLOC_SHM_DIR"
        )
    return os.fsdecode(ffi.string(buffer))


def board_path() -> str:
    """Path of the board of this version on this node."""
    return shm_path(f"abi{lib.MC_ABI_VERSION}", "board")


def n_on_board(path: str, quiet_s: float = 0.0) -> int:
    """Jobs on a board of any version whose agents live, or gave a sign of life less than `quiet_s` ago.

    Raises
    ------
    DataError
        If it is no board, or cannot be read.
    """
    n = int(lib.mc_board_n_alive(os.fsencode(path), int(quiet_s * 1e9)))
    if n < 0:
        raise DataError(f"{path} is no board of mpicoloc, or cannot be read")
    return n


def n_foreign() -> int:
    """Jobs of other versions of mpicoloc that run on this node now."""
    return int(lib.mc_board_n_foreign())


def segment_paths(key: str) -> list[str]:
    """Segment files of a job of this user on this node, in rank order; others may put files beside them."""
    found = {}
    for path in glob.glob(glob.escape(shm_path(key, "")) + ".*.seg"):
        rank = path.rsplit(".", 2)[1]
        if rank.isdecimal() and shared_files.is_own_file(path):
            found[path] = int(rank)
    return sorted(found, key=found.__getitem__)


def segment_heads(key: str) -> list[SegmentHead]:
    """What the job's segments on this node say of their ranks now; those not yet complete are left out."""
    heads = []
    for path in segment_paths(key):
        segment = lib.mc_segment_map(path.encode())
        if segment:
            job_id = ffi.string(segment.job_id).decode("utf-8", "replace")
            heads.append(SegmentHead(segment.world_rank, segment.pid, segment.state, job_id))
            lib.mc_shm_unmap(segment, ffi.sizeof("mc_segment"))
    return heads


def n_untraced(key: str) -> int:
    """Events of the job on this node that its agent has still to write to the trace's file."""
    n = 0
    for path in segment_paths(key):
        segment = lib.mc_segment_map(path.encode())
        if segment:
            ring = segment.ring
            if ring.is_kept and not ring.error:
                n += ring.n_put - min(ring.n_taken, ring.n_put)
            lib.mc_shm_unmap(segment, ffi.sizeof("mc_segment"))
    return n


def map_file(path: str | os.PathLike[str]) -> np.void:
    """A segment, node file or board as it is now and as it changes, read-only.

    Parameters
    ----------
    path : str or path
        Its ending (.seg, .node, .board) tells which.

    Returns
    -------
    numpy.void
        One record of the file's struct.

    Raises
    ------
    DataError
        If the file is not one of ours, or of another version.
    """
    with shared_files.open_shared(path, is_own=False) as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _record(path, mapped)


def read_file(path: str | os.PathLike[str]) -> np.void:
    """A private copy of what `map_file` maps, for files that may have holes.

    Reading, unlike mapping, leaves them unallocated, so it works in a folder without room (no SIGBUS), and
    for a board that somebody shortens meanwhile. Only a board may be another user's.

    Raises
    ------
    DataError
        If the file is not one of ours, or of another version.
    OSError
        If it cannot be read, or is another user's.
    """
    with shared_files.open_shared(path, is_own=not os.fspath(path).endswith(".board")) as file:
        return _record(path, file.read(max(ffi.sizeof(struct) for struct in _STRUCT_OF_SUFFIX.values())))


def read_segment(
    path: str | os.PathLike[str], has_events: bool = True
) -> tuple[np.void, np.ndarray[Any, Any]]:
    """A private copy of a segment of this user's, its pending cycles settled, and its trace in time order.

    The trace is empty where the node agent writes it to a file, or without `has_events`. Reading, unlike
    mapping, leaves the holes of the sparse file unallocated, and what is zero takes no memory here either.

    Raises
    ------
    DataError
        If the file is not a segment of this version.
    """
    import numpy as np

    n_bytes = None if has_events else ffi.sizeof("mc_segment")
    with shared_files.open_shared(path) as file:
        content = shared_files.copy_sparse(file, n_bytes)
        segment = _record(path, content)
        if segment["state"] in (lib.MC_RANK_INIT, lib.MC_RANK_RUNNING):
            earlier, content = segment, shared_files.copy_sparse(file, n_bytes)
            segment = _record(path, content)
            _drop_rows_born_after(earlier, segment)
    lib.mc_segment_settle(ffi.cast("mc_segment *", ffi.from_buffer(content)))
    ring = np.frombuffer(content, dtype=np.uint8, offset=ffi.sizeof("mc_segment"))
    n_room = 0 if segment["ring"]["is_kept"] else int(segment["n_events_max"])
    n_room = min(n_room, ring.nbytes // ffi.sizeof("mc_event"))
    events = ring[: n_room * ffi.sizeof("mc_event")].view(dtype("mc_event"))
    events = events[events["t_ns"] > 0]
    return segment, events[np.argsort(events["t_ns"], kind="stable")]


_TABLES = ("sites", "peers", "collectives", "parts", "cycles")


def _drop_rows_born_after(earlier: np.void, segment: np.void) -> None:
    """Free the rows of a copy that had no key in a copy made before it.

    A row's key is stored after its names, but only x86 also reads them in that order: a copy made on another
    processor may have the new key and the old names. The names of a key that an earlier copy has are there.
    """
    for before, lane in zip(lanes(earlier), lanes(segment), strict=True):
        for table in _TABLES:
            keys = lane[table]["key"]
            # Written only where it changes: pages of zeros take no memory.
            keys[(before[table]["key"] == 0) & (keys != 0)] = 0


def text(cell: Any) -> str:
    """A char array of a record up to its end; the rest of a longer text may stand behind it."""
    return bytes(cell).split(b"\0")[0].decode("utf-8", "replace")


def lanes(segment: np.void) -> list[np.void]:
    """The tables of a rank's threads, records of mc_lane and mc_small_lane, which have the same fields."""
    return [*segment["lanes"], *segment["small_lanes"]]


def latest_call_ns(segment: np.void) -> int:
    """End of the last MPI call that any thread of a rank has finished, or when it got its tables."""
    return max(int(lane["head"]["calls"]["t_last"]) for lane in lanes(segment))


def _record(path: str | os.PathLike[str], content: Any) -> np.void:
    import numpy as np

    name = os.fspath(path)
    struct = _STRUCT_OF_SUFFIX.get(os.path.splitext(name)[1])
    if struct is None:
        raise DataError(f"{name} is no file of mpicoloc: name a {', '.join(_STRUCT_OF_SUFFIX)} file")
    if len(content) < dtype(struct).itemsize:
        raise DataError(f"{name} is cut short: {len(content)} bytes, a {struct} has {dtype(struct).itemsize}")
    record: np.void = np.frombuffer(content, dtype=dtype(struct), count=1)[0]
    found = (int(record["magic"]), int(record["abi_version"]))
    if found != (lib.MC_MAGIC, lib.MC_ABI_VERSION):
        raise DataError(
            f"{name} has magic {found[0]:#x} and version {found[1]}, not {lib.MC_MAGIC:#x} and "
            f"{lib.MC_ABI_VERSION}: the job ran with another version of mpicoloc"
        )
    # A struct that grew without a new version would be read as garbage.
    n_events = int(record["n_events_max"]) if struct == "mc_segment" else 0
    if int(record["size_bytes"]) != ffi.sizeof(struct) + n_events * ffi.sizeof("mc_event"):
        raise DataError(f"{name} has structs of another size: install mpicoloc again, all parts at once")
    return record


def tell_profile(key: str, state: int, complaint: str = "") -> None:
    """Tell the job's processes of this node what became of the profile, and remove what it was made of.

    In this order nothing stays where the end of the ranks is that of all processes, as in a container: those
    who wait have mapped the files.

    Parameters
    ----------
    key : str
        Names the job's files.
    state : int
        MC_PROFILE_WRITTEN or MC_PROFILE_FAILED.
    complaint : str
        Why it is not where the job said; rank 0 prints it.
    """
    segments, nodes = segment_paths(key), [shm_path(key, "node")]
    mapped = [(path, _mapped(path)) for path in (*nodes, *segments)]
    for path in (*nodes, *segments, *(shm_path(key, what) for what in ("log", "checkpoint"))):
        with suppress(OSError):
            os.unlink(path)
    text = complaint.encode()[: lib.MC_COMPLAINT_LEN - 1]
    for path, file in mapped:
        if file is None:
            continue
        struct = _STRUCT_OF_SUFFIX[os.path.splitext(path)[1]]
        if len(file) >= ffi.sizeof(struct):
            record = ffi.cast(f"{struct} *", ffi.from_buffer(file))
            if struct == "mc_segment":
                lib.mc_segment_set_outcome(record, state, text)
            else:
                record.profile = state


def _mapped(path: str) -> mmap.mmap | None:
    """The file, to be written to; None: there is none, or an empty one."""
    try:
        with shared_files.open_shared(path, os.O_RDWR) as file:
            return mmap.mmap(file.fileno(), 0)
    except (OSError, ValueError):
        return None


KEEPER_WITHIN_NS, KEEPER_STEP_NS = 2_000_000_000, 50_000_000
"""Wait so long for the keeper's agent before being the agent."""


class Agent:
    """A view of the keeper's node agent, or that agent itself (csrc/agent/), driven by the coordinator."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def run(self, step_ns: int, n_steps: int) -> int:
        """Do the agent's duties for `n_steps` steps, or until all ranks are in MPI_Finalize.

        Sleeps `step_ns` at a time, with the GIL free. Returns MC_OK or a status.
        """
        return int(lib.mc_agent_run(self._handle, step_ns, n_steps))

    def ranks(self) -> tuple[int, int, int]:
        """Ranks of this job on this node: seen ever, alive, finalizing."""
        n = ffi.new("int[3]")
        lib.mc_agent_ranks(self._handle, n, n + 1, n + 2)
        return n[0], n[1], n[2]

    @property
    def common(self) -> Common:
        """What it says of the shutters that the job's nodes have in common."""
        out = ffi.new("mc_common *")
        lib.mc_common_read(self._handle, out)
        return Common(*(int(getattr(out, name)) for name in Common._fields))

    def agree(self, is_on: bool) -> None:
        """Whether the coordinators of all nodes agree on shutters; if not, the job takes none."""
        lib.mc_common_state(self._handle, lib.MC_COMMON_ON if is_on else lib.MC_COMMON_OFF)

    def set_clock(self, offset_ns: int, bound_ns: int) -> None:
        """This node's clock against the first one's; `bound_ns` holds for all nodes."""
        lib.mc_common_clock(self._handle, offset_ns, bound_ns)

    def share(self, is_shared: bool) -> None:
        """Whether the job has company on some node: then all of its time is shared."""
        lib.mc_common_share(self._handle, is_shared)

    def ask(self, i: int, t0_ns: int, t1_ns: int) -> None:
        """Whether the node is free for shutter `i`, by its own clock; the answer comes in `common`."""
        lib.mc_common_ask(self._handle, i, t0_ns, t1_ns)

    def decide(self, i: int, is_firm: bool) -> None:
        """Shutter `i`, asked for before, is to be on all nodes, or on none."""
        lib.mc_common_decide(self._handle, i, is_firm)

    def confirm(self, i: int, verdict: int) -> None:
        """The verdict (MC_VERDICT_...) on shutter `i`, of all nodes."""
        lib.mc_common_confirm(self._handle, i, verdict)


@contextmanager
def open_agent(key: str, job_id: str) -> Iterator[Agent | None]:
    """The agent of job `key` for the time of a with block; None if the job is over and its files are gone.

    Raises
    ------
    EnvironmentFault
        If the board or the node file cannot be opened.
    """
    out = ffi.new("mc_agent **")
    # The keeper is the agent where there is one; its own session wakes it sooner than this process can wake.
    status = lib.MC_E_GONE
    deadline_ns = time.monotonic_ns() + KEEPER_WITHIN_NS
    while status == lib.MC_E_GONE and time.monotonic_ns() < deadline_ns:
        status = lib.mc_agent_watch(out, key.encode(), KEEPER_STEP_NS)
        heads = segment_heads(key)
        if status == lib.MC_E_GONE and not heads:
            yield None  # an agent now would make a node file that nobody removes
            return
        # A keeper that comes when the job is over starts no agent.
        if all(head.state == lib.MC_RANK_FINALIZING for head in heads):
            break
    if status != lib.MC_OK:
        lib.mc_board_outlive()
        status = lib.mc_agent_open(out, key.encode(), job_id.encode())
        if status == lib.MC_E_GONE:  # the keeper's has just begun
            status = lib.mc_agent_watch(out, key.encode(), KEEPER_WITHIN_NS)
    if status != lib.MC_OK:
        raise EnvironmentFault(f"node agent of {job_id} cannot start (status {status}): see `mpicoloc check`")
    try:
        yield Agent(out[0])
    finally:
        lib.mc_agent_close(out[0])
