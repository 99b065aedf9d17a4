"""Start one rank of an MPI job under mpicoloc: ``mpirun -n N+1 python -m mpicoloc.wrap [options] app ...``.

Every rank of the launcher runs this module. The last rank of each node becomes that node's coordinator; the
others become the application with the preloaded library. Both do so by ``exec``, so the launcher sees the
application's exit code. All ranks wait for this module before MPI starts, so it imports nothing that takes
longer than a millisecond.
"""

from __future__ import annotations

import _signal  # importing `signal` takes milliseconds because of its enumerations
import os
import sys
import time

from mpicoloc import config
from mpicoloc.errors import EnvironmentFault, MpicolocError, UsageError, print_to_stderr
from mpicoloc.job import target
from mpicoloc.job.processes import stat
from mpicoloc.pmpi import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NamedTuple, NoReturn
else:
    from mpicoloc.core.record import NamedTuple


_LOCAL = (
    ("Open MPI", "openmpi", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MVAPICH", "mpich", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("Hydra", "mpich", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Launchers, each with its MPI family and its variables. Slurm and bare PMIx launchers start any family."""

_SILENT_S = 3.0
"""If a rank cannot start, it waits this time, s, for its node's first rank to print the reason."""

_DAEMONS = ("hydra_pmi_proxy", "mpiexec", "mpirun", "orted", "prted", "slurmstepd")


class Place(NamedTuple):
    """This rank's position among the ranks of its node. `launcher`: None if started by hand."""

    launcher: str | None
    local_rank: int
    local_size: int
    family: str | None = None


def place_of(env: Mapping[str, str]) -> Place:
    """Place of this rank, from the launcher's variables.

    Without such variables the node is taken to have one rank. Raises `UsageError` if variables are invalid.
    """
    for launcher, family, rank, size in _LOCAL:
        if rank in env and size in env:
            # In a job on one node, Open MPI 6 may number ranks within the node in another order than in the
            # world.
            is_whole = env.get("OMPI_COMM_WORLD_SIZE") == env[size] and "OMPI_COMM_WORLD_RANK" in env
            local_rank = _number(env, "OMPI_COMM_WORLD_RANK" if is_whole else rank)
            return _checked(launcher, local_rank, _number(env, size), family)
    if "SLURM_LOCALID" in env and "SLURM_STEP_TASKS_PER_NODE" in env:
        tasks = slurm_tasks(env["SLURM_STEP_TASKS_PER_NODE"])
        node = _number(env, "SLURM_NODEID") if "SLURM_NODEID" in env else 0
        size_here = tasks[node] if node < len(tasks) else 1
        return _checked("Slurm", _number(env, "SLURM_LOCALID"), size_here, None)
    if "PMIX_LOCAL_RANK" in env and "PMIX_LOCAL_SIZE" in env:
        return _checked("PMIx", _number(env, "PMIX_LOCAL_RANK"), _number(env, "PMIX_LOCAL_SIZE"), None)
    if "PMIX_RANK" in env or "PMI_RANK" in env:
        return Place("PMIx" if "PMIX_RANK" in env else "PMI", 0, 1)
    return Place(None, 0, 1)


def _number(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise UsageError(f"the launcher set {name}={env[name]!r}, which is not a number") from None


def _checked(launcher: str, rank: int, size: int, family: str | None) -> Place:
    if not 0 <= rank < size:
        raise UsageError(
            f"{launcher} set local rank {rank} of {size} ranks: start the job with one launcher only"
        )
    return Place(launcher, rank, size, family)


def slurm_tasks(text: str) -> list[int]:
    """Tasks on each node from Slurm's short form.

    >>> slurm_tasks("2(x3),1")
    [2, 2, 2, 1]
    """
    tasks: list[int] = []
    for part in text.split(","):
        count, _, times = part.rstrip(")").partition("(x")
        try:
            tasks += [int(count)] * int(times or 1)
        except ValueError:
            raise UsageError(
                f"Slurm set SLURM_STEP_TASKS_PER_NODE={text!r}, which has an unknown format"
            ) from None
    return tasks


def key(env: Mapping[str, str]) -> str:
    """Key in the names of the job's files on this node: the same for its ranks here, different for other
    jobs.

    `mpicoloc run` sets one. Otherwise the key is made of the launcher's job name, or of the process that
    started the ranks. A job that is started inside another job gets its own key.
    """
    given = env.get(config.KEY_ENV)
    if given and env.get(config.WRAPPED_ENV) is None:
        return given
    for name in ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"):
        if env.get(name):
            return _clean(f"{os.getuid()}.{env[name]}")
    if "SLURM_STEP_ID" in env and "SLURM_JOB_ID" in env and "MPI_LOCALRANKID" not in env:
        return _clean(f"{os.getuid()}.{env['SLURM_JOB_ID']}.{env['SLURM_STEP_ID']}")
    pid, start = _starter()
    return _clean(f"{os.getuid()}.{pid}.{start}")


def _clean(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-." else "-" for c in text)[-48:]


def _starter() -> tuple[int, str]:
    """The process that started the ranks (the launcher's daemon, even behind a shell), and its start."""
    parent = os.getppid()
    pid, steps = parent, 0
    while pid > 1 and steps < 8:
        name, above, start = _identity(pid)
        if name in _DAEMONS:
            return pid, start
        pid, steps = above, steps + 1
    return parent, _identity(parent)[2]


def _identity(pid: int) -> tuple[str, int, str]:
    """Name, parent and start time of a process."""
    fields = stat(pid)
    return (fields[0], int(fields[2]), fields[20]) if fields else ("", 0, "0")


USAGE = """\
usage: mpirun -n N+1 python -m mpicoloc.wrap [options] app [arguments]

Runs N ranks of the application and one coordinator on each node. Options (also as environment variables):
"""


_OPEN_MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "OMPI_APP_CTX_NUM_PROCS", "OMPI_MCA_orte_ess_num_procs")


class Plan(NamedTuple):
    """The program that this rank becomes: file, arguments and environment, and a line for the user."""

    file: str
    argv: list[str]
    env: dict[str, str]
    note: str | None = None
    is_coordinator: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Replace this process by the application or the coordinator; returns only when that fails."""
    place = Place(None, 0, 1)
    try:
        place = place_of(os.environ)
        words = list(sys.argv[1:] if argv is None else argv)
        options, app = parse(words)
        if not app:
            print(usage(), end="")
            return 0
        if place.local_rank == 0 and config.KEY_ENV not in os.environ:  # else `mpicoloc run` has warned
            for line in config.variable_warnings():
                print_to_stderr(line)
        become(plan(app, options, os.environ, place))
    except MpicolocError as error:
        # All ranks of a node fail with the same error: the first one prints it, and the others wait, because
        # the launcher ends all ranks as soon as one exits.
        if place.local_rank == 0:
            print_to_stderr(str(error))
        else:
            time.sleep(_SILENT_S)
        return error.exit_code


def usage() -> str:
    """Help text, from the option table."""
    rows = (f"  {row.flag} {row.metavar}\n      {row.help} ({row.env})\n" for row in config.OPTIONS)
    return USAGE + "".join(rows)


def parse(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Environment of the options, and the application with its arguments; empty if help was requested.

    Raises `UsageError` if an option is unknown or bad, or no application follows.
    """
    words = list(argv)
    values: dict[str, str | None] = {}
    flags = {row.flag: row for row in config.OPTIONS}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        if word in ("-h", "--help"):
            return {}, []
        flag, equals, text = word.partition("=")
        if flag not in flags:
            raise UsageError(f"unknown option {flag}; see `python -m mpicoloc.wrap --help`")
        if not equals and flag == "--trace":
            has_value = bool(words) and config.is_trace_value(words[0])
            text = words.pop(0) if has_value else str(config.TRACE_EVENTS)
        elif not equals:
            if not words:
                raise UsageError(f"{flag} needs a value; see `python -m mpicoloc.wrap --help`")
            text = words.pop(0)
        values[flags[flag].key] = text
    if not words:
        raise UsageError("no application named; write: mpirun -n N+1 python -m mpicoloc.wrap app [arguments]")
    return config.flags_to_env(values), words


def plan(app: Sequence[str], options: Mapping[str, str], env: Mapping[str, str], place: Place) -> Plan:
    """The plan of the rank at `place`.

    Raises `UsageError` if the application cannot be run under mpicoloc, or an option is bad. Raises
    `EnvironmentFault` if no preloaded library fits its MPI.
    """
    merged = {**env, **options}
    config.validate(merged)
    found = target.find(app, merged, place.family)
    if place.launcher is not None and config.KEY_ENV not in merged:  # else `mpicoloc run` has checked
        target.refuse_launcher(found.file, app, merged)
    has_coordinator = place.local_size > 1
    if has_coordinator and found.unshared:
        raise UsageError(
            f"{app[0]} {found.unshared}: start it without mpicoloc.wrap and without the extra rank, with "
            "LD_PRELOAD=$(mpicoloc preload APP)"
        )
    child = {**merged, config.PYTHON_ENV: sys.executable}
    if place.launcher is not None:
        child[config.KEY_ENV] = key(merged)
        child[config.WRAPPED_ENV] = "1"
        child[config.PID_ENV] = str(os.getpid())  # exec keeps it
    # Every rank makes the alias: a failure must hit all ranks alike, or the others would wait in MPI_Init.
    libmpi = libmpi_alias(found) if has_coordinator else None
    if has_coordinator and place.local_rank == place.local_size - 1:
        return coordinator_plan(found.libmpi, libmpi, child, place)
    if has_coordinator:
        child[config.COORDINATOR_ENV] = "1"
        restore_yield(child, place)
        hide_coordinator(child, place, app)
    child["LD_PRELOAD"] = target.preload(found, merged.get("LD_PRELOAD", ""))
    return Plan(found.file, list(app), child, note(place))


def note(place: Place) -> str | None:
    """The line that tells the user that a node runs without a coordinator."""
    if place.launcher is not None and place.local_size <= 1:
        return (
            "one rank on this node, too few for a coordinator: it runs the application, and its keeper "
            "writes the profile; for a coordinator start one rank more on each node"
        )
    return None


def coordinator_plan(linked: str | None, libmpi: str | None, env: dict[str, str], place: Place) -> Plan:
    """Plan of the coordinator, which loads the application's MPI library `linked` by its alias `libmpi`."""
    env.pop("LD_PRELOAD", None)
    env[config.SIBLINGS_ENV] = str(place.local_size - 1)
    env["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's OpenBLAS would start a thread on each processor of the job
    let_mpi4py_load(linked, libmpi, env)
    return Plan(sys.executable, quick_module("mpicoloc.job.coordinator"), env, is_coordinator=True)


def let_mpi4py_load(linked: str | None, libmpi: str | None, env: dict[str, str]) -> None:
    """Make mpi4py in processes with this environment load the MPI `linked` by its alias `libmpi`."""
    # If the ABI is named as well, mpi4py ignores the path and lets the loader choose the library.
    env.pop("MPI4PY_MPIABI", None)
    if libmpi is not None:
        env["MPI4PY_LIBMPI"] = paths.listed(libmpi)
        if libmpi != linked:
            folders = [os.path.dirname(paths.listed(libmpi)), env.get("LD_LIBRARY_PATH", "")]
            env["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)


def python_module(name: str) -> list[str]:
    """Command that runs a module of mpicoloc; -P keeps files of the job's folder from shadowing libraries."""
    source = os.path.dirname(os.path.dirname(os.path.abspath(config.__file__)))
    safe = [] if source == os.getcwd() else ["-P"]
    return [sys.executable, *safe, "-m", name]


def quick_module(name: str) -> list[str]:
    """Command that runs a module with a fast start, because the job waits for it."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quick_start.py")
    return [sys.executable, "-S", "-P", script, name]


def libmpi_alias(found: target.Target) -> str | None:
    """The MPI library under a name that mpi4py's wheel accepts.

    Debian renamed MPICH's libmpi.so.12, so that library gets a link with this name.

    The wheel does not know the standard ABI. A library with that ABI is installed beside the same MPI with
    its native ABI, which the wheel knows, and processes with either library can communicate.
    """
    libmpi = found.libmpi
    if libmpi is not None and found.abi == "abi":
        own = [os.path.join(os.path.dirname(libmpi), name) for name in ("libmpi.so.12", "libmpi.so.40")]
        return next((path for path in own if os.path.exists(path)), libmpi)
    if libmpi is None or found.abi != "mpich" or os.path.basename(libmpi) == "libmpi.so.12":
        return libmpi
    beside = os.path.join(os.path.dirname(libmpi), "libmpi.so.12")
    if os.path.exists(beside) and os.path.samefile(beside, libmpi):
        return beside
    folder = os.path.join(paths.cache_dir(), "alias-" + libmpi.strip("/").replace("/", "-"))
    alias = os.path.join(folder, "libmpi.so.12")
    try:
        os.makedirs(folder, exist_ok=True)
        if not os.path.exists(alias):
            os.symlink(libmpi, f"{alias}.{os.getpid()}")
            os.replace(f"{alias}.{os.getpid()}", alias)
    except OSError as error:
        raise EnvironmentFault(f"{folder} cannot be created ({error.strerror}): set XDG_CACHE_HOME") from None
    return alias


def restore_yield(env: dict[str, str], place: Place) -> None:
    """Undo Open MPI's oversubscribed mode if only the coordinator exceeds the number of cores.

    In that mode ranks yield their core while they wait, which changes the application's behaviour. The
    coordinator sleeps, so it needs no core.
    """
    if env.get("OMPI_MCA_mpi_oversubscribe") == "1" and place.local_size - 1 <= (os.cpu_count() or 1):
        env["OMPI_MCA_mpi_oversubscribe"] = "0"


def hide_coordinator(env: dict[str, str], place: Place, app: Sequence[str]) -> None:
    """Correct Open MPI's variables for programs that read them or MPI_INFO_ENV, which MPI derives from them.

    MPI itself does not read them. Sizes of the whole job are corrected only on one node, where the
    number of coordinators is known. Variables of Hydra and Slurm stay: MPI_Init needs them.
    """
    if "OMPI_COMM_WORLD_LOCAL_SIZE" not in env:
        return
    size = str(place.local_size)
    if env.get("OMPI_COMM_WORLD_SIZE") == size:
        for name in _OPEN_MPI_SIZES:
            if env.get(name) == size:
                env[name] = str(place.local_size - 1)
        for name in ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK"):
            if name in env:
                env[name] = str(place.local_rank)
    env["OMPI_COMM_WORLD_LOCAL_SIZE"] = str(place.local_size - 1)
    if "OMPI_COMMAND" in env:
        env["OMPI_COMMAND"] = os.path.basename(app[0])
        env["OMPI_ARGV"] = " ".join(app[1:])


def become(chosen: Plan) -> NoReturn:
    """Execute the plan."""
    if chosen.note:
        print_to_stderr(chosen.note)
    if chosen.is_coordinator:
        unbind()
    else:
        restore_signals()
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(chosen.file, chosen.argv, chosen.env)
    except OSError as error:
        raise EnvironmentFault(f"{chosen.file} cannot be executed: {error.strerror}") from None


def restore_signals() -> None:
    """Restore the default action of signals that Python ignores; otherwise they stay ignored after exec."""
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)


def unbind() -> None:
    """Let the coordinator run on every processor of the job, so that it does not wait for a busy one."""
    try:
        os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))
    except OSError:
        pass  # a coordinator bound to one processor works as well


if __name__ == "__main__":
    sys.exit(main())
