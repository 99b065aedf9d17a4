"""A lab's door: run a command on one of its hosts, as the caller, with the caller's environment and files.

Also what launchers take in place of ``ssh``: ``agent.py LAB HOST COMMAND...``. One starts for every host of
every job, so this file imports nothing of mpicoloc's.

A lab listens at the abstract socket of its name, outside and in the network of each of its hosts. A request
is a length of four bytes and JSON, with the stdin, stdout and stderr of the caller; then each byte is a
signal to hand on. The answer is JSON. The kernel tells the lab who calls, and the caller who answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys

_PREFIX = "mpicoloc-lab/"
HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
PYTHON_ENV, AGENT_ENV = "MPICOLOC_LAB_PYTHON", "MPICOLOC_LAB_AGENT"
"""The caller's interpreter and this file, for launchers: those of the lab's maker may be closed to others."""
_PATIENCE_S = 20
CREDENTIALS = struct.Struct("iII")
GONE = 255


def socket_name(lab: str, prefix: str = _PREFIX) -> bytes:
    """Name of a lab's socket; the leading zero byte keeps it out of the file system."""
    return f"\0{prefix}{lab}".encode()


def names() -> list[str]:
    """Labs that run on this machine, or on this host of a lab."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        paths = [line.split()[-1] for line in file]
    start = "@" + _PREFIX
    return sorted({path.removeprefix(start) for path in paths if path.startswith(start)})


def credentials(peer: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end."""
    return CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))


def connect(lab: str, prefix: str = _PREFIX) -> socket.socket:
    """A connection to a lab.

    Raises `ConnectionRefusedError` if there is none of that name. Raises `PermissionError` if somebody else
    than root or the caller answers: the request holds the caller's environment. Raises `OSError` if who took
    the name does not listen.
    """
    peer = socket.socket(socket.AF_UNIX)
    try:
        # Whoever took the name may let everybody wait; settimeout() would not wait for a busy lab at all.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _PATIENCE_S, 0))
        peer.connect(socket_name(lab, prefix))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 0))
        if credentials(peer)[1] not in (0, os.getuid()):
            raise PermissionError(1, f"lab {lab} is not root's")
    except OSError:
        peer.close()
        raise
    return peer


def _send(peer: socket.socket, request: dict[str, object]) -> None:
    body = json.dumps(request).encode()
    socket.send_fds(peer, [len(body).to_bytes(4, "big")], [0, 1, 2])
    peer.sendall(body)


def _answer(peer: socket.socket) -> dict[str, object]:
    parts = []
    while part := peer.recv(1 << 16):
        parts.append(part)
    return dict(json.loads(b"".join(parts))) if parts else {}


class _Signals:
    """Hands signals on; not before `begin`, for in the midst of a request they would spoil it."""

    def __init__(self, peer: socket.socket):
        self.peer, self.waiting, self.begun = peer, bytearray(), False
        for number in HANDED_ON:
            signal.signal(number, self.come)

    def come(self, number: int, _frame: object) -> None:
        self.waiting.append(number)
        if self.begun:
            self.begin()

    def begin(self) -> None:
        self.begun = True
        while self.waiting:
            with contextlib.suppress(OSError):  # a lab that ends at this moment needs none
                self.peer.send(bytes([self.waiting.pop(0)]))


def ask(lab: str, what: str) -> dict[str, object]:
    """A lab's answer to ``describe`` or ``counters``."""
    with connect(lab) as peer:
        peer.settimeout(_PATIENCE_S)
        _send(peer, {"do": what})
        return _answer(peer)


def execute(lab: str, host: str, argv: list[str], env: dict[str, str] | None = None) -> int:
    """Run a command on a host of a lab, and wait for it.

    Result: its exit code, 128 + n after signal n; `GONE` if the lab ended first.
    """
    umask = os.umask(0o077)
    os.umask(umask)
    own = {PYTHON_ENV: sys.executable, AGENT_ENV: os.path.abspath(__file__)}
    told = {**(os.environ if env is None else env), **own}
    request = {"do": "run", "host": host, "argv": argv, "cwd": os.getcwd(), "umask": umask, "env": told}
    with connect(lab) as peer:
        try:
            signals = _Signals(peer)
            _send(peer, request)
            signals.begin()
            answer = _answer(peer)
        except (BrokenPipeError, ConnectionResetError):
            answer = {}
    if "error" in answer or not answer:
        print(f"mpicoloc: {answer.get('error', f'lab {lab} has ended')}", file=sys.stderr)
    code = answer.get("exit", GONE)
    assert isinstance(code, int)
    return code if code >= 0 else 128 - code


def main(argv: list[str]) -> int:
    """Stand in for ``ssh [-options] HOST COMMAND...``; the first argument is the lab."""
    lab, *words = argv
    while words and words[0].startswith("-"):
        words.pop(0)
    if not words:
        print("mpicoloc: no host named; write: agent.py LAB HOST COMMAND...", file=sys.stderr)
        return GONE
    try:
        return execute(lab, words[0], ["/bin/sh", "-c", " ".join(words[1:])])
    except OSError as error:
        print(f"mpicoloc: lab {lab} does not answer: {error.strerror}", file=sys.stderr)
        return GONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
