"""Slurm labs of this machine from outside: begin one, end it, look at its programs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import socket
import zlib

from mpicoloc.errors import EnvironmentFault, UsageError
from mpicoloc.lab import agent, control, slurm_server

TOOLS = {
    "unshare": "util-linux",
    "mount": "mount",
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sinfo": "slurm-wlm",
}
"""Programs that make a Slurm lab, and the package each is in."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,29}")
_PORTS = range(27600, 29600, 20)


def start(
    name: str,
    n_nodes: int,
    n_cpus: int = slurm_server.CPUS,
    spank: str | None = None,
    *,
    is_guarded: bool = False,
    memory_mib: int | None = None,
) -> slurm_server.Plan:
    """Make a Slurm cluster, which stays until `stop`, or until its first process is killed.

    Result: what was made; ``slurm.conf`` lies in its `folder`. Raises `UsageError` if an argument makes no
    sense. Raises `EnvironmentFault` if there is such a lab, or the machine does not allow one.
    """
    checked(name)
    if not 1 <= n_nodes <= slurm_server.MAX_NODES:
        raise UsageError(f"{n_nodes} nodes: give 1 to {slurm_server.MAX_NODES}")
    if not 1 <= n_cpus <= 1024:
        raise UsageError(f"{n_cpus} processors per node: give 1 to 1024")
    if memory_mib is not None and not 1 <= memory_mib <= 1 << 30:
        raise UsageError(f"{memory_mib} MiB of memory per node: give 1 to {1 << 30}")
    control.check_tools("Slurm lab", TOOLS)
    port = _free_ports(name, n_nodes + 1)
    plan = slurm_server.Plan(name, n_nodes, n_cpus, port, spank, is_guarded, memory_mib)
    control.begin_lab("Slurm lab", "mpicoloc.lab.slurm_server", json.dumps(dataclasses.asdict(plan)))
    return plan


def _free_ports(name: str, n: int) -> int:
    """First of `n` ports in a row that nobody listens at."""
    # Labs that begin at one time see the same ports free, so each begins to look elsewhere.
    i_first = zlib.crc32(name.encode()) % len(_PORTS)
    for first in (*_PORTS[i_first:], *_PORTS[:i_first]):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + n):
                probe = stack.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("", port))
            return first
    raise EnvironmentFault(f"ports {_PORTS[0]} to {_PORTS[-1]} are taken: end another Slurm lab")


def checked(name: str) -> str:
    """`name`, if a cluster can have it.

    Raises `UsageError` if it has other letters than Slurm's names of clusters.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"name {name!r}: give 1 to 30 small letters, digits, dashes or underscores")
    return name


def conf(name: str) -> str:
    """Path of slurm.conf of the lab that is up, for ``SLURM_CONF``.

    Raises `EnvironmentFault` if there is none of that name.
    """
    if first_process(name) is None:
        raise EnvironmentFault(
            f"no Slurm lab {name!r} is up: make one with `mpicoloc slurm up --name {name}`"
        )
    return f"{slurm_server.ROOT}/{name}/slurm.conf"


def first_process(name: str) -> int | None:
    """The lab's process 1, by its number outside; None if it is not up."""
    with control.connected("Slurm lab", checked(name), slurm_server.PREFIX) as peer:
        return agent.credentials(peer)[0] if peer else None


def stop(name: str) -> bool:
    """End a lab with all that runs in it, and remove its files; returns whether there was one.

    Raises `EnvironmentFault` if the caller may not, or it does not end.
    """
    with control.connected("Slurm lab", checked(name), slurm_server.PREFIX) as peer:
        control.check_tools("Slurm lab", TOOLS)
        was_up = peer is not None and control.end("Slurm lab", name, peer)
    shutil.rmtree(f"{slurm_server.ROOT}/{name}", ignore_errors=True)
    return was_up
