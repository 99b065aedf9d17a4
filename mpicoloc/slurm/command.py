"""Runs programs of Slurm (``squeue``, ``scontrol``), again while its controller does not answer."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from mpicoloc.errors import EnvironmentFault

LIMIT_S = 20.0
"""Limit of one command, s; one that takes longer waits for a controller that is down."""
PAUSES_S = (0.5, 1.0, 2.0, 4.0)
"""Pauses between attempts, s: a restart of slurmctld takes a second or two."""
_AWAY_MESSAGES = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Socket timed out",
    "Zero Bytes",
    "standby",
)


class ControllerAway(EnvironmentFault):
    """The controller does not answer now; it may later."""


def run(
    command: Sequence[str],
    pauses_s: Sequence[float] = PAUSES_S,
    sleep: Callable[[float], None] = time.sleep,
    more: Mapping[str, str] | None = None,
    *,
    limit_s: float = LIMIT_S,
    errors: str = "replace",
) -> str:
    """What a program of Slurm prints.

    Result: its standard output. Raises `EnvironmentFault` if there is no such program, the controller stays
    away, or refuses.
    """
    # SQUEUE_ variables of the user may leave jobs out.
    env = {name: text for name, text in os.environ.items() if not name.startswith("SQUEUE_")} | dict(
        more or {}
    )
    for pause_s in pauses_s:
        with contextlib.suppress(ControllerAway):
            return _run_once(command, env, limit_s, errors)
        sleep(pause_s)
    return _run_once(command, env, limit_s, errors)


def _run_once(command: Sequence[str], env: Mapping[str, str], limit_s: float, errors: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors=errors, check=False, timeout=limit_s,
            stdin=subprocess.DEVNULL, env=env,
        )  # fmt: skip
    except FileNotFoundError:
        raise EnvironmentFault(f"no {command[0]} here: run this where Slurm's programs are") from None
    except subprocess.TimeoutExpired:
        raise _controller_away(f"no answer in {limit_s:g} s") from None
    if done.returncode == 0:
        return done.stdout
    words = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
    if any(word in words for word in _AWAY_MESSAGES):
        raise _controller_away(words)
    raise EnvironmentFault(f"{' '.join(command[:3])}: {words.splitlines()[-1]}")


def _controller_away(words: str) -> ControllerAway:
    return ControllerAway(f"slurmctld does not answer ({words.splitlines()[-1]}): see `scontrol ping`")
