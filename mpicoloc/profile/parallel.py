"""The same work on many files, on all cores, in processes that may crash: one file costs one answer."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

from mpicoloc.errors import EnvironmentFault, MpicolocError
from mpicoloc.profile import hdf5, sandbox

Answer = dict[str, Any] | MpicolocError
Work = Callable[[str, BinaryIO], dict[str, Any]]
_MAX_LINE_BYTES = 1 << 24
_MAX_OPEN = 100
"""Files that one process has open."""
ANSWER_S = sandbox.WAIT_S
"""Longest wait for the answer about one file, s: it may be on a server that does not reply, or what reads it
was made to sleep, which takes no processor time."""


def parallel_map(paths: Sequence[str], work: Work) -> Iterator[tuple[str, Answer]]:
    """What `work` answers for each of the files, as they come."""
    n_processes = max(1, min(len(os.sched_getaffinity(0)), len(paths) // 8))
    shares = [paths[i::n_processes] for i in range(n_processes)]
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as open_pipes:
        for share in shares:
            _start(_Worker(share), work, stack, open_pipes)
        while open_pipes.get_map():
            for worker in _ready(open_pipes):
                yield from worker.answers(worker.read())
            for worker in _workers(open_pipes):
                if worker.is_done or worker.is_late:
                    open_pipes.unregister(worker.handle)
                    worker.end()
                    yield from worker.blamed()
                    _start(_Worker(worker.left, worker.one_by_one), work, stack, open_pipes)


def _workers(open_pipes: selectors.BaseSelector) -> list[_Worker]:
    return [key.data for key in open_pipes.get_map().values()]


def _ready(open_pipes: selectors.BaseSelector) -> list[_Worker]:
    """Those that say something, after a wait until one is late. What the caller does takes none of it."""
    workers = _workers(open_pipes)
    began_s = time.monotonic()
    ready = open_pipes.select(max(0.0, ANSWER_S - max(worker.silent_s for worker in workers)))
    waited_s = time.monotonic() - began_s
    for worker in workers:
        worker.silent_s += waited_s
    return [key.data for key, _ in ready]


@dataclass
class _Worker:
    """A process and the files that it has not answered yet; the last `n_later` are for another one.

    It opens its files first, `n_now` of them, or with `one_by_one` a single one.
    """

    left: Sequence[str]
    one_by_one: bool = False
    n_now: int = 0
    n_later: int = 0
    pid: int = 0
    handle: int = -1
    line: bytes = b""
    silent_s: float = 0.0
    """How long we have waited for the next answer."""
    is_done: bool = False

    @property
    def is_late(self) -> bool:
        return self.silent_s >= ANSWER_S

    def read(self) -> bytes:
        return os.read(self.handle, 1 << 20)

    def answers(self, piece: bytes) -> Iterator[tuple[str, Answer]]:
        *lines, self.line = (self.line + piece).split(b"\n")
        self.is_done = not piece or len(self.line) > _MAX_LINE_BYTES
        for line in lines[: len(self.left) - self.n_later]:
            self.silent_s = 0.0
            path, self.left = self.left[0], self.left[1:]
            yield path, _answer(path, line)

    def blamed(self) -> Iterator[tuple[str, Answer]]:
        """The file that the process ended with, if it was not through with its own."""
        n_left = len(self.left) - self.n_later
        if n_left == 0:
            return
        if self.is_late and n_left == self.n_now > 1:
            self.one_by_one = True  # it may be any of them that cannot be opened
            return
        path, self.left = self.left[0], self.left[1:]
        yield path, _silence(path) if self.is_late else sandbox.damage(path)

    def end(self) -> None:
        """Nothing of the process is left after this, unless it sleeps in the kernel."""
        if self.handle >= 0:
            os.close(self.handle)
            # Others that were started later have the pipe too, so this one may still wait for a reader.
            sandbox.end(self.pid)
            self.handle = -1


def _silence(path: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{path} is not read: what reads it gave no answer for {ANSWER_S:g} s; look whether the disk that it "
        "is on answers, and copy the file or leave it out"
    )


def _start(
    worker: _Worker,
    work: Work,
    stack: contextlib.ExitStack,
    open_pipes: selectors.BaseSelector,
) -> None:
    if not worker.left:
        return
    reader, writer = os.pipe()
    now = worker.left[: 1 if worker.one_by_one else _MAX_OPEN]
    worker.n_now, worker.n_later = len(now), len(worker.left) - len(now)
    worker.pid = os.fork()
    if worker.pid == 0:
        os.close(reader)
        _work(now, work, writer)
    os.close(writer)
    worker.handle = reader
    stack.callback(worker.end)
    open_pipes.register(reader, selectors.EVENT_READ, worker)


def _work(paths: Sequence[str], work: Work, writer: int) -> NoReturn:
    code = 1
    try:
        sandbox.confine()
        with contextlib.ExitStack() as stack, open(writer, "wb") as pipe:
            files = [_opened(path, stack) for path in paths]
            open_here = [file.fileno() for file in files if not isinstance(file, MpicolocError)]
            sandbox.renounce(sandbox.NOBODY, [writer, *open_here])
            for path, file in zip(paths, files, strict=True):
                try:
                    if isinstance(file, MpicolocError):
                        raise file
                    sandbox.grant_time(os.fstat(file.fileno()).st_size)
                    line = json.dumps(work(path, file), allow_nan=False).encode()
                except MpicolocError as error:
                    line = b"-" + sandbox.error_as_json(error)
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
        return sandbox.error(path, line[1:])
    try:
        found = json.loads(line)
    except ValueError:
        return sandbox.damage(path)
    return found if isinstance(found, dict) else sandbox.damage(path)
