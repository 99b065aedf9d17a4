"""A policy as configuration of ``opensm``, InfiniBand's subnet manager."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mpicoloc.core.profile import Job, printable
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.replay.qos.policy import PORT_LANES, Policy, Rows

VARIABLES = {
    "UCX_IB_SL": "UCX: Open MPI, MPICH (ch4:ucx), Intel MPI (mlx)",
    "OMPI_MCA_btl_openib_ib_service_level": "Open MPI up to 4, without UCX",
    "MV2_DEFAULT_SERVICE_LEVEL": "MVAPICH2",
}
"""Each takes the number of the service level. Libraries that do not know one ignore it."""


def job_environment(level: int) -> dict[str, str]:
    """Variables, and their values, of a job that is to use a service level."""
    return {name: str(level) for name in VARIABLES}


CONF, PARTITIONS = "opensm.conf", "partitions.conf"
FIRST_PKEY = 0x1000
"""Partition of lane 0; those of the other lanes follow."""


def configuration(policy: Policy) -> dict[str, str]:
    """The contents of each file by its name."""
    return {CONF: options(policy), PARTITIONS: partitions(policy)}


def options(policy: Policy) -> str:
    """Lines for ``opensm.conf``: quality of service of all ports of the fabric.

    Notes
    -----
    opensm(8), "QoS configuration". ``max_op_vls`` is what switches lanes on; ``qos_max_vls`` alone leaves the
    buffers divided among all lanes of the port.
    """
    return "\n".join(
        (
            "# Quality of service by mpicoloc. Add these lines to the configuration of opensm (-F).",
            f"max_op_vls {PORT_LANES.index(policy.n_operational) + 1}",
            "qos TRUE",
            f"qos_max_vls {policy.n_operational}",
            f"qos_high_limit {policy.high_limit}",
            f"qos_vlarb_high {_table(policy.high_rows)}",
            f"qos_vlarb_low {_table(policy.low_rows)}",
            f"qos_sl2vl {','.join(map(str, policy.lane_of_level))}",
            "",
        )
    )


def _table(rows: Rows) -> str:
    """Rows as opensm reads them; it takes its own table where it reads none."""
    return ",".join(f"{lane}:{units}" for lane, units in rows) or "0:0"


def pkey(lane: int) -> int:
    """Key of a lane's partition, of a full member."""
    return 0x8000 | FIRST_PKEY + lane


def partitions(policy: Policy) -> str:
    """Lines for ``partitions.conf``: in each lane's partition, paths have the lane's service level.

    For programs that cannot be told a service level, and take the one that the subnet manager names for a
    path: those that connect by ``librdmacm``.
    """
    lines = [
        "# Partitions by mpicoloc. Add the lines of lanes to the partitions of opensm (-P).",
        "Default=0x7fff,ipoib,defmember=full:ALL=full,SELF=full;",
    ]
    lines += [
        f"lane{lane}=0x{FIRST_PKEY + lane:04x},ipoib,sl={lane},defmember=full:ALL=full;"
        for lane in sorted(set(policy.lane_of_job))
    ]
    return "\n".join((*lines, ""))


def write_files(folder: str, contents: Mapping[str, str], flag: str) -> None:
    """Write files into a folder, each whole or not at all; everybody may read them.

    Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    try:
        for name, text in contents.items():
            path = os.path.join(folder, name)
            _make_folder(os.path.dirname(path))
            part = f"{path}.{os.getpid()}.part"
            with open(part, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
            os.replace(part, path)
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write to {folder}: {error.strerror}; choose another folder with {flag}"
        ) from None


def _make_folder(path: str) -> None:
    """Make a folder into which all may look, whatever the caller's umask."""
    if not os.path.isdir(path):
        os.makedirs(path)
        os.chmod(path, 0o755)


def level_files(jobs: Sequence[Job], levels: Sequence[int]) -> dict[str, str]:
    """Variables of jobs, NAME=VALUE, by the path at which the Slurm plugin looks: user/name of the job.

    Raises `DataError` if a job has no name by which a later run can be known, or runs of one name have two
    levels.
    """
    found: dict[str, int] = {}
    for job, level in zip(jobs, levels, strict=True):
        name = job.batch_name
        if not (job.user and name) or "/" in name or name.startswith("."):
            raise DataError(
                f"job {printable(job.id)}: its name in Slurm is {printable(name)!r}, by which the plugin "
                "cannot know it: give the profile of a run in Slurm, named without / (sbatch --job-name)"
            )
        path = f"{job.user}/{name}"
        if found.setdefault(path, level) != level:
            raise DataError(
                f"two profiles of job {printable(path)} have service levels {found[path]} and {level}: "
                "give one profile of each job, or --assign them one lane"
            )
    return {
        path: "".join(f"{name}={value}\n" for name, value in job_environment(level).items())
        for path, level in found.items()
    }
