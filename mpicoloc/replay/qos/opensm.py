"""A policy as configuration of ``opensm``, InfiniBand's subnet manager."""

from __future__ import annotations

from mpicoloc.replay.qos.policy import PORT_LANES, Policy
from mpicoloc.replay.qos.weights import Rows

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


CONF, PARTITIONS = "opensm.conf", "partitions.conf"
FIRST_PKEY = 0x1000
"""Partition of lane 0; those of the other lanes follow."""


def files(policy: Policy) -> dict[str, str]:
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
