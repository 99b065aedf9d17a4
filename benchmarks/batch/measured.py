"""Runs a process, and tells how much memory it took."""

import os
import subprocess


def run_measured(command, stdout):
    """Peak memory of a process, bytes.

    Parameters
    ----------
    command : list of str
    stdout : file or int
        As of `subprocess.Popen`.
    """
    process = subprocess.Popen(command, stdout=stdout)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    return used.ru_maxrss * 1024
