"""The same work on many files, on all cores, in processes that may crash: one file costs one answer."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, BinaryIO, NoReturn

from mpicoloc.errors import MpicolocError
from mpicoloc.store import apart, hdf5

Answer = dict[str, Any] | MpicolocError
Work = Callable[[str, BinaryIO], dict[str, Any]]
_MAX_LINE_BYTES = 1 << 24
_MAX_OPEN = 100
"""Files that one process has open."""


def each(paths: Sequence[str], work: Work) -> Iterator[tuple[str, Answer]]:
    """What `work` answers for each of the files, as they come.

    Parameters
    ----------
    paths : sequence of str
        The files.
    work : callable
        Done with a path and the open file in another process, as of `apart.apart`; its answer must be JSON.

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
                if len(worker.left) > worker.n_later:
                    path, worker.left = worker.left[0], worker.left[1:]
                    yield path, apart.damage(path)
                _start(_Worker(worker.left), work, stack, open_pipes)


@dataclass
class _Worker:
    """A process and the files that it has not answered yet; the last `n_later` are for another one."""

    left: Sequence[str]
    n_later: int = 0
    pid: int = 0
    pipe: IO[bytes] | None = None
    line: bytes = field(default=b"")

    def answers(self, piece: bytes) -> Iterator[tuple[str, Answer]]:
        *lines, self.line = (self.line + piece).split(b"\n")
        for line in lines[: len(self.left) - self.n_later]:
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
    work: Work,
    stack: contextlib.ExitStack,
    open_pipes: selectors.BaseSelector,
) -> None:
    if not worker.left:
        return
    reader, writer = os.pipe()
    now = worker.left[:_MAX_OPEN]
    worker.n_later = len(worker.left) - len(now)
    worker.pid = os.fork()
    if worker.pid == 0:
        os.close(reader)
        _work(now, work, writer)
    os.close(writer)
    worker.pipe = open(reader, "rb", buffering=0)  # noqa: SIM115
    stack.callback(worker.end)
    open_pipes.register(reader, selectors.EVENT_READ, worker)


def _work(paths: Sequence[str], work: Work, writer: int) -> NoReturn:
    code = 1
    try:
        apart.confine()
        with contextlib.ExitStack() as stack, open(writer, "wb") as pipe:
            files = [_opened(path, stack) for path in paths]
            open_here = [file.fileno() for file in files if not isinstance(file, MpicolocError)]
            apart.renounce(apart.NOBODY, [writer, *open_here])
            for path, file in zip(paths, files, strict=True):
                try:
                    if isinstance(file, MpicolocError):
                        raise file
                    apart.grant_time(os.fstat(file.fileno()).st_size)
                    line = json.dumps(work(path, file), allow_nan=False).encode()
                except MpicolocError as error:
                    line = b"-" + apart.told(error)
                pipe.write(line + b"\n")
                pipe.flush()
        code = 0
    finally:
        os._exit(code)


def _opened(path: str, stack: contextlib.ExitStack) -> BinaryIO | MpicolocError:
    try:
        return stack.enter_context(hdf5.readable(path))
    except MpicolocError as error:
        return error


def _answer(path: str, line: bytes) -> Answer:
    if line[:1] == b"-":
        return apart.error(path, line[1:])
    try:
        found = json.loads(line)
    except ValueError:
        return apart.damage(path)
    return found if isinstance(found, dict) else apart.damage(path)
