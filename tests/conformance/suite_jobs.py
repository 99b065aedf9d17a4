"""Runs one MPI job under a time limit, and says whether two ways to run it give the same."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from suite_shims import processes

# Addresses, process and thread ids, times, ports: what differs between two runs of the same job.
_VARYING = (
    (re.compile(r"^\[[^\]:]+:\d+\]"), "[HOST:NUMBER]"),
    (re.compile(r"\[\[\d+,\d+\]"), "[[NUMBER]"),
    (re.compile(r"0x[0-9a-fA-F]+"), "ADDRESS"),
    (re.compile(r"\b[0-9a-f]{12,}\b"), "ADDRESS"),
    (re.compile(r"\d+\.\d+(e[-+]?\d+)?"), "NUMBER"),
    (re.compile(r"\d{4,}"), "NUMBER"),
)
# Frames of the stack that Open MPI and gfortran print on a crash: ours are among them.
_FRAME = re.compile(r"^(\[[^\]]*:\d+\] \[ ?\d+\] |#\d+ +0x|\s+at \S+:\d+$)")
N_ROUNDS = (1, 3, 6)


@dataclass(frozen=True)
class Outcome:
    """Result of a run: how it ended, whether its suite counts that as a success, and its lines, sorted."""

    status: str
    passed: bool
    lines: tuple[str, ...] = ()

    @property
    def verdict(self) -> tuple[str, bool]:
        """The part that no noise in the output touches."""
        return self.status, self.passed


@dataclass
class Comparison:
    """All runs of one test: bare and with the shim, in the order in which they were made."""

    name: str
    bare: list[Outcome] = field(default_factory=list)
    shim: list[Outcome] = field(default_factory=list)
    kind: str = "identical"

    def as_dict(self) -> dict[str, object]:
        """For the JSON file; the output only of what differed."""
        told: dict[str, object] = {"name": self.name, "kind": self.kind}
        for side, runs in (("bare", self.bare), ("shim", self.shim)):
            told[side] = [f"{run.status}{' pass' if run.passed else ''}" for run in runs]
            if self.kind != "identical":
                told[f"{side}_output"] = [list(run.lines[:40]) for run in runs[:2]]
        return told


def normal_lines(text: str) -> tuple[str, ...]:
    """Lines of an output in one order, without what varies from run to run."""
    lines = []
    for line in text.splitlines():
        if _FRAME.match(line):
            continue
        for pattern, word in _VARYING:
            line = pattern.sub(word, line)
        if line.strip():
            lines.append(line.rstrip())
    return tuple(sorted(lines))


def execute(
    command: Sequence[str], folder: Path, limit_s: float, env: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Run a command to its end or its limit; how it ended, and its output.

    Nothing of it is left afterwards: launchers give their ranks process groups of their own, but all stay in
    the session that is made here.
    """
    with tempfile.TemporaryFile(mode="w+", errors="replace") as output:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = _wait(child, limit_s)
        finally:
            _kill_session(child.pid)
            child.wait()
        output.seek(0)
        return status, output.read()


def _wait(child: subprocess.Popen[bytes], limit_s: float) -> str:
    try:
        code = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(2)
        return "timeout"
    return f"exit {code}" if code >= 0 else f"signal {-code}"


def _kill_session(session: int) -> None:
    """Kill the processes of a session, its leader included; ranks are given a moment to end first."""
    for patience_s in (0.5, 0.0, 0.0):
        deadline = time.monotonic() + patience_s
        while (members := _members(session)) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not members:
            return


def _members(session: int) -> list[int]:
    found = processes.matching(lambda one: processes.stat(one)[3] == str(session))
    return list(filter(processes.is_running, found))


def compare(name: str, run_bare: Callable[[], Outcome], run_shim: Callable[[], Outcome]) -> Comparison:
    """Run both ways in turns until it is clear what a difference comes from.

    One run each is enough when they agree. Else there are three of each, and six where the verdicts differ.
    `kind` becomes "identical"; "noisy" when bare runs differ among themselves and the shim's are no
    different; "once" when one of six runs with the shim ended as no bare run did; "differs" when more did,
    or when bare runs always print the same and the others never do.
    """
    made = Comparison(name)
    for n_rounds in N_ROUNDS:
        while len(made.bare) < n_rounds:
            made.bare.append(run_bare())
            made.shim.append(run_shim())
        made.kind = _kind(made)
        if made.kind in ("identical", "noisy"):
            break
    return made


def _kind(made: Comparison) -> str:
    bare, shim = set(made.bare), set(made.shim)
    if len(made.bare) == 1:
        return "identical" if bare == shim else "differs"
    verdicts = {run.verdict for run in made.bare}
    deviating = sum(run.verdict not in verdicts for run in made.shim)
    if len(verdicts) > 1:  # a race bare as well, such as whose exit code the launcher returns
        passed = {run.passed for run in made.bare}
        deviating = sum(run.passed not in passed for run in made.shim)
    if deviating:
        return "differs" if deviating > 1 else "once"
    return "differs" if len(bare) == 1 and not bare & shim else "noisy"
