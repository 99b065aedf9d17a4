"""Run a small Slurm cluster on this machine, to try mpicoloc with Slurm.

  sudo mpicoloc slurm up --nodes 4
  eval "$(mpicoloc slurm env)"
  srun -n 4 --mpicoloc ./app
  sudo mpicoloc slurm down

Root starts and ends the cluster; any user can run jobs in it. It ends when its first process ends, for any
reason.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from typing import Any

from mpicoloc import config, messages
from mpicoloc.bill.verify import add_key_file, key_of
from mpicoloc.cli import arguments
from mpicoloc.errors import EnvironmentFault, UsageError

_EXAMPLES = {
    "up": "--nodes 4 --cpus 8",
    "close": "1234 --uid 1000 --out '%j.%s.h5' --spool /var/spool",
    "settle": "--spool /var/spool/mpicoloc --key-file site.key",
    "clean": "1234 --uid 1000",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb and its actions."""
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, help="each action has its own --help"
    )
    up = _lab_action(actions, "up", _up, "start a Slurm cluster; needs root")
    up.add_argument(
        "--nodes",
        metavar="N",
        type=arguments.count,
        default="4",
        help="nodes n1 to nN, 16 at most (default 4)",
    )
    up.add_argument(
        "--cpus",
        metavar="N",
        type=arguments.count,
        default="4",
        help="processors that Slurm assumes on each node (default 4)",
    )
    up.add_argument(
        "--memory-mib",
        metavar="N",
        type=arguments.count,
        help="memory that Slurm assumes on each node and allocates to jobs (default: not managed)",
    )
    up.add_argument(
        "--plugstack",
        metavar="WORDS",
        help="the plugin's options in plugstack.conf, as 'default=on out=/tmp/%%j.%%s.h5'",
    )
    up.add_argument(
        "--guard",
        action="store_true",
        help="let only root put jobs into partition shared, as on a site that runs `mpicoloc pair --watch`",
    )
    _lab_action(actions, "env", _env, "print shell commands that select the cluster")
    _lab_action(actions, "down", _down, "end the cluster and everything that runs in it; needs root")
    build = _action(actions, "build", _build, "build the plugin, and print its line for plugstack.conf")
    build.add_argument("--include", metavar="DIR", help="folder with slurm/spank.h (default /usr/include)")
    _add_closing(actions)


def _add_closing(actions: Any) -> None:
    """Add the verbs that the plugin calls."""
    close = _action(
        actions, "close", _close, "sign a job's profiles and set its AdminComment; the plugin calls it"
    )
    close.add_argument(
        "--out",
        metavar="PATTERN",
        required=True,
        help="where the job's profiles are: %%j is the job, %%s the step (required), %%u the user's number",
    )
    close.add_argument("--spool", metavar="DIR", required=True, help="folder for the signed profiles")
    close.add_argument("--step", metavar="STEP", help="the step that ends, whose Slurm record is stored too")
    close.add_argument(
        "--ended",
        metavar="UNIX_S",
        type=arguments.positive,
        help="end of the step, in seconds since 1970 (default: now)",
    )
    add_key_file(close)
    settle = _action(
        actions,
        "settle",
        _settle,
        "write records that are missing because a node died or slurmctld did not answer",
    )
    settle.add_argument("--spool", metavar="DIR", required=True, help="folder of the signed profiles")
    settle.add_argument(
        "--job",
        metavar="JOB",
        type=arguments.whole(0),
        help="a job that Slurm has forgotten; the next three flags give its facts from sacct",
    )
    settle.add_argument(
        "--submitted",
        metavar="UNIX_S",
        type=arguments.whole(0),
        help="the job's SubmitTime, in seconds since 1970",
    )
    settle.add_argument(
        "--ended",
        metavar="UNIX_S",
        type=arguments.positive,
        help="the job's end, for steps whose end is unknown",
    )
    settle.add_argument("--account", metavar="NAME", help="the job's account, if it had one")
    add_key_file(settle)
    clean = _action(actions, "clean", _clean, "remove a job's shared-memory files; the plugin calls it")
    for parser in (close, clean):
        parser.add_argument("job", metavar="JOB", type=arguments.whole(0), help="Slurm's job id")
        parser.add_argument("--uid", type=arguments.whole(0), required=True, help="the job's user id")


def _lab_action(actions: Any, name: str, function: Any, words: str) -> argparse.ArgumentParser:
    parser = _action(actions, name, function, words)
    parser.add_argument("--name", metavar="NAME", default="lab", help="name of the cluster (default lab)")
    return parser


def _action(actions: Any, name: str, function: Any, words: str) -> argparse.ArgumentParser:
    return arguments.action(actions, f"slurm {name}", words, _EXAMPLES.get(name, ""), function)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    return int(args.act(args))


def _up(args: argparse.Namespace) -> int:
    from mpicoloc.core.units import counted
    from mpicoloc.lab import slurm_cluster
    from mpicoloc.pmpi import build_shim

    _warn_if_closed()
    plan = slurm_cluster.start(
        args.name,
        args.nodes,
        args.cpus,
        build_shim.plugstack_line(args.plugstack),
        is_guarded=args.guard,
        memory_mib=args.memory_mib,
    )
    print(
        f"Slurm lab {plan.name}: nodes {plan.nodes[0]} to {plan.nodes[-1]} of {counted(plan.n_cpus, 'CPU')}, "
        f"files in {plan.folder}"
    )
    return 0


def _warn_if_closed(*files: str) -> None:
    from mpicoloc.pmpi import paths

    warning = paths.closed_to_jobs(files)
    if warning is not None:
        messages.trouble(warning)


def _env(args: argparse.Namespace) -> int:
    from mpicoloc.lab import slurm_cluster

    print(f"export SLURM_CONF={shlex.quote(slurm_cluster.conf(args.name))}")
    return 0


def _build(args: argparse.Namespace) -> int:
    from mpicoloc.pmpi import build_shim, paths

    plugin, _ = build_shim.build_plugin(paths.writable_lib_dir(), sys.executable, args.include)
    _warn_if_closed(str(plugin))
    print(f"optional {plugin}")
    return 0


def _down(args: argparse.Namespace) -> int:
    from mpicoloc.lab import slurm_cluster

    if not slurm_cluster.stop(args.name):
        messages.note(f"no Slurm lab {args.name!r} is running, so there is nothing to stop")
    return 0


def _key(args: argparse.Namespace) -> Any:
    from mpicoloc.profile import signature

    key = key_of(args)
    signature.key_id(key)  # report a bad key once, before the files are read
    return key


def _close(args: argparse.Namespace) -> int:
    from mpicoloc.slurm import client, close

    close.check_pattern(args.out)
    key = _key(args)
    start = client.query_start(args.job, args.uid)
    ended_s = time.time() if args.step is None or args.ended is None else args.ended
    shm_dir = str(config.get("shm_dir"))
    return close.close_job(start, key, args.out, args.spool, shm_dir=shm_dir, step=args.step, ended_s=ended_s)


def _settle(args: argparse.Namespace) -> int:
    from mpicoloc.slurm import client, close, records

    if not os.path.isdir(args.spool):
        raise EnvironmentFault(f"there is no spool {args.spool}: give the folder that plugstack.conf names")
    key = _key(args)
    close.sweep_spool(args.spool, time.time())
    if args.job is None:
        return close.print_results(records.settle_all(args.spool, key))
    if args.submitted is None:
        raise UsageError(f"--job {args.job} needs --submitted: give the job's SubmitTime")
    stated = {"Account": args.account or "", "Cluster": client.settings()["ClusterName"]}
    start = client.Start(args.job, 0, args.submitted, args.submitted, False, str(args.job), fields=stated)
    return close.print_results(records.settle_stated_job(args.spool, key, start, args.ended))


def _clean(args: argparse.Namespace) -> int:
    from mpicoloc.core.units import counted
    from mpicoloc.slurm import close

    n = close.remove_shared_files(args.job, args.uid, str(config.get("shm_dir")))
    if n:
        print(f"{counted(n, 'file')} of job {args.job} removed")
    return 0
