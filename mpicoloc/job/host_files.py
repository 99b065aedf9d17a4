"""Host files, rank files and node lists of placed jobs, for both families of mpirun and for Slurm."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpicoloc.errors import DataError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_names(names: Sequence[str], what: str) -> None:
    """Refuse names that a host file or file name cannot hold.

    Raises `DataError` if one has other letters than a host's.
    """
    wrong = next((name for name in names if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        raise DataError(
            f"{what} {wrong!r} cannot stand in a host file: use letters, digits, dots and dashes only"
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
    """What `sbatch --nodelist` takes."""
    return ",".join(hosts)


def files_of(job: str, hosts: Sequence[str], slots: Sequence[int], n_ranks: int) -> dict[str, str]:
    """All files of one job, by their names."""
    return {
        f"{job}.hydra": hydra(hosts, n_ranks),
        f"{job}.openmpi": openmpi(hosts, n_ranks),
        f"{job}.rankfile": rank_file(hosts, slots, n_ranks),
        f"{job}.nodelist": node_list(hosts) + "\n",
    }
