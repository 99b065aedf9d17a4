"""What all kinds of labs have in common at their begin: root, tools, and a process 1 of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

from mpicoloc.errors import EnvironmentFault


def check_machine(what: str, tools: Mapping[str, str]) -> None:
    """See to it that such a lab can be made here.

    Raises `EnvironmentFault` if a tool is missing, or the caller is not root.
    """
    if os.geteuid() != 0:
        raise EnvironmentFault(f"only root makes and ends a {what}: use sudo; then any user runs jobs in it")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        packages = sorted({tools[tool] for tool in missing})
        raise EnvironmentFault(f"a {what} needs {', '.join(missing)}: install {', '.join(packages)}")


def begin(what: str, module: str, *arguments: str) -> None:
    """Start the first process of a lab, ``python -m MODULE ARGUMENTS``, and wait until it is ready.

    It is process 1 of a PID namespace: when it ends the kernel ends all others of the lab.

    Raises `EnvironmentFault` if it says something else: why no lab could be made.
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
    # It stays; nobody waits for it.
    process.returncode = 0
