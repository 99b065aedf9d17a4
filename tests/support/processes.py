"""Processes of this machine, as /proc tells of them."""

import contextlib
from pathlib import Path


def matching(is_one=None, *, cmdline=(), environ=()):
    """Numbers of those with these words of which `is_one(folder in /proc)` is true; none that has ended."""

    def has(folder, file, wanted):
        return not wanted or {*wanted} <= {*(folder / file).read_bytes().split(b"\0")}

    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if has(folder, "cmdline", cmdline) and has(folder, "environ", environ):
                found += [int(folder.name)] if is_one is None or is_one(folder) else []
    return found


def comm(process):
    """Name of a process, given by number or folder."""
    return Path("/proc", str(process), "comm").read_text().strip()


def stat(process):
    """Words behind its name: state, parent, group, session, ..."""
    return Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()


def is_running(process):
    """Whether it is there, and no zombie: in a container nobody may reap what has ended."""
    with contextlib.suppress(OSError):
        return stat(process)[0] not in "ZX"
    return False
