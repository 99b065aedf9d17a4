"""A child of the coordinator that loads what writes profiles while MPI starts.

NumPy and h5py take a tenth of a second. The ranks would wait for them in MPI_Finalize, and a coordinator that
loads them at its start delays MPI_Init. So a child loads them, which is made before MPI is loaded: it has
nothing of MPI. It ends soon if the job is no short one, whose end may wait, and then takes no memory.
Whatever happens to it, the coordinator does the work itself.
"""

from __future__ import annotations

import contextlib
import gc
import marshal
import os
import select
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

IDLE_S = 3.0
"""The child ends if nobody has asked for so long."""
ANSWER_S = 10.0
"""The coordinator waits no longer for an answer, and does the work itself: the ranks wait for that."""
COMMAND_NAME = "mpicoloc-writer"
"""What `ps -o comm` and /proc call the child."""
_HEAD_BYTES = 8

Work = Callable[..., Any]


class WarmWriter:
    """The child, as the coordinator sees it.

    Parameters
    ----------
    work : functions
        What it can be asked for. `marshal` must take their arguments and results; a second call must do no
        harm.
    load : function
        Loads what they need; called in the child at once.
    """

    def __init__(self, work: Iterable[Work], load: Callable[[], object]) -> None:
        self._socket: socket.socket | None = None
        self._pid = 0
        with contextlib.suppress(OSError):  # no process or no socket to be had: then without
            self._start({one.__name__: one for one in work}, load)

    def call(self, function: Work, *arguments: Any) -> Any:
        """What a function returns, computed by the child if it can."""
        found = self._ask([function.__name__, *arguments])
        return function(*arguments) if found is None else found[0]

    def close(self) -> None:
        """Let the child end, if it still lives."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            with contextlib.suppress(OSError):
                os.waitpid(self._pid, os.WNOHANG)

    def _start(self, work: Mapping[str, Work], load: Callable[[], object]) -> None:
        own, childs = socket.socketpair()
        own.settimeout(ANSWER_S)
        with childs:
            self._pid = os.fork()
            if self._pid == 0:
                _be_child(childs, work, load)
        self._socket = own

    def _ask(self, words: list[Any]) -> tuple[Any] | None:
        """The answer; None if there is none, and then there is no child any more."""
        if self._socket is None:
            return None
        try:
            _send(self._socket, words)
            return (_receive(self._socket),)
        except (OSError, ValueError, EOFError, TypeError):
            self.close()
            return None


def _be_child(conn: socket.socket, work: Mapping[str, Work], load: Callable[[], object]) -> NoReturn:
    try:
        _let_go(conn.fileno())
        load()
        while select.select([conn], [], [], IDLE_S)[0]:
            name, *arguments = _receive(conn)
            _send(conn, work[name](*arguments))
    except BaseException:
        pass  # the coordinator sees the socket closed, does the same itself, and tells what is wrong
    finally:
        os._exit(0)


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
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(COMMAND_NAME)


def _send(conn: socket.socket, words: Any) -> None:
    content = marshal.dumps(words)
    conn.sendall(len(content).to_bytes(_HEAD_BYTES, "little") + content)


def _receive(conn: socket.socket) -> Any:
    n_bytes = int.from_bytes(_exactly(conn, _HEAD_BYTES), "little")
    return marshal.loads(_exactly(conn, n_bytes))


def _exactly(conn: socket.socket, n_bytes: int) -> bytearray:
    content = bytearray()
    while len(content) < n_bytes:
        more = conn.recv(min(n_bytes - len(content), 1 << 20))
        if not more:
            raise EOFError
        content += more
    return content
