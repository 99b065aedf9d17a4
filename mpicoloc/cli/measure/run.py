"""Run an MPI program with its coordinator and write a profile.

The program's output and exit code are what they are without mpicoloc. What follows its name is its own; write
-- before a program whose name begins with a dash. For several nodes use your launcher:
mpirun -n N+1 python -m mpicoloc.wrap app ..., with a rank more on each node.

  mpicoloc run -n 8 ./heat2d 400 2000
  mpicoloc run -n 8 --trace all --out heat2d.h5 -- ./heat2d 400 2000
  mpicoloc run -n 8 --show-command ./heat2d 400 2000
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence

from mpicoloc import config
from mpicoloc.cli import job_flags
from mpicoloc.coordinator import launcher, mpirun_job
from mpicoloc.core import messages
from mpicoloc.core.progress import stage
from mpicoloc.errors import UsageError
from mpicoloc.launch import target, wrap

_FLAGS_WITH_VALUE = ("-n", "-np", "--mpirun", "--mpirun-arg", "--nodes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.usage = "mpicoloc run -n N [options] [--] app [arguments]"
    parser.add_argument("-n", "-np", dest="n_ranks", metavar="N", help="ranks of the application")
    job_flags.add_first(parser)
    group = parser.add_argument_group(
        "advanced", "Each option whose variable is named may also be given by that, in the environment."
    )
    group.add_argument(
        "--show-command",
        action="store_true",
        help="run nothing: print the mpirun command, to be used with flags of your own",
    )
    group.add_argument(
        "--mpirun", metavar="PATH", help="the mpirun to use; default: of the MPI that app links"
    )
    group.add_argument(
        "--mpirun-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="one more argument for mpirun, as --mpirun-arg=ARG; may be given several times",
    )
    group.add_argument(
        "--nodes",
        metavar="N",
        help="number of nodes that mpirun uses; each gets a coordinator beside its ranks (default 1)",
    )
    job_flags.add_advanced(group)
    parser.add_argument("app", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def prepare_argv(argv: Sequence[str]) -> list[str]:
    """Give ``--trace`` its value."""
    return job_flags.prepare_argv(argv, _FLAGS_WITH_VALUE)


def run(args: argparse.Namespace) -> int:
    """Start the job, wait for it and for its profile; returns the application's exit code."""
    n_ranks = _number_of_ranks(args.n_ranks)
    n_nodes = config.parse_whole("--nodes", args.nodes or "1")
    app = job_flags.application(args.app, "application", "mpicoloc run -n N [--] app [arguments]")
    options = config.flags_to_env(job_flags.given(args))
    env = {**os.environ, **options}
    config.validate(env)
    chosen = launcher.given(args.mpirun) if args.mpirun else None
    found = target.find(app, env, chosen.family if chosen and chosen.family != "slurm" else None)
    chosen = chosen or launcher.find(found.abi, found.libmpi, found.file)
    command = launcher.command(chosen, n_ranks, args.mpirun_arg, len(os.sched_getaffinity(0)), n_nodes)
    if args.show_command:
        print(shlex.join([*command, *wrap.python_module("mpicoloc.wrap"), *_option_words(args), "--", *app]))
        return 0
    command += [*wrap.quick_module("mpicoloc.wrap"), "--", *app]
    env = mpirun_job.job_environment(env)
    profile = mpirun_job.profile_path(env)
    mpirun_job.check_writable(profile)
    messages.detail(shlex.join(command))
    before = mpirun_job.stamp(profile)
    with mpirun_job.reason_mark(env) as has_reason:
        code = mpirun_job.execute(command, env, n_nodes)
        with stage("waiting for the profile"):
            mpirun_job.await_profile(env)
        _summary(profile, before, has_reason())
    return code


def _option_words(args: argparse.Namespace) -> list[str]:
    """The options of this call as flags of `mpicoloc.wrap`."""
    given = job_flags.given(args)
    return [f"{row.flag}={given[row.key]}" for row in config.OPTIONS if given[row.key] is not None]


def _number_of_ranks(text: str | None) -> int:
    if text is None:
        raise UsageError("-n N is missing: how many ranks shall the application have?")
    return config.parse_whole("-n", text)


def _summary(profile: str, before: tuple[int, int] | None, has_reason: bool) -> None:
    """One line about the profile; where a person looks on, or asked for more, with its result."""
    after = mpirun_job.stamp(profile)
    if after is None or after == before:
        if has_reason:
            return
        messages.trouble(f"no profile was written to {profile}: see `mpicoloc check`")
        return
    # Reading the profile takes longer than a short job; a script needs its name only.
    words = ""
    if messages.is_wanted():
        from mpicoloc.report.summary import result_words

        words = result_words(profile)
    messages.note(f"profile {profile}{words}")
