"""Times of runs, kept in a file as they are taken: a series that was broken off goes on where it ended."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpicoloc.errors import DataError, EnvironmentFault

TimeOf = Callable[[Sequence[float]], float]
"""Time of a run with bubbles of these levels on the nodes, s."""


class KeptRuns:
    """A file of JSON lines: how it is run, then for each run the levels on the nodes and its seconds.

    Parameters
    ----------
    path : str
        It is made if it is not there.
    settings : mapping
        What the times depend on besides the levels; as JSON has it.

    Raises
    ------
    DataError
        If the file is of other runs, or not of runs at all. It stays as it is.
    EnvironmentFault
        If it cannot be read or written.
    """

    def __init__(self, path: str, settings: Mapping[str, Any]) -> None:
        self._path = path
        self._times: dict[tuple[float, ...], list[float]] = {}
        try:
            with open(path, "a+b") as file:
                file.seek(0)
                content = file.read()
                n_whole = content.rfind(b"\n") + 1
                if content:
                    self._read(content[:n_whole], settings)
                    file.truncate(n_whole)  # the last line may have been cut off
        except OSError as error:
            raise EnvironmentFault(f"{path}: {error.strerror}; name another file") from error
        if not content:
            self._append(settings)

    def __len__(self) -> int:
        return sum(map(len, self._times.values()))

    def reuse(self, time_s: TimeOf) -> TimeOf:
        """The kept times of each setting, one after the other, and after them those of new runs.

        Parameters
        ----------
        time_s : callable
            Runs the program; its times are kept as well.

        Returns
        -------
        callable
            To be called in place of it.
        """
        left = {levels: list(times) for levels, times in self._times.items()}

        def kept_or_run(levels: Sequence[float]) -> float:
            own = tuple(map(float, levels))
            if kept := left.get(own):
                return kept.pop(0)
            seconds = time_s(levels)
            self._append({"levels": own, "seconds": seconds})
            return seconds

        return kept_or_run

    def _read(self, content: bytes, settings: Mapping[str, Any]) -> None:
        try:
            first, *lines = map(json.loads, content.splitlines())
        except ValueError as error:
            raise DataError(f"{self._path} is no file of runs: name another") from error
        self._check(first, settings)
        for line in lines:
            try:
                self._times.setdefault(tuple(line["levels"]), []).append(float(line["seconds"]))
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(
                    f"{self._path} has no levels and seconds in {line}: name another file"
                ) from error

    def _check(self, found: Any, settings: Mapping[str, Any]) -> None:
        wanted = json.loads(json.dumps(settings))
        if not isinstance(found, dict) or found.keys() != wanted.keys():
            raise DataError(f"{self._path} is no file of such runs: name another")
        for name, value in wanted.items():
            if found[name] != value:
                raise DataError(
                    f"{self._path} has runs with another {name} ({found[name]}, now {value}): "
                    "name another file"
                )

    def _append(self, line: Mapping[str, Any]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
