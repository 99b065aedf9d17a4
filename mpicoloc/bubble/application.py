"""Start the measured program on its processors, stop and continue it, and end it with its children.

`python -m mpicoloc.bubble.application PID` is the program's guardian: it ends the program if the measuring
process is killed. Without it, a program that is stopped at that moment would stay stopped for ever.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType

from mpicoloc.errors import UsageError
from mpicoloc.job import wrap
from mpicoloc.job.launcher import children_by_parent
from mpicoloc.pmpi import elf

_END_LIMIT_S = 20.0
_UNBOUND = {
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
"""Without these variables, Open MPI 4 and 5 bind ranks to processors outside the program's set."""


def descendants(root: int) -> list[int]:
    """A process and its descendants, parents first. Orphans, which have got another parent, are not found."""
    found, children = [root], children_by_parent()
    for parent in found:
        found += children.get(parent, [])
    return found


def signal_all(root: int, number: int) -> None:
    """Send a signal to a process and all its descendants."""
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            os.kill(pid, number)


class Application:
    """A running program, which ends with this process even if this process is killed.

    Parameters
    ----------
    command : sequence of str
    cpus : collection of int
        Processors that the program can use.
    env : mapping
        Environment of the program.
    to_stderr : bool
        Send the program's output to standard error, which keeps standard output for the result.

    Raises
    ------
    UsageError
        If the program cannot be started.
    """

    def __init__(
        self, command: Sequence[str], cpus: Collection[int], env: Mapping[str, str], *, to_stderr: bool
    ) -> None:
        file = elf.resolve_application(command[0], env.get("PATH"))
        try:
            self._process = subprocess.Popen(
                command,
                executable=file,
                env={**_UNBOUND, **env},
                stdout=sys.stderr if to_stderr else None,
                preexec_fn=lambda: os.sched_setaffinity(0, cpus),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UsageError(f"{command[0]} cannot be started: {error}") from None
        self._guardian = subprocess.Popen(
            [*wrap.python_module("mpicoloc.bubble.application"), str(self._process.pid)],
            stdin=subprocess.PIPE,
        )

    def has_ended(self) -> bool:
        """Whether the program has ended by itself."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Stop the program and its descendants."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the program and its descendants."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if not self.has_ended():
            signal_all(self._process.pid, number)

    def end(self) -> int | None:
        """End the program and its descendants. Returns its exit code, or None if it did not end by itself."""
        code = self._process.poll()
        if code is None:
            self._end_tree()
        assert self._guardian.stdin is not None
        self._guardian.kill()
        self._guardian.stdin.close()
        self._guardian.wait()
        return code

    def _end_tree(self) -> None:
        """Send SIGTERM to the root. After grace periods send SIGTERM, then SIGKILL, to all processes left."""
        with contextlib.ExitStack() as stack:
            tree = []
            for pid in descendants(self._process.pid):
                with contextlib.suppress(OSError):  # the process has just ended
                    tree.append(os.pidfd_open(pid))
                    stack.callback(os.close, tree[-1])
            _signal_each(tree[:1], signal.SIGTERM)
            _signal_each(tree, signal.SIGCONT)
            for number in (signal.SIGTERM, signal.SIGKILL):
                tree = _await_ends(tree, _END_LIMIT_S)
                _signal_each(tree, number)
            self._process.wait()

    def wait(self, seconds: float) -> bool:
        """Wait until the program has ended or the time is up. Returns whether it has ended."""
        end_s = time.monotonic() + seconds
        while not self.has_ended() and time.monotonic() < end_s:
            time.sleep(0.01)
        return self.has_ended()

    def __enter__(self) -> Application:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.end()


def _signal_each(handles: Iterable[int], number: int) -> None:
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)


def _await_ends(handles: Sequence[int], seconds: float) -> list[int]:
    """Wait for processes to end. Returns those that have not ended after `seconds`."""
    left, end_s = list(handles), time.monotonic() + seconds
    while left and (wait_s := end_s - time.monotonic()) > 0:
        ended = select.select(left, [], [], wait_s)[0]  # a pidfd becomes readable when its process ends
        left = [handle for handle in left if handle not in ended]
    return left


def guard() -> None:
    """Wait until standard input closes, which means that the measuring process has ended; end the program."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    root = int(sys.argv[1])
    while os.read(0, 4096):
        pass
    signal_all(root, signal.SIGTERM)
    signal_all(root, signal.SIGCONT)


if __name__ == "__main__":
    guard()
