"""All findings of ``mpicoloc check``."""

from __future__ import annotations

from mpicoloc.checkup import hardware_counters, installation, job_files, machine
from mpicoloc.checkup.finding import Finding


def all_findings(clean: bool = False) -> list[Finding]:
    """Everything, in the order of a job's life.

    Parameters
    ----------
    clean : bool
        Remove files that dead jobs left behind.
    """
    return [
        installation.options(),
        *installation.compiled_parts(),
        *installation.mpis(),
        machine.shared_memory(),
        machine.processors(),
        machine.real_time_signals(),
        machine.pidfd(),
        hardware_counters.counters(),
        hardware_counters.paranoid(),
        job_files.board(),
        *job_files.foreign_boards(),
        job_files.left_behind(clean),
    ]
