"""Runs with a trace, of which exports are made."""

import os
import subprocess
import sys
from pathlib import Path

import jobs

from mpicoloc.cli.main import main

N_RANKS, N_ROUNDS, N_STEPS = 4, 6, 20
ROUND = {"MPI_Send": 1, "MPI_Recv": 1, "MPI_Irecv": 1, "MPI_Isend": 1, "MPI_Wait": 2} | dict.fromkeys(
    ("MPI_Barrier", "MPI_Bcast", "MPI_Reduce", "MPI_Allreduce", "MPI_Gather", "MPI_Scatter", "MPI_Allgather",
     "MPI_Alltoall", "MPI_Alltoallv"), 1
)  # fmt: skip


def run(folder, source, trace, *arguments, family="openmpi"):
    """The profile of a run of a program with a trace."""
    mpicc, _ = jobs.need_commands(family)
    program, profile = folder / "program", folder / "job.h5"
    subprocess.run([mpicc, "-O1", source, "-o", program, "-lm"], check=True, timeout=jobs.LIMIT_S)
    as_root = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    env = os.environ | as_root | {"MPICOLOC_SHM_DIR": str(folder), "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    mpicoloc = [sys.executable, "-m", "mpicoloc", "run", "-n", N_RANKS, "--trace", trace, "--out", profile]
    command = [*mpicoloc, "--", program, *arguments]
    subprocess.run([*map(str, command)], env=env, check=True, timeout=jobs.LIMIT_S, stdin=subprocess.DEVNULL)
    return profile


def export(profile, kind, out):
    assert main(["export", str(profile), "--format", kind, "--out", str(out)]) == 0
    return Path(out)
