"""The extra rank of each node: `python -m mpicoloc.job.coordinator`, started by `mpicoloc.wrap`.

It sleeps until the application calls MPI_Init or MPI_Session_init, then helps to split off a world without
coordinators. While the job runs it watches the keeper's node agent, or runs the agent itself if there is no
keeper. At the end it writes the profile while the ranks wait in MPI_Finalize. It shares the processors of the
application, so it never waits busily, and imports NumPy only at the end or in a short-lived child
(`WarmWriter`). Whatever fails here, it still takes part in MPI_Finalize, because the application would hang
otherwise.
"""

from __future__ import annotations

import array
import contextlib
import gc
import io
import marshal
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from mpicoloc import config
from mpicoloc.errors import EnvironmentFault, MpicolocError, print_to_stderr
from mpicoloc.job import blind_ranks, init_barrier
from mpicoloc.job.agreement import Agreement
from mpicoloc.pmpi import contract, node_agent

if TYPE_CHECKING:
    from mpi4py import MPI


IDLE_S = 3.0
"""The child ends after this time without a request."""
ANSWER_S = 10.0
"""Longest wait for the child's answer; after that the coordinator does the work, because the ranks wait."""
COMMAND_NAME = "mpicoloc-writer"
"""Name of the child for `ps -o comm` and /proc."""

Work = Callable[..., Any]


class WarmWriter:
    """A child process that loads the libraries for writing profiles while MPI starts.

    Loading NumPy and h5py takes a tenth of a second. If the coordinator loaded them at the end, the ranks
    would wait in MPI_Finalize; if it loaded them at its start, MPI_Init would be delayed. So a child loads
    them; it is forked before MPI is loaded, so that it shares no state of MPI. The child serves short jobs:
    in longer jobs it ends after `IDLE_S`, which frees its memory. Without a child the coordinator does the
    work itself.

    `work` lists the functions that the child can run. `marshal` must support their arguments and results, and
    running them twice must be harmless. `load` loads their libraries; the child calls `load` at once.
    """

    def __init__(self, work: Iterable[Work], load: Callable[[], object]) -> None:
        self._pipe: io.BufferedRWPair | None = None
        self._pid = 0
        with contextlib.suppress(OSError):  # without a process or socket, `call` does the work itself
            self._start({one.__name__: one for one in work}, load)

    def call(self, function: Work, *arguments: Any) -> Any:
        """The result of a function, computed by the child if it is available."""
        found = self._ask([function.__name__, *arguments])
        return function(*arguments) if found is None else found[0]

    def close(self) -> None:
        """Let the child end if it is still alive."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                self._pipe.close()
            self._pipe = None
            with contextlib.suppress(OSError):
                os.waitpid(self._pid, os.WNOHANG)

    def _start(self, work: Mapping[str, Work], load: Callable[[], object]) -> None:
        own, childs = socket.socketpair()
        own.settimeout(ANSWER_S)
        with own, childs:
            self._pid = os.fork()
            if self._pid == 0:
                _be_child(childs, work, load)
            self._pipe = own.makefile("rwb")

    def _ask(self, words: list[Any]) -> tuple[Any] | None:
        """The child's answer in a tuple. If the child fails, the result is None, and the child is ended."""
        if self._pipe is None:
            return None
        try:
            _send(self._pipe, words)
            return (marshal.load(self._pipe),)
        except (OSError, ValueError, EOFError, TypeError):
            self.close()
            return None


def _be_child(conn: socket.socket, work: Mapping[str, Work], load: Callable[[], object]) -> NoReturn:
    try:
        _let_go(conn.fileno())
        load()
        pipe = conn.makefile("rwb")
        while select.select([conn], [], [], IDLE_S)[0]:
            name, *arguments = marshal.load(pipe)
            _send(pipe, work[name](*arguments))
    except BaseException:
        pass  # the coordinator sees the socket closed, does the same work, and reports the error
    finally:
        os._exit(0)


def _send(pipe: io.BufferedRWPair, words: Any) -> None:
    marshal.dump(words, pipe)
    pipe.flush()


def _let_go(kept: int) -> None:
    """Close all files that the launcher waits for, and use SCHED_BATCH, which preempts no rank."""
    gc.disable()  # garbage collection makes imports a tenth slower
    for name in os.listdir("/proc/self/fd"):
        if int(name) != kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    _schedule(os.SCHED_BATCH)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(COMMAND_NAME)


POLL_MS = 20
LOOK_S = 0.01
"""Time, s, within which the launcher is sure to look for ended ranks after a process closed its output."""
TROUBLES = {
    "forked": "a forked child of a rank called MPI_Finalize, which MPI forbids: the job is ended",
    "partitioned": "a rank uses partitioned communication, which makes Open MPI wait for all ranks, "
    f"including the coordinator: {blind_ranks.ENDED}",
}
"""Suffixes of empty files (`mc_announce_trouble`), and why the job is ended if such a file exists."""
TAG = "mpicoloc"
"""String tag with which the shim creates a communicator from the shim's own session."""


class Membership:
    """The worlds that this coordinator shares with the application, from one start of MPI to its end.

    The coordinator starts MPI the same way as the application, by MPI_Init or a session. Start and end of MPI
    are collective over all processes of the launcher, including coordinators, and the shim splits each world
    that it finds, so every MPI call here has its counterpart in ``csrc/guest/world/world.c``. `comm` contains
    all coordinators.
    """

    def __init__(self, mpi: Any, announcement: str, record: init_barrier.Record, i_round: int = 0) -> None:
        self.mpi = mpi
        self.announcement = announcement
        self.record = record
        self.i_round = i_round
        self.comm: MPI.Comm = mpi.COMM_NULL
        self._real: MPI.Comm = mpi.COMM_NULL
        self._session: Any = None
        self._in_world = False

    @property
    def may_grow(self) -> bool:
        """Whether the application may still call MPI_Init."""
        return not self._in_world

    def join(self) -> None:
        """Start MPI together with the application."""
        self.record.begin(self.i_round)
        if self._is_announced("session"):
            self._join_session()
        else:
            self._join_world()  # also if no file could be created: most applications use MPI_Init

    def look(self) -> None:
        """Join MPI_COMM_WORLD if the application, which began with a session, now calls MPI_Init.

        End the job if a rank has announced an operation that would wait for this process forever.
        """
        for what, why in TROUBLES.items():
            if os.path.exists(self.announcement.removesuffix("init") + what):
                print_to_stderr(why)
                blind_ranks.end_all()
                raise _Stopped(EnvironmentFault.exit_code)
        if self.may_grow and self._is_announced("init"):
            self._join_world()

    def _is_announced(self, how: str) -> bool:
        return (how, self.i_round) in init_barrier.announced(self.announcement)

    def _join_world(self) -> None:
        self.mpi.Init_thread(self.mpi.THREAD_FUNNELED)
        self._in_world = True
        self._split(self.mpi.COMM_WORLD)

    def _join_session(self) -> None:
        mpi = self.mpi
        self._session = mpi.Session.Init(mpi.INFO_NULL, mpi.ERRORS_RETURN)  # waits for all processes
        if self._is_announced("init"):
            self._join_world()
            return
        group = self._session.Create_group("mpi://WORLD")
        real = mpi.Intracomm.Create_from_group(group, TAG, mpi.INFO_NULL, mpi.ERRORS_RETURN)
        group.Free()
        self._split(real)

    def _split(self, real: MPI.Comm) -> None:
        comm = real.Split(1, real.Get_rank())
        if self.comm == self.mpi.COMM_NULL:
            self.comm, self._real = comm, real
        else:
            comm.Free()

    def sleep_through(self) -> None:
        """Sleep until the ranks finalize MPI, in a round that is not recorded."""
        goodbye = self._real.Ibarrier()
        while not goodbye.Test():
            self.look()
            time.sleep(POLL_MS * 1e-3)

    def leave(self) -> None:
        """End MPI with the application."""
        if self.comm != self.mpi.COMM_NULL:
            self.comm.Free()
        if self._session is not None:
            if self._real not in (self.mpi.COMM_NULL, self.mpi.COMM_WORLD):
                self._real.Free()
            self._session.Finalize()
        if self._in_world:
            self.mpi.Finalize()


# mpi4py's pickling methods set an attribute on MPI_COMM_SELF, which does not exist in a session.


def first_with(comm: MPI.Comm, is_true: bool) -> int:
    """The first rank whose `is_true` is set, or 0 if there is none."""
    flags = bytearray(comm.Get_size())
    comm.Allgather(bytes([is_true]), flags)
    return max(0, flags.find(1))


def gather(comm: MPI.Comm, content: bytes, root: int) -> list[bytes] | None:
    """On `root`, the contents of all ranks; None on the other ranks."""
    sizes = array.array("q", [0] * comm.Get_size())
    comm.Allgather(array.array("q", [len(content)]), sizes)
    if comm.Get_rank() != root:
        comm.Send(content, root)
        return None
    parts = []
    for source, size in enumerate(sizes):
        part = bytearray(size)
        if source != root:
            comm.Recv(part, source)
        parts.append(content if source == root else bytes(part))
    return parts


def bcast(comm: MPI.Comm, number: int, root: int) -> int:
    """Broadcast the number from `root`."""
    told = array.array("q", [number])
    comm.Bcast(told, root)
    return told[0]


class Ranks:
    """The application's processes, which may start MPI again after ending it (MPI 4)."""

    def __init__(self, key: str) -> None:
        self._fds = []
        for head in contract.segment_heads(key):
            with contextlib.suppress(OSError):  # gone already
                self._fds.append(os.pidfd_open(head.pid))

    def begin_again(self, announcement: str, i_round: int) -> bool:
        """Wait until a process announces MPI for round `i_round`. Returns False once all have ended."""
        parent = os.getppid()
        poll = select.poll()
        left = set(self._fds)
        for fd in left:
            poll.register(fd, select.POLLIN)
        while left and os.getppid() == parent:
            if any(last >= i_round for _, last in init_barrier.announced(announcement)):
                return True
            for fd, _ in poll.poll(POLL_MS):
                poll.unregister(fd)
                left.discard(fd)
        return False


STEP_NS = 25_000_000
"""Longest sleep of the agent, and hence the largest delay before it notices the job's end."""
STEP_MIN_NS, STEP_PART = 2_000_000, 16
"""Shortest sleep, ns, and divisor for the longest: a sleep lasts at most the job's age / STEP_PART, so that a
short job does not wait long for this process."""
TRACE_WITHIN_S = 5.0
"""Longest wait for the trace while the agent that writes it makes no progress."""
N_STEPS = 20
"""Number of steps between two checks for signals and for messages of the other nodes."""
N_STEPS_IF_ASKED = 2
"""Used instead of `N_STEPS` while others may be waiting for this process: an application that has a session
and may still call MPI_Init, or the coordinators of other nodes."""
SEGMENTS_WITHIN_S = 5.0
"""Ranks that have no segment this long after MPI_Init have switched mpicoloc off."""
RESTORED_WITHIN_S = 1.0
"""Longest wait for the keeper to restore deleted segments."""
ALL_WITHIN_S = 5.0
"""Longest time between the first and the last rank's segment."""


class _Stopped(BaseException):
    """Raised if the launcher (SIGTERM) or this process ends the job; the argument is the exit code."""


class Watcher:
    """Stands in for an agent that cannot start: it only observes the states of the ranks."""

    def __init__(self, key: str) -> None:
        self._key = key

    def run(self, step_ns: int, n_steps: int) -> int:
        """Sleep for one step, longer than an agent's step because looking at the ranks costs more."""
        time.sleep(max(step_ns * 1e-9, min(step_ns * n_steps * 1e-9, 0.1)))
        return contract.MC_OK

    def ranks(self) -> tuple[int, int, int]:
        """Numbers of this job's ranks on this node: seen so far, alive, finalizing."""
        heads = contract.segment_heads(self._key)
        alive = [head for head in heads if os.path.exists(f"/proc/{head.pid}")]
        return len(heads), len(alive), sum(head.state == contract.MC_RANK_FINALIZING for head in alive)


def main() -> int:
    """Entry of the command; returns its exit code."""
    key = os.environ.get(config.KEY_ENV)
    if not key:
        print_to_stderr("do not start the coordinator directly: `python -m mpicoloc.wrap` starts it")
        return 2
    announcement = contract.shm_path(key, "init")
    writer = WarmWriter([_packed_part, _merge], _load_writer)  # before MPI is loaded
    try:
        mpi = _load_mpi()
    except (ImportError, RuntimeError, OSError) as error:
        print_to_stderr(
            f"mpi4py of {sys.executable} cannot load this job's MPI ({error}), so the job is "
            "ended: see `mpicoloc check`, or use LD_PRELOAD=$(mpicoloc preload APP) without wrap"
        )
        init_barrier.end_all(key, _n_ranks(), announcement)
        return EnvironmentFault.exit_code
    return _wait_and_take_part(mpi, key, announcement, writer)


def _wait_and_take_part(mpi: Any, key: str, announcement: str, writer: WarmWriter) -> int:
    try:
        is_begun = init_barrier.wait_for_init(key, announcement, _n_ranks())
    except EnvironmentFault as error:
        _tell_reason(str(error))
        _remove_marks(key)  # the launcher may end this process with the first rank
        blind_ranks.end_all()
        return error.exit_code
    if is_begun:
        _take_part(mpi, key, announcement, writer)
    else:
        _tell_reason("no profile was written: no rank on this node called MPI_Init")
    _remove_marks(key)
    return 0


def _remove_marks(key: str) -> None:
    """Remove the job's marker files, which a keeper would not remove."""
    for what in ("init", init_barrier.OFF, blind_ranks.PAST, *TROUBLES):
        with contextlib.suppress(OSError):
            os.unlink(contract.shm_path(key, what))


def _tell_reason(why: str) -> None:
    """Print why there is no profile, and delete the marker file: else `mpicoloc run` prints a reason too."""
    print_to_stderr(why)
    with contextlib.suppress(OSError):
        os.unlink(os.environ.get(config.REASON_ENV, ""))


def _take_part(mpi: Any, key: str, announcement: str, writer: WarmWriter) -> None:
    """Start and end MPI together with the application; only its first use of MPI is recorded."""
    record = init_barrier.Record(announcement)
    member = Membership(mpi, announcement, record)
    member.join()
    try:
        with _sigterm_stops():
            ranks = _guarded(_watch, key, member)
            _guarded(_await_trace, key)
            _guarded(_write_profile, key, member.comm, writer)
            writer.close()
        _leave(member)
        while ranks is not None and mpi.Get_version()[0] >= 4:
            i_round = member.i_round + 1
            if not ranks.begin_again(announcement, i_round):
                _close_stdout()
                break
            member = Membership(mpi, announcement, record, i_round)
            member.join()
            member.sleep_through()
            _leave(member)
    except _Stopped as stopped:
        for what in TROUBLES:
            with contextlib.suppress(OSError):
                os.unlink(contract.shm_path(key, what))
        sys.stderr.flush()
        os._exit(*stopped.args)  # the launcher kills all processes; the keeper writes a partial profile


def _leave(member: Membership) -> None:
    """Finalize MPI at idle priority: MPI_Finalize may spin until the last rank arrives."""
    _schedule(os.SCHED_IDLE)
    member.leave()
    _schedule(os.SCHED_OTHER)


def _close_stdout() -> None:
    """Make MPICH 5's launcher look for ranks that have ended.

    The launcher looks for ended ranks when a process closes its output, but at that time a rank may still be
    exiting. It does not look when the last process closes its output, and would return exit code 0. So close
    this process's output early.
    """
    with contextlib.suppress(OSError):
        stdout, nowhere = os.fstat(1), os.open(os.devnull, os.O_WRONLY)
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(fd), stdout):
                    os.dup2(nowhere, fd)
        time.sleep(LOOK_S)


def _schedule(policy: int) -> None:
    """Set this process's scheduling policy, if that is allowed."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, policy, os.sched_param(0))


def _n_ranks() -> int:
    """Number of the application's ranks on this node."""
    return int(os.environ.get(config.SIBLINGS_ENV, "0"))


def _load_mpi() -> Any:
    import mpi4py

    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
    from mpi4py import MPI

    return MPI


@contextlib.contextmanager
def _sigterm_stops() -> Iterator[None]:
    """In this context SIGTERM raises `_Stopped`, so that `with` blocks clean up; elsewhere SIGTERM kills."""

    def stop(signum: int, frame: object) -> None:
        raise _Stopped(0)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _guarded(function: Any, *arguments: Any) -> Any:
    """Call a function. Print a failure as one line: a failure here must not harm the application."""
    try:
        return function(*arguments)
    except MpicolocError as error:
        print_to_stderr(str(error))
    except Exception as error:
        print_to_stderr(f"coordinator: {type(error).__name__}: {error}")
    return None


def _watch(key: str, member: Membership) -> Ranks | None:
    """Watch the ranks, or be the node's agent, until the ranks of every node are in MPI_Finalize."""
    with contextlib.ExitStack() as stack:
        agent = _guarded(_open_agent, key, stack)
        ranks = _guarded(Ranks, key)
        agreement = Agreement(member.comm, agent if isinstance(agent, node_agent.Agent) else None)
        if agent is not None:
            _guarded(_run_until_over, agent, key, member, agreement)
        while agreement.is_active:  # the other nodes wait for this one's message
            agreement.step(is_over=True)
            member.look()
            _rest(agent)
        # Ranks on other nodes may still be computing; until they finish, this node's ranks remain in the job.
        everywhere = member.comm.Ibarrier()
        while not everywhere.Test():
            member.look()
            _rest(agent)
    return ranks if isinstance(ranks, Ranks) else None


def _rest(agent: node_agent.Agent | Watcher | None) -> None:
    if agent is None:
        time.sleep(STEP_NS * 1e-9)
    else:
        agent.run(STEP_NS, 1)


def _run_until_over(
    agent: node_agent.Agent | Watcher, key: str, member: Membership, agreement: Agreement
) -> None:
    started_s = time.monotonic()
    while not _is_over(agent, key, time.monotonic() - started_s):
        member.look()
        agreement.step(is_over=False)
        step_ns = _step_ns(started_s)
        is_asked = member.may_grow or agreement.is_active or step_ns < STEP_NS
        agent.run(step_ns, N_STEPS_IF_ASKED if is_asked else N_STEPS)


def _step_ns(started_s: float) -> int:
    """Length of the next sleep for a job that started at `started_s`."""
    age_ns = int((time.monotonic() - started_s) * 1e9)
    return min(STEP_NS, max(STEP_MIN_NS, age_ns // STEP_PART))


def _open_agent(key: str, stack: contextlib.ExitStack) -> node_agent.Agent | Watcher | None:
    job_id = _wait_for_segments(key)
    if job_id is None:
        return None
    try:
        return stack.enter_context(node_agent.open_agent(key, job_id))
    except EnvironmentFault as error:
        print_to_stderr(str(error))
        return Watcher(key)


def _wait_for_segments(key: str) -> str | None:
    """The job's id, from the first segment on this node; None if there is none and a rank has said why."""
    started_s = time.monotonic()
    while time.monotonic() < started_s + SEGMENTS_WITHIN_S and not init_barrier.any_is_off(key):
        for head in contract.segment_heads(key):
            return head.job_id
        time.sleep(_step_ns(started_s) * 1e-9)
    return None


def _is_over(agent: node_agent.Agent | Watcher, key: str, age_s: float) -> bool:
    n_seen, n_alive, n_finalizing = agent.ranks()
    if n_seen < _n_ranks() and age_s < ALL_WITHIN_S and not init_barrier.any_is_off(key):
        return False
    return n_seen > 0 and n_finalizing >= n_alive


def _await_trace(key: str) -> None:
    """Wait until the keeper's agent has written all events, because the node may be gone after the job."""
    if config.get("trace") != -1:
        return
    deadline_s, before = time.monotonic() + TRACE_WITHIN_S, 0
    while (n := contract.n_untraced(key)) and time.monotonic() < deadline_s:
        if n != before:
            deadline_s, before = time.monotonic() + TRACE_WITHIN_S, n
        time.sleep(0.005)


def _write_profile(key: str, comm: MPI.Comm, writer: WarmWriter) -> None:
    """Write the profile and tell the ranks, which wait for this message in MPI_Finalize.

    If the coordinator is killed here, the ranks get no message, and the keeper writes a partial profile.
    """
    failed = (contract.MC_PROFILE_FAILED, "no profile was written: the coordinator failed")
    state, complaint = _guarded(_gather_profile, key, comm, writer) or failed
    _guarded(contract.tell_profile, key, state, complaint)


def _gather_profile(key: str, comm: MPI.Comm, writer: WarmWriter) -> tuple[int, str]:
    """Gather the parts of all nodes on the node of the application's rank 0, and write the profile there.

    Every coordinator makes the three collective calls, whatever fails on its node, because the others wait
    for it. Returns the profile's state, and the reason if it was not written as requested.
    """
    content, has_first = _guarded(writer.call, _packed_part, key) or (b"", False)
    root = first_with(comm, has_first)
    packed = gather(comm, content, root)
    complaint = "" if packed is None else writer.call(_merge, [packed.pop(root), *packed])
    own = contract.MC_PROFILE_FAILED if complaint else contract.MC_PROFILE_WRITTEN
    return bcast(comm, own, root), complaint


def _load_writer() -> None:
    from mpicoloc.profile import assemble, bundle, collect  # noqa: F401


def _packed_part(key: str) -> tuple[bytes, bool]:
    """This node's part of the profile, and whether rank 0 of the application runs here."""
    gc.disable()  # garbage collection makes imports a tenth slower
    try:
        from mpicoloc.profile.bundle import pack_part
        from mpicoloc.profile.collect import collect
    finally:
        gc.enable()
    _await_segments(key)
    if not contract.segment_paths(key):
        return b"", False
    part = collect(key)
    return b"".join(pack_part(part)), part.facts["world_rank"] == 0


def _await_segments(key: str) -> None:
    """Wait until the keeper, which sees that the ranks are in MPI_Finalize, has restored deleted segments."""
    deadline_s = time.monotonic() + RESTORED_WITHIN_S
    while len(contract.segment_paths(key)) < _n_ranks() and time.monotonic() < deadline_s:
        if init_barrier.any_is_off(key):
            return
        time.sleep(0.01)


def _merge(packed: list[bytes]) -> str:
    """Write the profile of all nodes. If this fails, the result is the reason, which rank 0 prints."""
    from mpicoloc.profile import assemble
    from mpicoloc.profile.bundle import unpack_part

    try:
        parts = [unpack_part(content) for content in packed if content]
        return assemble.write(parts)[1] if parts else "no profile was written: no rank left data"
    except MpicolocError as error:
        return str(error)
    except Exception as error:
        return f"no profile was written: {type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
