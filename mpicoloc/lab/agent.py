"""Client of a lab: runs a command on one of its hosts, with the caller's rights, environment and files.

Launchers use this file in place of ``ssh``: ``agent.py LAB HOST COMMAND...``. It is started for every host of
every job, so it imports nothing from mpicoloc.

A lab listens at an abstract socket with its name, outside the lab and on each host. A
request is a length of four bytes and JSON, with the caller's stdin, stdout and stderr; each further byte is a
signal to forward. The answer is JSON. The kernel tells the lab who the caller is, and the caller who the
lab's owner is.
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
"""Environment variables that name the caller's interpreter and copy of this file to launchers, because other
users may be unable to read those of the lab's owner."""
_PATIENCE_S = 20
CREDENTIALS = struct.Struct("iII")
GONE = 255


def socket_name(lab: str, prefix: str = _PREFIX) -> bytes:
    """Name of a lab's socket. The leading zero byte makes it abstract, outside the file system."""
    return f"\0{prefix}{lab}".encode()


def names() -> list[str]:
    """Names of the labs that are visible here: all labs of the machine, or on a host only the host's lab."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        paths = [line.split()[-1] for line in file]
    start = "@" + _PREFIX
    return sorted({path.removeprefix(start) for path in paths if path.startswith(start)})


def credentials(peer: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end of a socket."""
    return CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))


def connect(lab: str, prefix: str = _PREFIX) -> socket.socket:
    """A connection to a lab.

    Raises `ConnectionRefusedError` if there is no lab of that name. Raises `PermissionError` if the owner of
    the socket is neither root nor the caller, because the request contains the caller's environment. Raises
    `OSError` if the owner does not accept connections.
    """
    peer = socket.socket(socket.AF_UNIX)
    try:
        # Limit the wait, because any process may own the name. With settimeout(), connect would fail
        # immediately while a lab is busy.
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
    """Forwards signals, but only after `begin`, because a signal byte within the request would corrupt it."""

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
            with contextlib.suppress(OSError):  # the lab may have ended
                self.peer.send(bytes([self.waiting.pop(0)]))


def ask(lab: str, what: str) -> dict[str, object]:
    """A lab's answer to ``describe`` or ``counters``."""
    with connect(lab) as peer:
        peer.settimeout(_PATIENCE_S)
        _send(peer, {"do": what})
        return _answer(peer)


def execute(lab: str, host: str, argv: list[str], env: dict[str, str] | None = None) -> int:
    """Run a command on a host of a lab, and wait for it.

    Result: the command's exit code, 128 + n after signal n; `GONE` if the lab ended first.
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
