"""What a launcher tells its ranks in their environment: who started them, and their place on the node."""

from __future__ import annotations

import os

from mpicoloc import config
from mpicoloc.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple
else:
    from mpicoloc.core.record import NamedTuple

_LOCAL = (
    ("Open MPI", "openmpi", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MVAPICH", "mpich", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("Hydra", "mpich", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Launcher, the MPI family it starts, and its variables. Slurm's and bare PMIx's start any family."""

_DAEMONS = ("hydra_pmi_proxy", "mpiexec", "mpirun", "orted", "prted", "slurmstepd")


class Place(NamedTuple):
    """This rank among the ranks of its node. No launcher: a program run by hand."""

    launcher: str | None
    local_rank: int
    local_size: int
    family: str | None = None


def place(env: Mapping[str, str]) -> Place:
    """Place of this rank.

    Result: with one rank on the node where a launcher does not tell. Raises `UsageError` if the launcher's
    variables make no sense.
    """
    for launcher, family, rank, size in _LOCAL:
        if rank in env and size in env:
            return _checked(launcher, _number(env, rank), _number(env, size), family)
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
        raise UsageError(f"the launcher set {name}={env[name]!r}, which is no number") from None


def _checked(launcher: str, rank: int, size: int, family: str | None) -> Place:
    if not 0 <= rank < size:
        raise UsageError(f"{launcher} says local rank {rank} of {size}: start the job with one launcher only")
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
                f"Slurm set SLURM_STEP_TASKS_PER_NODE={text!r}, which is not understood"
            ) from None
    return tasks


def key(env: Mapping[str, str]) -> str:
    """Name of the job's files on this node: the same for all its ranks here, and of no other job's.

    `mpicoloc run` gives one. Otherwise the launcher's name of the job serves, or the process that started the
    ranks. A job started from inside another one gets a key of its own.
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
    """Process that started the ranks, and when: the launcher's daemon, though a shell stand between."""
    parent = os.getppid()
    pid, steps = parent, 0
    while pid > 1 and steps < 8:
        name, above, start = _stat(pid)
        if name in _DAEMONS:
            return pid, start
        pid, steps = above, steps + 1
    return parent, _stat(parent)[2]


def _stat(pid: int) -> tuple[str, int, str]:
    try:
        with open(f"/proc/{pid}/stat", errors="surrogateescape") as file:
            text = file.read()
    except OSError:
        return "", 0, "0"
    fields = text[text.rindex(")") + 2 :].split()
    return text[text.index("(") + 1 : text.rindex(")")], int(fields[1]), fields[19]
