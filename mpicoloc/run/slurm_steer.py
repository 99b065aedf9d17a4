"""Make two jobs of Slurm share their nodes, and nobody else (`docs/explain/slurm.md` says why this way).

Jobs are submitted to a partition where each has its nodes alone. One that waits is moved to a partition
where two may share (``OverSubscribe=FORCE:2``); once it runs, a second one is moved there and told the nodes of the first.
Nothing is ever held: whatever is not moved, or was given back, runs alone when its turn comes.
"""

from __future__ import annotations

from mpicoloc.run import slurm_command


def begin(job: int, shared: str) -> None:
    """Let a waiting job run where another may join it.

    Raises
    ------
    EnvironmentFault
        If Slurm refuses: it has started meanwhile, or may not use that partition.
    """
    _update(job, f"Partition={shared}")


def join(job: int, shared: str, nodes: str) -> None:
    """Let a waiting job run on the nodes of one that runs in the shared partition, there and nowhere else.

    Raises
    ------
    EnvironmentFault
        As of `begin`.
    """
    _update(job, f"Partition={shared}", f"ReqNodeList={nodes}")


def give_back(job: int, alone: str) -> None:
    """Undo `begin` and `join` of a job that still waits: it will run alone, on any nodes.

    Raises
    ------
    EnvironmentFault
        As of `begin`.
    """
    _update(job, f"Partition={alone}", "ReqNodeList=")


def _update(job: int, *words: str) -> None:
    slurm_command.ask(["scontrol", "update", f"JobId={job}", *words])
