"""A command on a terminal of a given size, and what the terminal shows."""

import fcntl
import os
import select
import signal
import struct
import sys
import termios
import time
from dataclasses import dataclass

import pyte

LIMIT_S = 60


@dataclass(frozen=True)
class Shown:
    """Result of a command: output, the screen after each piece of it (`seen`) and at the end (`screen`)."""

    output: str
    screen: list[str]
    seen: list[list[str]]
    code: int

    def ever(self, word):
        """Whether a line of the screen had that word at any time."""
        return any(word in line for screen in self.seen for line in screen)


def mpicoloc(*argv, **more):
    """As of `show`, of this Python's command."""
    return show(sys.executable, "-m", "mpicoloc", *map(str, argv), **more)


def show(*argv, columns=100, lines=200, env=(), stop_s=None, stdout=None, keys=()):
    """Run a command on a terminal of that size; its standard output may go to the file `stdout` instead.

    `env` has variables beside those of this process (None: without), `keys` pairs of words on the screen to
    wait for and what is typed then. After `stop_s` the command is interrupted, as Ctrl-C does.
    """
    child, master = os.forkpty()
    if child == 0:
        try:
            _become(argv, dict(env), stdout)
        finally:
            os._exit(127)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    screen = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(screen)
    began_s, output, seen, keys = time.monotonic(), b"", [], list(keys)
    try:
        while True:
            now_s = time.monotonic() - began_s
            if stop_s is not None and now_s > stop_s:
                os.kill(child, signal.SIGINT)
                stop_s = now_s + 2  # as a person does: Python drops an interrupt that comes in a finalizer
            assert now_s < LIMIT_S, f"{argv} takes more than {LIMIT_S} s"
            if not select.select([master], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(master, 1 << 16)
            except OSError:  # nobody has the terminal any more
                piece = b""
            if not piece:
                break
            output += piece
            stream.feed(piece)
            seen.append(_lines(screen))
            if keys and keys[0][0] in "\n".join(seen[-1]):
                os.write(master, keys.pop(0)[1].encode())
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(master)
        status = os.waitpid(child, 0)[1]
    text = output.decode("utf-8", "replace")
    return Shown(text, _lines(screen), seen, os.waitstatus_to_exitcode(status))


def _become(argv, changes, stdout):
    # The size of the terminal comes a moment later than the terminal.
    deadline_s = time.monotonic() + 5
    while os.get_terminal_size(2).columns == 0 and time.monotonic() < deadline_s:
        time.sleep(0.001)
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    env |= {"TERM": "xterm-256color", **changes}
    if stdout is not None:
        os.dup2(os.open(stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.execvpe(argv[0], argv, {name: value for name, value in env.items() if value is not None})


def _lines(screen):
    return [line.rstrip() for line in screen.display if line.strip()]
