"""Which rank of a job runs on which host of a lab, and how launchers are told."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from mpicoloc.core.topology import Topology
from mpicoloc.errors import UsageError
from mpicoloc.job import wrap
from mpicoloc.lab import plan, server
from mpicoloc.network.topology import placements, xgft

PLACEMENTS = ("block", "cyclic")
SETTINGS = {
    "UCX_NET_DEVICES": "up0",
    "UCX_TLS": "tcp,self",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "up0",
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_orte_tmpdir_base": "/dev/shm",
    "MPICOLOC_TOPOLOGY": server.TOPOLOGY,
}
"""Unless the user has set them: libraries below MPICH keep to the lab's network; ranks that wait let others
run, for the hosts of a lab share the machine's processors; Open MPI's files end with the lab; and the profile
tells what the job did to each level."""


def hosts(text: str | None, n_hosts: int) -> list[int]:
    """Numbers of the hosts that a list such as ``0-3,6`` or ``h0,h4`` names, in its order; None: all.

    Raises `UsageError` if it is no such list, a host is named twice, or the lab does not have it.
    """
    if text is None:
        return list(range(n_hosts))
    found: list[int] = []
    for part in text.split(","):
        ends = [word.strip().removeprefix("h") for word in part.split("-")]
        if not 1 <= len(ends) <= 2 or not all(
            word.isascii() and word.isdigit() and len(word) < 6 for word in ends
        ):
            raise UsageError(f"hosts {xgft.shown(text)}: {part!r} is no host: write them like 0-3,6")
        first, last = int(ends[0]), int(ends[-1])
        if not first <= last < n_hosts:
            raise UsageError(
                f"hosts {xgft.shown(text)}: this lab has the hosts 0 to {n_hosts - 1}, not {part}"
            )
        found += range(first, last + 1)
    twice = sorted({host for host in found if found.count(host) > 1})
    if twice:
        raise UsageError(f"hosts {xgft.shown(text)}: {twice[0]} is named twice")
    return found


def place(n_ranks: int, on: Sequence[int], placement: str, tree: Topology) -> list[int]:
    """Host of each rank: ``block`` fills host after host, ``cyclic`` goes round; evenly.

    Also those of `mpicoloc.network.topology.placements` (``F2``, ``RF``): one rank on each host.

    Raises `UsageError` if there are more hosts than ranks, or no such placement.
    """
    if placement not in PLACEMENTS:
        return placements.by_name(placement, tree, n_ranks, np.random.default_rng(0)).hosts.tolist()
    if n_ranks < len(on):
        raise UsageError(f"{n_ranks} ranks do not reach {len(on)} hosts: name {n_ranks} with --hosts")
    if placement == "cyclic":
        return [on[rank % len(on)] for rank in range(n_ranks)]
    return [on[rank * len(on) // n_ranks] for rank in range(n_ranks)]


def with_coordinators(ranks: Sequence[int]) -> list[int]:
    """The same, with one more process after the last rank of each host: its coordinator."""
    last = {host: rank for rank, host in enumerate(ranks)}
    return [host for rank, at in enumerate(ranks) for host in [at] * (1 + (last[at] == rank))]


def open_mpi(processes: Sequence[int]) -> list[str]:
    """Arguments for ``mpirun`` of Open MPI 4 and 5 that put each process on its host."""
    words = ["--host", ",".join(xgft.name(0, host) for host in processes)]
    words += ["--map-by", "seq", "--bind-to", "none"]
    settings = {"plm_rsh_agent": server.AGENT, "pml": "ob1", "btl": "tcp,vader,self"}
    for layer in ("btl", "oob"):
        settings[f"{layer}_tcp_if_include"] = plan.NETWORK
    return [*words, *(word for key, value in settings.items() for word in ("--mca", key, value))]


def hydra(processes: Sequence[int]) -> list[str]:
    """The same for ``mpiexec`` of MPICH, which knows a host's ranks only where they follow each other.

    Raises `UsageError` if they do not.
    """
    runs = [(host, len(list(same))) for host, same in groupby(processes)]
    if len(runs) > len(set(processes)):
        raise UsageError(
            "MPICH's mpiexec wants the ranks of a host to follow each other: use --placement block"
        )
    places = ",".join(f"{xgft.name(0, host)}:{count}" for host, count in runs)
    return ["-hosts", places, "-launcher", "ssh", "-launcher-exec", server.AGENT, "-iface", "up0"]


def command(
    mpirun: tuple[str, str],
    ranks: Sequence[int],
    app: Sequence[str],
    mpirun_args: Sequence[str],
    run_flags: Sequence[str],
    *,
    is_plain: bool,
) -> list[str]:
    """The command that starts a job on its first host; mpirun reaches the others by the lab's agent."""
    family, path = mpirun
    place = open_mpi if family == "openmpi" else hydra
    n_ranks = ["-n", str(len(ranks))]
    if is_plain:
        return [path, *place(ranks), *mpirun_args, *n_ranks, *app]
    words = [*place(with_coordinators(ranks)), *mpirun_args]
    return [
        *wrap.python_module("mpicoloc"), "run", *n_ranks, "--nodes", str(len(set(ranks))),
        "--mpirun", path, *(f"--mpirun-arg={word}" for word in words), *run_flags, "--", *app,
    ]  # fmt: skip
