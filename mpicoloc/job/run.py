"""Run an MPI program with its coordinator and write a profile.

The program's output and exit code are the same as without mpicoloc. Arguments after its name are the
program's own; write -- before a program whose name begins with a dash. For several nodes, use your own
launcher, with one more rank on each node: mpirun -n N+1 python -m mpicoloc.wrap app ...

  mpicoloc run -n 8 ./heat2d 400 2000
  mpicoloc run -n 8 --trace all --out heat2d.h5 -- ./heat2d 400 2000
  mpicoloc run -n 8 --show-command ./heat2d 400 2000
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import NamedTuple

from mpicoloc import config, messages
from mpicoloc.cli import arguments
from mpicoloc.core.progress import stage
from mpicoloc.errors import EnvironmentFault, MpicolocError, UsageError
from mpicoloc.job import flags, launcher, preload, target, wrap
from mpicoloc.pmpi import elf

WAIT_PROFILE_S = 15.0
LOOK_EVERY_S = 0.5
"""Time, s, between two checks that some process is still alive that will remove the job's files."""
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_BATCH_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID")


def job_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The job's environment, with a key and name by which this process finds the job's files and profile."""
    job = dict(env)
    for name in (config.WRAPPED_ENV, config.COORDINATOR_ENV, config.SIBLINGS_ENV):
        job.pop(name, None)
    pid, began_ms = os.getpid(), time.monotonic_ns() // 1_000_000 % 10**9
    job[config.KEY_ENV] = f"{os.getuid()}.run.{pid}.{began_ms}"
    if not job.get("MPICOLOC_JOB_ID"):
        batch = next((env[name].split(".")[0] for name in _BATCH_IDS if env.get(name)), None)
        # A job in another PID namespace may have the same number, and write its profile into the same folder.
        is_first = os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
        number = str(pid) if is_first else f"{pid}-{began_ms}"
        job["MPICOLOC_JOB_ID"] = f"{batch}-{number}" if batch else number
    # An absolute path: a script may change its folder before MPI_Init.
    job["MPICOLOC_OUT"] = profile_path(job)
    return job


def profile_path(env: Mapping[str, str]) -> str:
    """Absolute path of the future profile."""
    return os.path.abspath(env.get("MPICOLOC_OUT") or f"mpicoloc-{env['MPICOLOC_JOB_ID']}.h5")


def check_writable(profile: str) -> None:
    """Check before the job starts that its profile can be written at the end.

    Raises `EnvironmentFault` if its folder does not exist or is not writable, or the path is a folder.
    """
    folder = os.path.dirname(profile)
    if os.path.isdir(profile):
        raise EnvironmentFault(f"the profile {profile} would replace a folder: name a file with --out")
    if not os.path.isdir(folder):
        raise EnvironmentFault(
            f"the profile's folder {folder} does not exist: create it, or choose another with --out"
        )
    try:
        # Permissions do not reveal read-only and remote file systems, so try to write.
        _try_to_write(folder)
    except OSError as error:
        raise EnvironmentFault(
            f"the profile's folder {folder} cannot be written ({error.strerror}): choose another with --out"
        ) from None


def _try_to_write(folder: str) -> None:
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600))
    except OSError:  # not every file system supports unnamed files
        import tempfile

        tempfile.TemporaryFile(dir=folder).close()


def execute(command: Sequence[str], env: Mapping[str, str], n_nodes: int) -> int:
    """Run mpirun with this process's input and output, and forward signals to it; returns its exit code."""
    try:
        child = subprocess.Popen(command, env=dict(env))
    except OSError as error:
        raise EnvironmentFault(
            f"{command[0]} cannot be started: {error.strerror}; name another with --mpirun"
        ) from None

    def forward(number: int, _frame: FrameType | None) -> None:
        # A terminal interrupts the launcher as well; a second SIGINT means "kill at once" to Open MPI.
        if number != signal.SIGINT or not _in_foreground():
            child.send_signal(number)

    old = {
        number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        code, hung = launcher.await_end(child, lambda: n_nodes == 1 and _only_announced(env))
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    if hung:
        messages.trouble(f"{command[0]} hung after its ranks ended, so it was killed (process {child.pid})")
    return code if code >= 0 else 128 - code


def _only_announced(env: Mapping[str, str]) -> bool:
    """Whether ranks have begun MPI_Init on this node, but at present none of them has a segment."""
    start = os.path.join(str(config.get("shm_dir", env)), f"mpicoloc.{env[config.KEY_ENV]}.")
    return os.path.exists(start + "init") and not glob.glob(glob.escape(start) + "*.seg")


def _in_foreground() -> bool:
    try:
        with open("/dev/tty") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def await_profile(env: Mapping[str, str]) -> None:
    """Wait until the job's files in memory are gone: the profile is written, or no process can do it."""
    folder = str(config.get("shm_dir", env))
    key = env[config.KEY_ENV]
    start = f"mpicoloc.{key}."
    with contextlib.suppress(OSError):
        # The coordinator removes this file, so it exists only if the coordinator was killed; the keeper does
        # not remove it.
        os.unlink(os.path.join(folder, start + "init"))
    began_s = looked_s = time.monotonic()
    while (now_s := time.monotonic()) < began_s + WAIT_PROFILE_S:
        try:
            if not any(name.startswith(start) for name in os.listdir(folder)):
                return
        except OSError:
            return
        if now_s - looked_s >= LOOK_EVERY_S:
            looked_s = now_s
            _remove_ownerless(folder, key)
        time.sleep(min(0.01, max(0.001, (now_s - began_s) / 16)))


def _remove_ownerless(folder: str, key: str) -> None:
    """Remove the job's files if none of its processes lives."""
    from mpicoloc.job import leftovers  # imported here: needed only after a failure

    with contextlib.suppress(OSError):
        for leftover in leftovers.find(folder, key, quiet_s=0.0):
            leftover.remove()


@contextlib.contextmanager
def reason_mark(env: dict[str, str]) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether a process of the job has printed why there is no profile.

    Such a process removes a marker file.
    """
    mark = os.path.join(os.environ.get("TMPDIR") or "/tmp", f".mpicoloc-run-{os.urandom(8).hex()}")
    try:
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:  # printing a second reason is better than printing none
        yield lambda: False
        return
    env[config.REASON_ENV] = mark
    try:
        yield lambda: not os.path.exists(mark)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(mark)


def stamp(path: str) -> tuple[int, int] | None:
    """A stamp that changes when the profile is written again; None if there is no profile."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino


_FLAGS_WITH_VALUE = ("-n", "-np", "--mpirun", "--mpirun-arg", "--nodes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.usage = "mpicoloc run -n N [options] [--] app [arguments]"
    parser.add_argument(
        "-n", "-np", dest="n_ranks", metavar="N", type=arguments.count, help="ranks of the application"
    )
    flags.add_first(parser)
    group = parser.add_argument_group(
        "advanced", "Options that name an environment variable can also be set by that variable."
    )
    group.add_argument(
        "--show-command",
        action="store_true",
        help="only print the mpirun command, to use with your own flags",
    )
    group.add_argument(
        "--mpirun", metavar="PATH", help="the mpirun to use (default: that of the MPI that app links)"
    )
    group.add_argument(
        "--mpirun-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="pass one more argument to mpirun; write --mpirun-arg=ARG; may be repeated",
    )
    group.add_argument(
        "--nodes",
        type=arguments.count,
        default=1,
        metavar="N",
        help="number of nodes that mpirun uses; each gets a coordinator beside its ranks (default 1)",
    )
    flags.add_advanced(group)
    parser.add_argument("app", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def prepare_argv(argv: Sequence[str]) -> list[str]:
    """Give ``--trace`` its value."""
    return flags.prepare_argv(argv, _FLAGS_WITH_VALUE)


def run(args: argparse.Namespace) -> int:
    """Start the job, wait for it and for its profile; returns the application's exit code."""
    if args.n_ranks is None:
        raise UsageError("-n N is missing: give the number of the application's ranks")
    app = flags.application(args.app, "application", "mpicoloc run -n N [--] app [arguments]")
    programs = _programs(args.n_ranks, app)
    options = config.flags_to_env(flags.given(args))
    env = {**os.environ, **options}
    config.validate(env)
    _refuse_hidden_programs(args, programs)
    _check_topology(env, flags.given(args)["network.topology"] is not None)
    for program in programs:
        file = elf.resolve_application(program.app[0])
        target.refuse_launcher(file, program.app, env)
    chosen = launcher.given(args.mpirun) if args.mpirun else None
    targets = [target.find(program.app, env, chosen.family if chosen else None) for program in programs]
    found = targets[0]
    chosen = chosen or launcher.find(found.abi, found.libmpi, found.file)
    if not args.show_command and (remedy := launcher.root_remedy(chosen, args.mpirun_arg)):
        raise EnvironmentFault(f"{chosen.path} refuses to run as root: run {remedy}")
    unshared = next((f"{one.file} {one.unshared}" for one in targets if one.unshared), "")
    n_more = 0 if unshared else args.nodes
    if args.show_command:
        wrapped = [*wrap.python_module("mpicoloc.wrap"), *_option_words(args), "--"]
        shown = _preloaded(found, options) if unshared else wrapped
        print(shlex.join(_command(chosen, programs, args, n_more, shown)))
        return 0
    env = job_environment(env)
    wrapped = [*wrap.quick_module("mpicoloc.wrap"), "--"]
    if unshared:
        _note_alone(unshared, args.nodes)
        names = (config.KEY_ENV, "MPICOLOC_JOB_ID", "MPICOLOC_OUT")  # not exported to other nodes by mpirun
        wrapped = _preloaded(found, {**options, **{name: env[name] for name in names}})
    return _run_job(_command(chosen, programs, args, n_more, wrapped), env, args.nodes)


def _note_alone(unshared: str, n_nodes: int) -> None:
    """Say why a job has no coordinator. Only a job on several nodes then has no slowdown."""
    say, loss = (messages.note, ", so no slowdown is measured") if n_nodes > 1 else (messages.detail, "")
    say(f"{unshared}: the job has no coordinator{loss}")


def _preloaded(found: target.Target, variables: Mapping[str, str]) -> list[str]:
    """Command words before a program that runs without a coordinator."""
    own = found._replace(shim=preload.with_sidecar(found.shim))
    shims = target.preload(own, os.environ.get("LD_PRELOAD", ""))
    return ["env", f"LD_PRELOAD={shims}", *(f"{name}={text}" for name, text in variables.items())]


def _run_job(command: Sequence[str], env: dict[str, str], n_nodes: int) -> int:
    """Run a command in the environment from `job_environment`, and report its profile."""
    profile = profile_path(env)
    check_writable(profile)
    messages.detail(shlex.join(command))
    before = stamp(profile)
    with reason_mark(env) as has_reason:
        code = execute(command, env, n_nodes)
        with stage("waiting for the profile"):
            await_profile(env)
        _summary(profile, env["MPICOLOC_JOB_ID"], before, has_reason())
    return code


def _check_topology(env: Mapping[str, str], is_flag: bool) -> None:
    """Check before the job runs that its topology can be read.

    An unreadable topology is an error if it was given by a flag. If it comes from the site's environment, a
    note reports it.
    """
    if config.get("network.topology", env) is None:
        return
    from mpicoloc.profile.job_network import fabric

    try:
        fabric(env)
    except MpicolocError as error:
        if is_flag:
            raise
        messages.note(f"{error}; the profile will not contain the load on the network")


class _Program(NamedTuple):
    """One of the programs of a job, and its ranks."""

    n_ranks: int
    app: list[str]


def _programs(n_ranks: int, words: Sequence[str]) -> list[_Program]:
    """The programs of a job. As for mpirun, a colon separates each program from the ``-n N`` of the next."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    programs = [_Program(n_ranks, parts[0])]
    for part in parts[1:]:
        if len(part) < 3 or part[0] not in ("-n", "-np"):
            raise UsageError(
                f"a colon must be followed by -n N and another program, got {shlex.join(part)!r}: to "
                "pass more flags to mpirun, write mpirun -n N python -m mpicoloc.wrap app : -n M+1 python -m "
                "mpicoloc.wrap other"
            )
        programs.append(_Program(arguments.parse(part[0], part[1], arguments.count), part[2:]))
    return programs


_PROGRAM_FILES = ("--app", "-app", "-configfile", "--configfile", "--multi-prog")
"""Flags of launchers that name programs in a file."""


def _refuse_hidden_programs(args: argparse.Namespace, programs: Sequence[_Program]) -> None:
    for word in args.mpirun_arg:
        if word.partition("=")[0] in _PROGRAM_FILES:
            raise UsageError(
                f"--mpirun-arg={word} names programs in a file, which mpicoloc run does not read: start the "
                "job with LD_PRELOAD=$(mpicoloc preload APP) mpirun ..., or put python -m mpicoloc.wrap "
                "before each program and add one rank"
            )
    if len(programs) > 1 and args.nodes > 1:
        raise UsageError(
            f"with several programs and --nodes {args.nodes}, mpicoloc run cannot tell which program has the "
            "last rank of each node: start the job with LD_PRELOAD=$(mpicoloc preload APP) mpirun ..."
        )


def _command(
    chosen: launcher.Launcher,
    programs: Sequence[_Program],
    args: argparse.Namespace,
    n_more: int,
    wrapped: Sequence[str],
) -> list[str]:
    """Command line of the job: the last program gets `n_more` extra ranks, the coordinators."""
    n_ranks = sum(program.n_ranks for program in programs)
    numbers_of_ranks = [program.n_ranks for program in programs]
    numbers_of_ranks[-1] += n_more
    n_cores = len(os.sched_getaffinity(0))
    options = launcher.options(chosen, n_ranks, args.mpirun_arg, n_cores, args.nodes)
    command = [chosen.path, "-n", str(numbers_of_ranks[0]), *options, *wrapped, *programs[0].app]
    for n, program in zip(numbers_of_ranks[1:], programs[1:], strict=True):
        command += [":", "-n", str(n), *wrapped, *program.app]
    return command


def _option_words(args: argparse.Namespace) -> list[str]:
    """The options of this call as flags of `mpicoloc.wrap`."""
    given = flags.given(args)
    return [f"{row.flag}={given[row.key]}" for row in config.OPTIONS if given[row.key] is not None]


def _is_of(profile: str, job_id: str) -> bool:
    """Whether a profile is that of this job, and not of another that ran at the same time."""
    from mpicoloc.profile import profiles

    with contextlib.suppress(MpicolocError):
        return profiles.read(profile).job.id == job_id
    return False


def _summary(profile: str, job_id: str, before: tuple[int, int] | None, has_reason: bool) -> None:
    """Print one line about the profile. It has the result on a terminal, or if the user asked for details."""
    after = stamp(profile)
    if after is None or after == before or (has_reason and not _is_of(profile, job_id)):
        if has_reason:
            return
        messages.trouble(f"no profile was written to {profile}: see `mpicoloc check`")
        return
    # Reading the profile takes longer than a short job, and a script needs only its name.
    words = ""
    if messages.is_wanted():
        from mpicoloc.profile.summary import result_words

        words = result_words(profile)
    messages.note(f"profile {profile}{words}")
