"""The actions of `mpicoloc lab`: make and end labs, run jobs in them, print their state and counters."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from mpicoloc import config, messages
from mpicoloc.core.network import Topology, node_name, parse_xgft, shown
from mpicoloc.core.progress import stage
from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.job import flags, launcher, target, wrap
from mpicoloc.lab import agent, control, server
from mpicoloc.network.topology import placements
from mpicoloc.show.table import Column, console, listing

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
"""Environment defaults for jobs. Communication libraries use only the lab's network. Waiting ranks yield,
because the hosts of a lab share the machine's processors. Open MPI's files disappear with the lab. Profiles
show the job's load on each level of the fat-tree."""


def parse_hosts(text: str | None, n_hosts: int) -> list[int]:
    """Numbers of the hosts in a list such as ``0-3,6`` or ``h0,h4``, in the list's order; None: all hosts.

    Raises `UsageError` if the list is malformed, names a host twice, or names a host that the lab lacks.
    """
    if text is None:
        return list(range(n_hosts))
    found: list[int] = []
    for part in text.split(","):
        ends = [word.strip().removeprefix("h") for word in part.split("-")]
        if not 1 <= len(ends) <= 2 or not all(
            word.isascii() and word.isdigit() and len(word) < 6 for word in ends
        ):
            raise UsageError(
                f"hosts {shown(text)}: {part!r} is neither a host nor a range: write, for example, 0-3,6"
            )
        first, last = int(ends[0]), int(ends[-1])
        if not first <= last < n_hosts:
            raise UsageError(f"hosts {shown(text)}: this lab has the hosts 0 to {n_hosts - 1}, not {part}")
        found += range(first, last + 1)
    twice = sorted({host for host in found if found.count(host) > 1})
    if twice:
        raise UsageError(f"hosts {shown(text)}: {twice[0]} is named twice")
    return found


def place(n_ranks: int, on: Sequence[int], placement: str, tree: Topology) -> list[int]:
    """Host of each rank, with ranks evenly distributed: ``block`` fills host after host, ``cyclic`` is
    round-robin.

    The placements of `mpicoloc.network.topology.placements` (``F2``, ``RF``) put one rank on each host.

    Raises `UsageError` if there are more hosts than ranks, or the placement does not exist.
    """
    if placement not in PLACEMENTS:
        return placements.by_name(placement, tree, n_ranks, np.random.default_rng(0)).hosts.tolist()
    if n_ranks < len(on):
        raise UsageError(f"{n_ranks} ranks cannot fill {len(on)} hosts: name {n_ranks} hosts with --hosts")
    if placement == "cyclic":
        return [on[rank % len(on)] for rank in range(n_ranks)]
    return [on[rank * len(on) // n_ranks] for rank in range(n_ranks)]


def with_coordinators(ranks: Sequence[int]) -> list[int]:
    """Host of each process; each host's last rank is followed by a coordinator."""
    last = {host: rank for rank, host in enumerate(ranks)}
    return [host for rank, at in enumerate(ranks) for host in [at] * (1 + (last[at] == rank))]


def open_mpi(processes: Sequence[int]) -> list[str]:
    """Arguments for ``mpirun`` of Open MPI 4 and 5 that put each process on its host."""
    words = ["--host", ",".join(node_name(0, host) for host in processes)]
    words += ["--map-by", "seq", "--bind-to", "none"]
    settings = {"plm_rsh_agent": server.AGENT, "pml": "ob1", "btl": "tcp,vader,self"}
    for layer in ("btl", "oob"):
        settings[f"{layer}_tcp_if_include"] = server.NETWORK
    return [*words, *(word for key, value in settings.items() for word in ("--mca", key, value))]


def hydra(processes: Sequence[int]) -> list[str]:
    """Arguments for ``mpiexec`` of MPICH, which needs consecutive ranks on each host.

    Raises `UsageError` if a host's ranks are not consecutive.
    """
    runs = [(host, len(list(same))) for host, same in groupby(processes)]
    if len(runs) > len(set(processes)):
        raise UsageError("MPICH's mpiexec needs consecutive ranks on each host: use --placement block")
    places = ",".join(f"{node_name(0, host)}:{count}" for host, count in runs)
    return ["-hosts", places, "-launcher", "ssh", "-launcher-exec", server.AGENT, "-iface", "up0"]


def job_command(
    mpirun: tuple[str, str],
    ranks: Sequence[int],
    app: Sequence[str],
    mpirun_args: Sequence[str],
    run_flags: Sequence[str],
    *,
    is_plain: bool,
) -> list[str]:
    """The command that starts a job on its first host. mpirun reaches the others through the lab's agent."""
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


def up(args: argparse.Namespace) -> int:
    """Make a lab."""
    with stage(f"making lab {args.name}"):
        control.start(args.name, args.topology, args.rate)
    print(_line(control.ask(args.name, "describe")))
    return 0


def _line(lab: dict[str, Any]) -> str:
    """Description of a lab in one line."""
    rates = sorted({f"{rate_bps * 8e-9:g} Gbit/s" for rate_bps in lab["capacity_bps"]})
    return (
        f"lab {lab['name']}: {lab['topology']}, {lab['n_hosts']} hosts, {lab['n_switches']} switches, "
        f"{' and '.join(rates)}, up for {lab['up_s']:.0f} s"
    )


def down(args: argparse.Namespace) -> int:
    """End a lab and all processes in it."""
    if not control.stop(args.name):
        messages.note(f"no lab {args.name!r} is up, so there is nothing to end")
    return 0


def status(args: argparse.Namespace) -> int:
    """List the labs that are up; returns 1 if there are none."""
    labs = []
    for name in agent.names() if args.name is None else [args.name]:
        # Any user can occupy a lab's name: report that, and list the other labs.
        try:
            labs.append(control.ask(name, "describe"))
        except EnvironmentFault as error:
            messages.trouble(str(error))
        except UsageError:
            messages.trouble(f"{name!r} is not a lab of mpicoloc")
    if args.json:
        print(json.dumps(labs))
        return 0
    print("\n".join(map(_line, labs)) or "no lab is up")
    return 0 if labs else 1


def _tree(lab: dict[str, Any]) -> Any:
    return parse_xgft(lab["topology"], lab["capacity_bps"])


def topology(args: argparse.Namespace) -> int:
    """Print the fat-tree for `mpicoloc network --topology`."""
    print(server.yaml(_tree(control.ask(args.name, "describe"))), end="")
    return 0


def execute(args: argparse.Namespace) -> int:
    """Run any command on a host or switch."""
    command = flags.application(args.app, "command", "mpicoloc lab exec HOST [--] command [arguments]")
    lab = control.ask(args.name, "describe")
    if args.host not in lab["pids"]:
        raise UsageError(f"lab {args.name} has no host {args.host!r}: it has h0 to h{lab['n_hosts'] - 1}")
    return agent.execute(args.name, args.host, command)


def run(args: argparse.Namespace) -> int:
    """Start a job by `mpicoloc run` on its first host. mpirun reaches the others through the agent."""
    lab = control.ask(args.name, "describe")
    app = flags.application(args.app, "application", "mpicoloc lab run [-n N] [--] app [arguments]")
    ranks = _ranks(args, lab)
    env = {**SETTINGS, **os.environ, **config.flags_to_env(flags.given(args))}
    config.validate(env)
    # All hosts would share any folder of the machine, so use each host's own /dev/shm.
    env.pop(config.BY_KEY["shm_dir"].env, None)
    chosen = launcher.given(args.mpirun) if args.mpirun else None
    if chosen is None:
        found = target.find(app, env)
        chosen = launcher.find(found.abi, found.libmpi, found.file)
    command = job_command(
        (chosen.family, chosen.path), ranks, app, args.mpirun_arg, args.run_flags, is_plain=args.plain
    )
    return agent.execute(args.name, f"h{ranks[0]}", command, env)


def _ranks(args: argparse.Namespace, lab: dict[str, Any]) -> list[int]:
    """Host of each rank."""
    tree = _tree(lab)
    if args.placement not in PLACEMENTS and args.hosts:
        raise UsageError(f"--placement {args.placement} chooses the hosts itself: leave out --hosts")
    hosts = parse_hosts(args.hosts, tree.n_hosts)
    n_ranks = args.n_ranks or len(hosts)
    return place(n_ranks, hosts[:n_ranks], args.placement, tree)


def _link(row: dict[str, Any]) -> str:
    return f"{row['lower']} {row['upper']}" if "lower" in row else f"all {row['n_links']}"


_COLUMNS = (
    Column("link", _link, is_name=True),
    Column("level"),
    *(
        Column(f"{way} {what}", f"{way}_{what}", left_out=rank)
        for way, what, rank in (
            ("up", "bytes", 0),
            ("up", "packets", 1),
            ("down", "bytes", 0),
            ("down", "packets", 2),
        )
    ),
)


def counters(args: argparse.Namespace) -> int:
    """Print bytes and packets on every link, up and down."""
    now = control.ask(args.name, "counters")
    try:
        counted = control.since(now, control.read_counters(args.since) if args.since else None)
    except DataError as error:
        raise DataError(f"{args.since}: {error}") from None
    if args.json:
        print(json.dumps(counted))
        return 0
    rows = sorted((*counted["levels"], *counted["links"]), key=lambda row: row["level"])
    console().print(listing(_COLUMNS, rows))
    return 0
