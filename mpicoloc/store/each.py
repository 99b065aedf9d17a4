"""The same work on many files, on all cores, in processes that may crash: one file costs one answer."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NoReturn

from mpicoloc.errors import MpicolocError
from mpicoloc.store import apart

Answer = dict[str, Any] | MpicolocError
_MAX_LINE_BYTES = 1 << 24


def each(paths: Sequence[str], work: Callable[[str], dict[str, Any]]) -> Iterator[tuple[str, Answer]]:
    """What `work` answers for each of the files, as they come.

    Parameters
    ----------
    paths : sequence of str
        The files.
    work : callable
        Done in another process; its answer must be JSON.

    Yields
    ------
    path : str
    answer : dict or MpicolocError
        The error that `work` raised, or a `DataError` where the process did not survive the file.
    """
    n_processes = max(1, min(len(os.sched_getaffinity(0)), len(paths) // 8))
    shares = [paths[i::n_processes] for i in range(n_processes)]
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as open_pipes:
        for share in shares:
            _start(_Worker(share), work, stack, open_pipes)
        while open_pipes.get_map():
            for key, _ in open_pipes.select():
                worker: _Worker = key.data
                if piece := os.read(key.fd, 1 << 20):
                    yield from worker.answers(piece)
                    if len(worker.line) <= _MAX_LINE_BYTES:
                        continue
                open_pipes.unregister(key.fd)
                worker.end()
                if worker.left:
                    yield worker.left[0], apart.damage(worker.left[0])
                    _start(_Worker(worker.left[1:]), work, stack, open_pipes)


@dataclass
class _Worker:
    """A process and the files that it has not answered yet."""

    left: Sequence[str]
    pid: int = 0
    pipe: IO[bytes] | None = None
    line: bytes = field(default=b"")

    def answers(self, piece: bytes) -> Iterator[tuple[str, Answer]]:
        *lines, self.line = (self.line + piece).split(b"\n")
        for line in lines[: len(self.left)]:
            path, self.left = self.left[0], self.left[1:]
            yield path, _answer(path, line)

    def end(self) -> None:
        """Nothing of the process is left after this."""
        if self.pipe is not None:
            self.pipe.close()
            # Others that were started later have the pipe too, so this one may still wait for a reader.
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pipe = None


def _start(
    worker: _Worker,
    work: Callable[[str], dict[str, Any]],
    stack: contextlib.ExitStack,
    open_pipes: selectors.BaseSelector,
) -> None:
    if not worker.left:
        return
    reader, writer = os.pipe()
    worker.pid = os.fork()
    if worker.pid == 0:
        os.close(reader)
        _work(worker.left, work, writer)
    os.close(writer)
    worker.pipe = open(reader, "rb", buffering=0)  # noqa: SIM115
    stack.callback(worker.end)
    open_pipes.register(reader, selectors.EVENT_READ, worker)


def _work(paths: Sequence[str], work: Callable[[str], dict[str, Any]], writer: int) -> NoReturn:
    code = 1
    try:
        apart.confine()
        with open(writer, "wb") as pipe:
            for path in paths:
                apart.grant_time(path)
                try:
                    line = json.dumps(work(path), allow_nan=False).encode()
                except MpicolocError as error:
                    line = b"-" + apart.told(error)
                pipe.write(line + b"\n")
                pipe.flush()
        code = 0
    finally:
        os._exit(code)


def _answer(path: str, line: bytes) -> Answer:
    if line[:1] == b"-":
        return apart.error(path, line[1:])
    try:
        found = json.loads(line)
    except ValueError:
        return apart.damage(path)
    return found if isinstance(found, dict) else apart.damage(path)
