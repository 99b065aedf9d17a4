"""The same work on many files, on all cores, in processes that may crash: one file costs one answer."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from mpicoloc.errors import MALFORMED, EnvironmentFault, MpicolocError
from mpicoloc.profile import hdf5, sandbox
from mpicoloc.profile.sandbox import Child

Answer = dict[str, Any] | MpicolocError
Work = Callable[[str, BinaryIO], dict[str, Any]]
_MAX_ANSWER_BYTES = 1 << 24
_MAX_FILES = 100
"""Files of one process."""


def parallel_map(paths: Sequence[str], work: Work) -> Iterator[tuple[str, Answer]]:
    """What `work` answers for each of the files, as they come. What the caller does takes none of their time.

    The files of a process that crashes, or is late, get one each.
    """
    n_processes = len(os.sched_getaffinity(0))
    n_files = max(1, min(_MAX_FILES, len(paths) // (8 * n_processes)))
    left = [paths[i : i + n_files] for i in range(0, len(paths), n_files)]
    running: dict[Child, Sequence[str]] = {}
    try:
        while left or running:
            while left and len(running) < n_processes:
                running |= {_start(left[-1], work): left.pop()}
            for child in Child.first(list(running)):
                batch = running.pop(child)
                child.end()
                answers = _answers(child, batch)
                if not answers:
                    left += ([path] for path in batch)
                yield from answers
    finally:
        for child in running:
            child.end()


def _start(batch: Sequence[str], work: Work) -> Child:
    """Its files are opened in the process itself, before it gives up its rights: a disk may not answer."""
    stack = contextlib.ExitStack()
    opened: list[BinaryIO | MpicolocError] = []

    def files() -> Iterator[BinaryIO]:
        for path in batch:
            try:
                file = stack.enter_context(hdf5.readable(path))
                opened.append(file)
                yield file
            except MpicolocError as error:
                opened.append(error)

    def answers() -> Iterator[bytes]:
        for path, file in zip(batch, opened, strict=True):
            try:
                if isinstance(file, MpicolocError):
                    raise file
                sandbox.grant_time(os.fstat(file.fileno()).st_size)
                yield json.dumps(work(path, file), allow_nan=False).encode() + b"\n"
            except MpicolocError as error:
                yield b"-" + sandbox.error_as_json(error) + b"\n"

    return Child(batch[0], answers, files=files(), most_bytes=_MAX_ANSWER_BYTES)


def _answers(child: Child, batch: Sequence[str]) -> list[tuple[str, Answer]]:
    """One for each of its files; none if it was not through with them, and nobody knows which one it was."""
    try:
        lines = child.answer(bytes).splitlines()
        if len(lines) != len(batch):
            raise sandbox.damage(child.path)
    except MpicolocError as error:
        if len(batch) > 1:
            return []
        return [(child.path, _silence(child.path) if child.is_late else error)]
    return [(path, _answer(path, line)) for path, line in zip(batch, lines, strict=True)]


def _silence(path: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{path} is not read: what reads it gave no answer for {sandbox.WAIT_S:g} s; look whether the disk "
        "that it is on answers, and copy the file or leave it out"
    )


def _answer(path: str, line: bytes) -> Answer:
    if line[:1] == b"-":
        return sandbox.error(path, line[1:])
    try:
        found = json.loads(line)
    except MALFORMED:
        return sandbox.damage(path)
    return found if isinstance(found, dict) else sandbox.damage(path)
