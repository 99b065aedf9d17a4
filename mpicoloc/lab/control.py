"""Control of the labs on this machine: start, query and end them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.lab import agent, server


def check_tools(what: str, tools: Mapping[str, str]) -> None:
    """Check that a lab can be made here.

    Raises `EnvironmentFault` if a tool is missing, or the caller is not root.
    """
    if os.geteuid() != 0:
        raise EnvironmentFault(f"only root can make or end a {what}: use sudo; any user can run jobs in it")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        packages = sorted({tools[tool] for tool in missing})
        raise EnvironmentFault(f"a {what} needs {', '.join(missing)}: install {', '.join(packages)}")


def begin_lab(what: str, module: str, *arguments: str) -> None:
    """Start the first process of a lab, ``python -m MODULE ARGUMENTS``, and wait until it is ready.

    It is process 1 of a PID namespace: when it ends, the kernel kills all other processes of the lab.

    Raises `EnvironmentFault` with the process's message if it does not become ready.
    """
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m"]
    process = subprocess.Popen(
        [*command, module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd="/",
        start_new_session=True,
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    if said.strip() != "ready":
        process.kill()
        lines = (said + process.stdout.read()).strip().splitlines()
        process.wait()
        raise EnvironmentFault(f"no {what} could be made: {lines[-1] if lines else 'it was killed'}")
    # The process keeps running. With an exit code set, Popen does not wait for it.
    process.returncode = 0


TOOLS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "tc": "iproute2",
}
"""Programs that a lab needs, and the package of each."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_END_S = 15.0


def start(name: str, notation: str, rates: str, clock_step_s: int = 0) -> None:
    """Make a lab, which stays until `stop`, or until its first process is killed.

    Raises `UsageError` if an argument is invalid. Raises `EnvironmentFault` if the lab exists, or if the
    machine does not allow labs.
    """
    _checked(name)
    server.topology(notation, rates)
    check_tools("lab", TOOLS)
    begin_lab("lab", "mpicoloc.lab.server", name, notation, rates, str(clock_step_s))


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"lab name {name!r} is not valid: use 1 to 40 letters, digits, dots, dashes or underscores"
        )
    return name


def ask(name: str, what: str) -> dict[str, Any]:
    """A lab's answer to the request ``describe`` or ``counters``.

    Raises `EnvironmentFault` if there is no lab of that name, or the lab does not answer.
    """
    try:
        answer = agent.ask(_checked(name), what)
    except ConnectionRefusedError:
        raise EnvironmentFault(_absent(name)) from None
    except PermissionError as error:
        raise EnvironmentFault(f"{error.strerror}: nothing is sent to it") from None
    except (OSError, ValueError):
        answer = {}
    if not answer:
        raise EnvironmentFault(f"lab {name} does not answer: end it with `mpicoloc lab down --name {name}`")
    return answer


def _absent(name: str) -> str:
    others = [other for other in agent.names() if _NAME.fullmatch(other)]
    known = f"there is {', '.join(others)}" if others else "nor is any other"
    return f"no lab {name!r} is up ({known}): make one with `mpicoloc lab up`"


@contextlib.contextmanager
def connected(what: str, name: str, *prefix: str) -> Iterator[socket.socket | None]:
    """A connection to the first process of a lab, or None if the lab is not up."""
    try:
        peer = agent.connect(name, *prefix)
    except ConnectionRefusedError:
        yield None
        return
    except OSError as error:
        reason = (
            "is not root's" if isinstance(error, PermissionError) else f"does not answer ({error.strerror})"
        )
        raise EnvironmentFault(f"{what} {name} {reason}, so it was not touched") from None
    with peer:
        yield peer


def stop(name: str) -> bool:
    """End a lab and all processes in it. Returns whether there was one.

    Raises `EnvironmentFault` if the caller lacks permission or is inside the lab, or if the lab does not end.
    """
    with connected("lab", _checked(name)) as peer:
        return peer is not None and end("lab", name, peer)


def end(what: str, name: str, peer: socket.socket) -> bool:
    """Kill process 1 of a lab, the owner of `peer`, and wait for its end. False: it had ended.

    Raises the errors of `stop`.
    """
    first = agent.credentials(peer)[0]
    if first <= 1:
        raise EnvironmentFault(f"this command runs inside {what} {name}: end the lab from outside")
    with contextlib.ExitStack() as stack:
        ends = []
        with contextlib.suppress(ProcessLookupError):
            for pid in (first, _parent(first)):
                if pid > 1:
                    ends.append(os.pidfd_open(pid))
                    stack.callback(os.close, ends[-1])
        poll = select.poll()
        poll.register(peer, 0)
        if not ends or poll.poll(0):
            return False  # the socket's owner has ended, and its PID may belong to another process
        try:
            signal.pidfd_send_signal(ends[0], signal.SIGKILL)
        except PermissionError:
            check_tools(what, {})
            raise
        # Process 1 ends last: the kernel waits for all other processes of the lab.
        deadline_s = time.monotonic() + _END_S
        for fd in ends:
            if not select.select([fd], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                raise EnvironmentFault(
                    f"{what} {name} has not ended within {_END_S:.0f} s: check process {first}"
                )
    return True


def first_process(name: str) -> int:
    """The PID that process 1 of a lab has outside the lab. All other processes of the lab end with it."""
    with agent.connect(_checked(name)) as peer:
        return agent.credentials(peer)[0]


def _parent(pid: int) -> int:
    """PID of the `unshare` that is waiting for a process; 0 if there is none."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", errors="surrogateescape") as file:
        parent = int(file.read().rpartition(")")[2].split()[1])
        with open(f"/proc/{parent}/comm", errors="surrogateescape") as comm:
            return parent if comm.read().strip() == "unshare" else 0
    return 0


def since(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Counters of links between two points in time, with their sums by level.

    Result: ``name``, ``began_unix_s`` and ``topology`` of the lab; ``whole``: whether the counts begin at the
    lab's start; ``levels`` and ``links``: bytes and packets up and down, per level and per link. Raises
    `DataError` if `before` does not hold earlier counters of this lab.
    """
    links = [dict(link) for link in now["links"]]
    if before is not None:
        for link, old in zip(links, _earlier(before, now), strict=True):
            link.update({key: link[key] - old[key] for key in server.COUNTED})
    levels = [
        {"level": level, **_sums([link for link in links if link["level"] == level])}
        for level in sorted({link["level"] for link in links})
    ]
    facts = {key: now[key] for key in ("name", "began_unix_s", "topology")}
    return {**facts, "whole": before is None, "levels": levels, "links": links}


def read_counters(path: str) -> dict[str, Any]:
    """Read counters from a file with the output of `mpicoloc lab counters --json`."""
    try:
        with open(path, encoding="utf-8") as file:
            return dict(json.load(file))
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, RecursionError):
        raise DataError("not an output of `mpicoloc lab counters --json`: take a new one") from None


def _earlier(before: Any, now: Mapping[str, Any]) -> list[dict[str, int]]:
    """Earlier counters of each link, checked to be from this lab."""
    try:
        labs = [(part["name"], part["began_unix_s"], part["topology"]) for part in (before, now)]
        ends = [[(link["lower"], link["upper"]) for link in part["links"]] for part in (before, now)]
        found = [{key: link[key] for key in server.COUNTED} for link in before["links"]]
        is_whole = before.get("whole", True) is True
    except (AttributeError, KeyError, TypeError):
        raise DataError("not an output of `mpicoloc lab counters --json`: take a new one") from None
    if labs[0] != labs[1] or ends[0] != ends[1]:
        raise DataError("these are counters of another lab, or of an earlier lab of this name: take new ones")
    both = zip(found, now["links"], strict=True)
    numbers = [(old[key], link[key]) for old, link in both for key in server.COUNTED]
    if not is_whole or not all(isinstance(old, int) and 0 <= old <= new for old, new in numbers):
        raise DataError("these are not the totals at an earlier time: take new counters without --since")
    return found


def _sums(links: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {"n_links": len(links), **{key: sum(link[key] for link in links) for key in server.COUNTED}}
