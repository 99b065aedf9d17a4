"""What makes an MPI library send its messages with a service level."""

from __future__ import annotations

VARIABLES = {
    "UCX_IB_SL": "UCX: Open MPI, MPICH (ch4:ucx), Intel MPI (mlx)",
    "OMPI_MCA_btl_openib_ib_service_level": "Open MPI up to 4, without UCX",
    "MV2_DEFAULT_SERVICE_LEVEL": "MVAPICH2",
}
"""Each takes the number of the service level. Libraries that do not know one ignore it."""


def job_environment(level: int) -> dict[str, str]:
    """Variables, and their values, of a job that is to use a service level."""
    return {name: str(level) for name in VARIABLES}


def environment_file(level: int) -> str:
    """The variables as the Slurm plugin reads them: ``NAME=VALUE``, one on a line."""
    return "".join(f"{name}={value}\n" for name, value in job_environment(level).items())
