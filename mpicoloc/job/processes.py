"""Names and parents of processes. Every rank imports this before MPI, so it must load fast."""

from __future__ import annotations

LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun", "srun")
"""Commands that start ranks, without a distribution's suffix."""
DAEMONS = ("hydra_pmi_proxy", "pmi_proxy", "mpiexec", "mpirun", "orterun", "orted", "prte", "slurmstepd")
"""Beginnings of the names of processes whose children are ranks."""


def stat(pid: int | str) -> list[str]:
    """Name, state, parent and the remaining fields of ``/proc/PID/stat``; empty if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", errors="surrogateescape") as file:
            text = file.read()
    except OSError:
        return []
    end = text.rindex(")")
    return [text[text.index("(") + 1 : end], *text[end + 2 :].split()]
