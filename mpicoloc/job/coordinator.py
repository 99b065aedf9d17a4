"""The extra rank of each node: `python -m mpicoloc.job.coordinator`, started by `mpicoloc.wrap`.

It sleeps until the application calls MPI_Init or MPI_Session_init, gives it a world without coordinators,
looks on while the job lives (the keeper has the node agent; where there is none, it is the agent itself), and
writes the profile while the ranks wait in MPI_Finalize. It shares the processors of the application: no NumPy
before the end but in a child that ends soon (`WarmWriter`), no busy waiting ever. Whatever fails here, it
still takes part in MPI_Finalize, where the application would hang without it.
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
"""The child ends if nobody has asked for so long."""
ANSWER_S = 10.0
"""The coordinator waits no longer for an answer, and does the work itself: the ranks wait for that."""
COMMAND_NAME = "mpicoloc-writer"
"""Name of the child for `ps -o comm` and /proc."""

Work = Callable[..., Any]


class WarmWriter:
    """A child that loads what writes profiles while MPI starts.

    NumPy and h5py take a tenth of a second. The ranks would wait for them in MPI_Finalize, and a coordinator
    that loads them at its start delays MPI_Init. So a child loads them, which is made before MPI is loaded:
    it has nothing of MPI. It ends soon if the job is no short one, whose end may wait, and then takes no
    memory. Whatever happens to it, the coordinator does the work itself.

    `work` are the functions that it can be asked for: `marshal` must take their arguments and results, and a
    second call must do no harm. `load` loads what they need; it is called in the child at once.
    """

    def __init__(self, work: Iterable[Work], load: Callable[[], object]) -> None:
        self._pipe: io.BufferedRWPair | None = None
        self._pid = 0
        with contextlib.suppress(OSError):  # no process or no socket to be had: then without
            self._start({one.__name__: one for one in work}, load)

    def call(self, function: Work, *arguments: Any) -> Any:
        """The result of a function, computed by the child if it can."""
        found = self._ask([function.__name__, *arguments])
        return function(*arguments) if found is None else found[0]

    def close(self) -> None:
        """Let the child end, if it still lives."""
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
        """The answer; None if there is none, and then there is no child any more."""
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
        pass  # the coordinator sees the socket closed, does the same itself, and tells what is wrong
    finally:
        os._exit(0)


def _send(pipe: io.BufferedRWPair, words: Any) -> None:
    marshal.dump(words, pipe)
    pipe.flush()


def _let_go(kept: int) -> None:
    """Hold nothing open that the launcher waits for, and preempt no rank."""
    gc.disable()  # imports take a tenth longer with it
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
"""The launcher has looked for ended ranks so long after a process closed its output."""
TROUBLES = {
    "forked": "a forked child of a rank called MPI_Finalize, which MPI forbids: the job is ended",
    "partitioned": "a rank uses partitioned communication, for which Open MPI waits for all ranks, the "
    f"coordinator too: {blind_ranks.ENDED}",
}
"""Empty files of the job (`mc_announce_trouble`), and why it is ended when one is there."""
TAG = "mpicoloc"
"""Tag of the communicator that the shim's own session makes."""


class Membership:
    """The worlds that this coordinator shares with the application, from one start of MPI to its end.

    What the application opens, MPI_Init or a session, it opens too. The library's start and end are
    collective over all processes of the launcher, coordinators included, and the shim splits each world that
    it finds: every call here has its counterpart in ``csrc/guest/world/world.c``. `comm` are all
    coordinators.
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
        """Whether MPI_Init may still come."""
        return not self._in_world

    def join(self) -> None:
        """Join the application, which begins to use MPI."""
        self.record.begin(self.i_round)
        if self._is_announced("session"):
            self._join_session()
        else:
            self._join_world()  # also where no file can be made: most applications use MPI_Init

    def look(self) -> None:
        """Join MPI_COMM_WORLD too when the application, which began with a session, calls MPI_Init.

        End the job if a rank does what would wait for this process.
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
        """Sleep until the ranks take their leave, where nothing is recorded any more."""
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


# mpi4py's methods for any object set an attribute on MPI_COMM_SELF, which a session has not.


def first_with(comm: MPI.Comm, is_true: bool) -> int:
    """First rank for which it is true, 0 if for none."""
    flags = bytearray(comm.Get_size())
    comm.Allgather(bytes([is_true]), flags)
    return max(0, flags.find(1))


def gather(comm: MPI.Comm, content: bytes, root: int) -> list[bytes] | None:
    """All ranks' contents at `root`, None elsewhere."""
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
    """The number of `root`, everywhere."""
    told = array.array("q", [number])
    comm.Bcast(told, root)
    return told[0]


class Ranks:
    """The application's processes, of which one may start MPI again after it was ended (MPI 4)."""

    def __init__(self, key: str) -> None:
        self._fds = []
        for head in contract.segment_heads(key):
            with contextlib.suppress(OSError):  # gone already
                self._fds.append(os.pidfd_open(head.pid))

    def begin_again(self, announcement: str, i_round: int) -> bool:
        """Wait until MPI is announced for round `i_round`; False once all of them have ended."""
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
"""Longest sleep of the agent: how late the end of the job may be noticed."""
STEP_MIN_NS, STEP_PART = 2_000_000, 16
"""While a job is young, sleep only this part of its age, but at least so long: a short job must not wait for
this process."""
TRACE_WITHIN_S = 5.0
"""Wait so long for an agent that writes no more of the trace."""
N_STEPS = 20
"""Steps between two looks at signals and at the other nodes."""
N_STEPS_IF_ASKED = 2
"""The same while others would wait: the application, which has a session and may yet call MPI_Init, or the
coordinators of other nodes."""
SEGMENTS_WITHIN_S = 5.0
"""Ranks without a segment so long after MPI_Init have switched mpicoloc off."""
RESTORED_WITHIN_S = 1.0
"""Wait so long for segments that are not there."""
ALL_WITHIN_S = 5.0
"""Time between the first and the last rank's segment."""


class _Stopped(BaseException):
    """The job is ended, by the launcher (SIGTERM) or by this process, which exits with the code given."""


class Watcher:
    """Stands in for an agent that cannot start: sees how the ranks are, and no more."""

    def __init__(self, key: str) -> None:
        self._key = key

    def run(self, step_ns: int, n_steps: int) -> int:
        """Sleep for one step, longer than an agent's because looking costs more."""
        time.sleep(max(step_ns * 1e-9, min(step_ns * n_steps * 1e-9, 0.1)))
        return contract.MC_OK

    def ranks(self) -> tuple[int, int, int]:
        """Ranks of this job on this node: seen, alive, finalizing."""
        heads = contract.segment_heads(self._key)
        alive = [head for head in heads if os.path.exists(f"/proc/{head.pid}")]
        return len(heads), len(alive), sum(head.state == contract.MC_RANK_FINALIZING for head in alive)


def main() -> int:
    """Entry of the command; returns its exit code."""
    key = os.environ.get(config.KEY_ENV)
    if not key:
        print_to_stderr("the coordinator is started by `python -m mpicoloc.wrap` only")
        return 2
    announcement = contract.shm_path(key, "init")
    writer = WarmWriter([_packed_part, _merge], _load_writer)  # before there is any MPI
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
    """Remove the job's files that have no segment, where no keeper does."""
    for what in ("init", init_barrier.OFF, blind_ranks.PAST, *TROUBLES):
        with contextlib.suppress(OSError):
            os.unlink(contract.shm_path(key, what))


def _tell_reason(why: str) -> None:
    """Tell why there is no profile, so that `mpicoloc run` need not."""
    print_to_stderr(why)
    with contextlib.suppress(OSError):
        os.unlink(os.environ.get(config.REASON_ENV, ""))


def _take_part(mpi: Any, key: str, announcement: str, writer: WarmWriter) -> None:
    """Be in MPI while the application is; only the first time, which is recorded, is there work to do."""
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
        os._exit(*stopped.args)  # the launcher kills everybody: the keeper writes what there is


def _leave(member: Membership) -> None:
    """MPI_Finalize may spin until the last rank is there: only on processors nobody wants."""
    _schedule(os.SCHED_IDLE)
    member.leave()
    _schedule(os.SCHED_OTHER)


def _close_stdout() -> None:
    """Have MPICH 5's launcher look for ranks that have ended.

    It looks when a process closes its output, and a rank may then not be quite gone. When the last process
    does, it no longer looks, and the job's exit code would be 0.
    """
    with contextlib.suppress(OSError):
        stdout, nowhere = os.fstat(1), os.open(os.devnull, os.O_WRONLY)
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(fd), stdout):
                    os.dup2(nowhere, fd)
        time.sleep(LOOK_S)


def _schedule(policy: int) -> None:
    """Have this process scheduled so, if that is allowed."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, policy, os.sched_param(0))


def _n_ranks() -> int:
    """Ranks of the application on this node."""
    return int(os.environ.get(config.SIBLINGS_ENV, "0"))


def _load_mpi() -> Any:
    import mpi4py

    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
    from mpi4py import MPI

    return MPI


@contextlib.contextmanager
def _sigterm_stops() -> Iterator[None]:
    """SIGTERM raises `_Stopped`, so that with blocks end; outside, in MPI's long calls, it just kills."""

    def stop(signum: int, frame: object) -> None:
        raise _Stopped(0)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _guarded(function: Any, *arguments: Any) -> Any:
    """Call it; a failure becomes one line, because the application must not be harmed by it."""
    try:
        return function(*arguments)
    except MpicolocError as error:
        print_to_stderr(str(error))
    except Exception as error:
        print_to_stderr(f"coordinator: {type(error).__name__}: {error}")
    return None


def _watch(key: str, member: Membership) -> Ranks | None:
    """Look on, or be the node's agent, until the ranks of every node are in MPI_Finalize."""
    with contextlib.ExitStack() as stack:
        agent = _guarded(_open_agent, key, stack)
        ranks = _guarded(Ranks, key)
        agreement = Agreement(member.comm, agent if isinstance(agent, node_agent.Agent) else None)
        if agent is not None:
            _guarded(_run_until_over, agent, key, member, agreement)
        while agreement.is_active:  # the other nodes wait for this one's word
            agreement.step(is_over=True)
            member.look()
            _rest(agent)
        # Other nodes may still compute; this one's ranks are part of the job until then.
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
    """Time to sleep at once, at this time after the start."""
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
    """The job's id, from the first segment of this node. None: no rank left data, and has said why."""
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
    """Until the keeper's agent has written all events: with the job's last process the node may be gone."""
    if config.get("trace") != -1:
        return
    deadline_s, before = time.monotonic() + TRACE_WITHIN_S, 0
    while (n := contract.n_untraced(key)) and time.monotonic() < deadline_s:
        if n != before:
            deadline_s, before = time.monotonic() + TRACE_WITHIN_S, n
        time.sleep(0.005)


def _write_profile(key: str, comm: MPI.Comm, writer: WarmWriter) -> None:
    """Have the profile written and tell the ranks, which wait for that in MPI_Finalize.

    A coordinator that is ended here tells nothing: then the keeper writes what there is.
    """
    failed = (contract.MC_PROFILE_FAILED, "no profile was written: the coordinator failed")
    state, complaint = _guarded(_gather_profile, key, comm, writer) or failed
    _guarded(contract.tell_profile, key, state, complaint)


def _gather_profile(key: str, comm: MPI.Comm, writer: WarmWriter) -> tuple[int, str]:
    """Gather all nodes' parts where rank 0 of the application runs, and write the profile there.

    Every coordinator makes the three collective calls, whatever fails on its node: the others wait for it.
    Returns the profile's state and why it is not where the job wanted it.
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
    gc.disable()  # imports take a tenth longer with it
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
    """Until the keeper, which sees the ranks in MPI_Finalize, has made deleted ones again."""
    deadline_s = time.monotonic() + RESTORED_WITHIN_S
    while len(contract.segment_paths(key)) < _n_ranks() and time.monotonic() < deadline_s:
        if init_barrier.any_is_off(key):
            return
        time.sleep(0.01)


def _merge(packed: list[bytes]) -> str:
    """Write the profile of all nodes; returns why it is not where the job wanted it, for rank 0 to tell."""
    from mpicoloc.profile import assemble
    from mpicoloc.profile.bundle import unpack_part

    try:
        parts = [unpack_part(content) for content in packed if content]
        return assemble.write(parts)[1] if parts else "no profile was written: no rank has left data"
    except MpicolocError as error:
        return str(error)
    except Exception as error:
        return f"no profile was written: {type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
