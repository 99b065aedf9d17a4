"""The mpirun of an MPI library, and its command line for N ranks and a coordinator."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.pmpi import elf

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_names(names: Sequence[str], what: str) -> None:
    """Refuse names that cannot stand in a host file or file name.

    Raises `DataError` if a name has characters that host names cannot have.
    """
    wrong = next((name for name in names if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        raise DataError(
            f"{what} {wrong!r} cannot be written to a host file: use letters, digits, dots and dashes only"
        )


def hydra(hosts: Sequence[str], n_ranks: int) -> str:
    """Host file of Hydra (MPICH, Intel MPI): `mpirun -f FILE`."""
    return "".join(f"{host}:{n_ranks}\n" for host in hosts)


def openmpi(hosts: Sequence[str], n_ranks: int) -> str:
    """Host file of Open MPI: `mpirun --hostfile FILE`."""
    return "".join(f"{host} slots={n_ranks}\n" for host in hosts)


def rank_file(hosts: Sequence[str], slots: Sequence[int], n_ranks: int) -> str:
    """Rank file of Open MPI: `mpirun --rankfile FILE`; each slot of a node has `n_ranks` processors."""
    rows = [
        (host, slot * n_ranks + i) for host, slot in zip(hosts, slots, strict=True) for i in range(n_ranks)
    ]
    return "".join(f"rank {rank}={host} slot={cpu}\n" for rank, (host, cpu) in enumerate(rows))


def node_list(hosts: Sequence[str]) -> str:
    """The nodes as `sbatch --nodelist` takes them."""
    return ",".join(hosts)


def files_of(job: str, hosts: Sequence[str], slots: Sequence[int], n_ranks: int) -> dict[str, str]:
    """All files of one job, by their names."""
    return {
        f"{job}.hydra": hydra(hosts, n_ranks),
        f"{job}.openmpi": openmpi(hosts, n_ranks),
        f"{job}.rankfile": rank_file(hosts, slots, n_ranks),
        f"{job}.nodelist": node_list(hosts) + "\n",
    }


LOOK_MS = 2500
N_LOOKS = 3
"""A launcher counts as hung if this many consecutive checks find it without ranks."""
_NAMES = {
    "openmpi": ("mpirun.openmpi", "mpirun", "mpiexec.openmpi", "mpiexec"),
    "mpich": ("mpiexec.hydra", "mpiexec.mpich", "mpirun.mpich", "mpiexec", "mpirun"),
    "abi": ("mpiexec", "mpirun", "mpiexec.mpich", "mpirun.openmpi"),
}
_MAPPING = {"map-by", "rankfile", "rf", "npernode", "oversubscribe", "nooversubscribe", "bycore", "bynode"}
_BINDING = {"bind-to", "cpu-set", "cpu-list"}
_HOSTS = {"host", "H", "hostfile", "machinefile"}
"""Flags of Open MPI, without dashes: for mapping ranks, binding them, and naming nodes."""
_ROOM = {"map-by": ("subscribe", ":OVERSUBSCRIBE"), "bind-to": ("overload", ":overload-allowed")}
"""Two texts for each flag: a value that contains the first already allows or forbids one more rank; to allow
one more rank, the second is appended to any other value."""


class Launcher(NamedTuple):
    """An mpirun: its file, its family ("openmpi", "mpich"), and its version."""

    path: str
    family: str
    version: str
    major: int


def identify(path: str) -> Launcher | None:
    """An mpirun with its family, from the output of `--version`; None if the output names no family."""
    try:
        result = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            stdin=subprocess.DEVNULL,
            # Leave out mpicoloc's library and the variables of ranks, or mpirun would act as a part of a job.
            env={k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PMI_FD", "PMI_RANK")},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = result.stdout + result.stderr
    number = re.search(r"(?:Open MPI\)|OpenRTE\)|Version:|Version)\s+v?(\d+)\.(\d+)(\.\d+)?", text)
    version = number.group(0).split()[-1] if number else "?"
    if "Open MPI" in text or "OpenRTE" in text or "PRRTE" in text:
        return Launcher(path, "openmpi", version, int(number.group(1)) if number else 5)
    if "HYDRA" in text or "Intel(R) MPI" in text:
        return Launcher(path, "mpich", version, int(number.group(1)) if number else 0)
    return None


def candidates(libmpi: str | None, abi: str, program: str | None = None) -> list[str]:
    """Files that may be a library's mpirun, best first: near the library, beside the program, in PATH."""
    folders: list[str] = []
    for path in (libmpi, libmpi and os.path.realpath(libmpi)):
        if path:
            folders.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(path))), "bin"))
    if program:
        folders.append(os.path.dirname(os.path.abspath(program)))
    folders = [folder for folder in dict.fromkeys(folders) if folder not in ("/bin", "/usr/bin")]
    found = [
        os.path.join(folder, name) for folder in folders for name in ("mpiexec.hydra", "mpirun", "mpiexec")
    ]
    found += [path for name in _NAMES[abi] if (path := elf.which(name))]
    return [path for path in dict.fromkeys(found) if os.path.isfile(path) and os.access(path, os.X_OK)]


def find(abi: str, libmpi: str | None, program: str | None = None) -> Launcher:
    """The mpirun of a program's MPI library.

    Raises `EnvironmentFault` if none is found.
    """
    tried = []
    for path in candidates(libmpi, abi, program):
        launcher = identify(path)
        if launcher is not None and (launcher.family == abi or abi == "abi"):
            return launcher
        tried.append(path)
    raise EnvironmentFault(
        f"no mpirun found for {libmpi or abi} (looked at {', '.join(tried) or 'PATH'}): "
        "name it with --mpirun PATH"
    )


def given(path: str) -> Launcher:
    """The mpirun that the user named.

    Raises `UsageError` if it does not exist or is not an mpirun of Open MPI or MPICH.
    """
    launcher = identify(elf.resolve_application(path))
    if launcher is None:
        raise UsageError(
            f"--mpirun {path} is not an mpirun of Open MPI or MPICH; start the job with: "
            f"{path} ... python -m mpicoloc.wrap app"
        )
    return launcher


def options(
    launcher: Launcher, n_ranks: int, extra: Sequence[str], n_cores: int, n_nodes: int = 1
) -> list[str]:
    """Options of the launcher for `n_ranks` and one coordinator on each node; `extra` are the user's own."""
    has_hosts = n_nodes > 1 and bool(_flags(extra) & _HOSTS)  # the user has set the nodes' slots
    if launcher.family == "openmpi" and not has_hosts:
        return _with_room(launcher.major, n_ranks, extra, n_cores)
    return list(extra)


def _flags(words: Iterable[str]) -> set[str]:
    return {word.lstrip("-").partition("=")[0] for word in words if word.startswith("-")}


def _with_room(major: int, n_ranks: int, extra: Sequence[str], n_cores: int) -> list[str]:
    """Arguments for Open MPI that give the ranks the same processors as without a coordinator.

    Open MPI chooses mapping and binding by the number of ranks. It binds up to two ranks to cores, and more
    ranks to sockets (version 4) or NUMA domains (version 5); if there are more ranks than cores, it binds
    none. One more rank could change that choice, so the arguments spell the choice out. `overload-allowed`
    lets the coordinator, which sleeps and unbinds itself, share a core. The user's own mapping and binding
    are kept, and extended to allow the extra process.
    """
    given = _flags(extra)
    words = [_word_with_room(before, word) for before, word in itertools.pairwise(["", *extra])]
    is_mapped, is_bound = bool(given & _MAPPING), bool(given & _BINDING)
    if n_ranks > n_cores and not (is_mapped or is_bound):
        return ["--oversubscribe", "--bind-to", "none", *words]
    # Without SPAN, version 5 puts two ranks on the first core before it uses the next.
    unit = "core" if n_ranks <= 2 else "socket" if major < 5 else "numa"
    mapping = ["--map-by", f"{unit}{':SPAN' if major >= 5 else ''}:OVERSUBSCRIBE"]
    binding = ["--bind-to", f"{unit}:overload-allowed"]
    return [*([] if is_mapped else mapping), *([] if is_mapped or is_bound else binding), *words]


def _word_with_room(flag: str, word: str) -> str:
    """The user's value of `flag`, extended to leave room for the coordinator."""
    name, equals, value = word.partition("=")
    if not (equals and name.startswith("-")):
        name, value = flag, word
    present, room = _ROOM.get(name.lstrip("-"), ("", ""))
    return word if present in value.lower() or value == "none" else word + room


def await_end(child: subprocess.Popen[bytes], may_hang: Callable[[], bool]) -> tuple[int, bool]:
    """Wait for a launcher to end, and kill it if it hangs after its ranks have ended.

    Result: its exit code, and whether it was killed. If ranks die in MPI_Init, because memory is full or a
    file size limit is reached, Open MPI 4.1.4 hangs and ignores SIGTERM.
    """
    try:
        handle = os.pidfd_open(child.pid)
    except OSError:
        return child.wait(), False
    end = select.poll()
    end.register(handle, select.POLLIN)
    n_looks = 0
    try:
        while not end.poll(LOOK_MS) and n_looks < N_LOOKS:
            n_looks = n_looks + 1 if may_hang() and child.pid not in children_by_parent() else 0
    finally:
        os.close(handle)
    hung = child.poll() is None and n_looks >= N_LOOKS
    if hung:
        child.kill()
    return child.wait(), hung


def children_by_parent() -> dict[int, list[int]]:
    """The living processes, by their parents."""
    children: dict[int, list[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/stat") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(pid))
    return children


_PREFIXES = ("OMPI", "PRTE")


def root_remedy(one: Launcher, arguments: Sequence[str] = ()) -> str:
    """The remedy if Open MPI's mpirun refuses to run as root; empty if it does not refuse."""
    names = [(f"{prefix}_ALLOW_RUN_AS_ROOT", f"{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM") for prefix in _PREFIXES]
    is_allowed = any(all(os.environ.get(name) == "1" for name in pair) for pair in names)
    if one.family != "openmpi" or os.geteuid() != 0 or is_allowed or "--allow-run-as-root" in arguments:
        return ""
    words = " ".join(f"{name}=1" for pair in names[: 1 if one.major < 5 else 2] for name in pair)
    return f"as another user, or export {words}"
