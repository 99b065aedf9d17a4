"""Read profiles of any origin, in child processes that may crash, and large tables only on demand."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from mpicoloc.core.profile import OnDemand, Profile, Table, dtype
from mpicoloc.core.progress import stage
from mpicoloc.errors import MALFORMED, DataError, EnvironmentFault, MpicolocError
from mpicoloc.profile import bundle, hdf5, sandbox
from mpicoloc.profile.sandbox import Child, Pieces, run_in_child

Answer = dict[str, Any] | MpicolocError
Work = Callable[[str, BinaryIO], dict[str, Any]]
_MAX_ANSWER_BYTES = 1 << 24
_MAX_FILES = 100
"""Largest number of files that one process reads."""


def parallel_map(paths: Sequence[str], work: Work) -> Iterator[tuple[str, Answer]]:
    """Yield the answers of `work` for all files as they arrive; the children run on while the caller works.

    If a process crashes or is late, each of its files is tried again in a process of its own.
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
    """Start a child for a batch. The child opens the files, because a disk may hang, then gives up its
    rights.
    """
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
    """An answer for each file of a batch; empty if the child failed and the faulty file is not known."""
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
        f"{path} could not be read within {sandbox.WAIT_S:g} s: check that its file system responds, copy "
        "it, or leave it out"
    )


def _answer(path: str, line: bytes) -> Answer:
    if line[:1] == b"-":
        return sandbox.error(path, line[1:])
    try:
        found = json.loads(line)
    except MALFORMED:
        return sandbox.damage(path)
    return found if isinstance(found, dict) else sandbox.damage(path)


AT_ONCE_BYTES = 1 << 20
"""Tables up to this size are read with the facts."""
_BATCH_BYTES, _MAX_BATCH = 64 << 20, 100
_ANSWER_BYTES = 8 << 20
"""Largest size of a batch's facts as JSON, bytes: a hundred times the usual size."""
_SIZE_BYTES = 8


def read(path: str | os.PathLike[str]) -> Profile:
    """Read the profile in `path`: its facts and small tables at once, each large table at its first use.

    Raises `DataError` if the file is missing, damaged, foreign or of another schema version; at a table's
    first use, also if the table is damaged or the file has changed. Raises `EnvironmentFault` if the file
    cannot be opened.
    """
    named = os.fspath(path)
    # Absolute, because the working directory may change before a table is read.
    file = os.path.abspath(named)
    first = _stamp(file)
    with stage(f"reading {named}"), hdf5.readable(named) as raw:
        profile, more = run_in_child(named, lambda: _at_once(named, raw), bundle.unpack_profile, files=[raw])

    def load(name: str) -> Table:
        if _stamp(file) != first:
            raise DataError(f"{named} has changed since it was opened; open it again")
        with stage(f"reading table {name}"), hdf5.readable(file) as raw:
            return run_in_child(
                named,
                lambda: [_bytes(hdf5.read_table(file, name, raw))],
                lambda found: _table(name, found),
                files=[raw],
            )

    tables = OnDemand(load, {name: profile.tables[name] for name in more["tables"]})
    return replace(profile, tables=tables)


def read_facts(paths: Iterable[str], uid: int, memory_bytes: int | None = None) -> Iterator[Profile]:
    """Profiles without their tables. Many files at a time are parsed with the rights of user `uid`."""
    for batch in _batches(paths):
        try:
            yield from _facts_of(batch, uid, memory_bytes)
        except DataError:  # one bad profile does not stop the reading of the others
            for one in batch:
                with contextlib.suppress(DataError):
                    yield from _facts_of([one], uid, memory_bytes)


def _batches(paths: Iterable[str]) -> Iterator[list[tuple[str, bytes]]]:
    batch: list[tuple[str, bytes]] = []
    for path in paths:
        with contextlib.suppress(MpicolocError), hdf5.readable(path) as file:
            batch.append((path, file.read()))
        if sum(len(content) for _, content in batch) > _BATCH_BYTES or len(batch) == _MAX_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _facts_of(batch: Sequence[tuple[str, bytes]], uid: int, memory_bytes: int | None) -> list[Profile]:
    def work() -> Iterator[bytes]:
        for path, content in batch:
            piece = b"".join(bundle.pack_profile(hdf5.read(path, content, ()), {}))
            yield len(piece).to_bytes(_SIZE_BYTES, "little") + piece

    def read(answer: memoryview) -> list[Profile]:
        found = []
        while answer:
            end = _SIZE_BYTES + int.from_bytes(answer[:_SIZE_BYTES], "little")
            found.append(bundle.unpack_profile(answer[_SIZE_BYTES:end])[0])
            answer = answer[end:]
        return found

    return run_in_child(batch[0][0], work, read, uid=uid, most_bytes=_ANSWER_BYTES, memory_bytes=memory_bytes)


def _at_once(path: str, raw: BinaryIO) -> Pieces:
    """In a child process: the facts, and the tables that are too small to be worth another child."""
    with hdf5.opened(path, raw) as file:
        small = [name for name in hdf5.TABLES if hdf5.n_bytes(file, name) <= AT_ONCE_BYTES]
    return bundle.pack_profile(hdf5.read(path, raw, small), {"tables": small})


def _stamp(path: str) -> Mapping[str, Any] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return {name: getattr(found, name) for name in ("st_dev", "st_ino", "st_size", "st_mtime_ns")}


def _bytes(table: Table) -> memoryview:
    return np.ascontiguousarray(table).view(np.uint8).data


def _table(name: str, content: memoryview) -> Table:
    return np.frombuffer(content, dtype(name))
