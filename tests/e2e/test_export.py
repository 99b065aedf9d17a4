"""Exports of a real run, read by programs that know nothing of mpicoloc, compared with the profile."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jobs
import pytest

import mpicoloc
from mpicoloc.cli.main import main

pytestmark = pytest.mark.e2e
N_RANKS, N_ROUNDS = 4, 6
ROUND = {"MPI_Send": 1, "MPI_Recv": 1, "MPI_Irecv": 1, "MPI_Isend": 1, "MPI_Wait": 2} | dict.fromkeys(
    ("MPI_Barrier", "MPI_Bcast", "MPI_Reduce", "MPI_Allreduce", "MPI_Gather", "MPI_Scatter", "MPI_Allgather",
     "MPI_Alltoall", "MPI_Alltoallv"), 1
)  # fmt: skip


@pytest.fixture(scope="session")
def traced(tmp_path_factory):
    """The profile of a run of four ranks with all its calls."""
    folder = tmp_path_factory.mktemp("export")
    found = jobs.commands("openmpi")
    if found is None:
        pytest.skip("no Open MPI here")
    program, profile = folder / "exported", folder / "job.h5"
    source = jobs.PROGRAMS / "exported.c"
    subprocess.run([found[0], "-O1", source, "-o", program], check=True, timeout=jobs.LIMIT_S)
    as_root = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    env = os.environ | as_root | {"MPICOLOC_SHM_DIR": str(folder), "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    command = [sys.executable, "-m", "mpicoloc", "run", "-n", str(N_RANKS), "--trace", "10000",
               "--out", profile, "--", program, str(N_ROUNDS)]  # fmt: skip
    subprocess.run([*map(str, command)], env=env, check=True, timeout=jobs.LIMIT_S, stdin=subprocess.DEVNULL)
    return profile


@pytest.fixture(scope="session")
def events(traced):
    """Its calls, as the profile tells them."""
    found = mpicoloc.open(traced).events
    counted = Counter(found["call"])
    assert {name: counted[name] for name in ROUND} == {n: N_RANKS * N_ROUNDS * k for n, k in ROUND.items()}
    return found


def export(profile, kind, out):
    assert main(["export", str(profile), "--to", kind, "--out", str(out)]) == 0
    return Path(out)


def test_perfetto_has_every_call_with_its_time_bytes_and_peer(traced, events, tmp_path):
    page = json.loads(export(traced, "perfetto", tmp_path / "job.json").read_text())
    calls = [event for event in page["traceEvents"] if event["ph"] == "X" and event["cat"] == "mpi"]
    ranks = {
        (event["pid"], event["tid"]): int(event["args"]["name"].split()[1])
        for event in page["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name" and event["args"]["name"].startswith("rank")
    }
    origin_ns = int(events["t_ns"].min())
    found = sorted(
        (ranks[call["pid"], call["tid"]], call["name"], origin_ns + round(call["ts"] * 1000),
         round(call["dur"] * 1000), call["args"]["bytes"], call["args"].get("peer", -1))
        for call in calls
    )  # fmt: skip
    columns = ["rank", "call", "t_ns", "duration_ns", "bytes", "peer"]
    assert found == sorted(map(tuple, events[columns].values.tolist()))


def test_perfetto_joins_messages(traced, events, tmp_path):
    page = json.loads(export(traced, "chrome", tmp_path / "job.json").read_text())
    begins, ends = (
        {event["id"]: event for event in page["traceEvents"] if event["ph"] == kind} for kind in "sf"
    )
    assert len(begins) == len(ends) == N_RANKS * N_ROUNDS * 2
    for i, begin in begins.items():
        assert begin["ts"] <= ends[i]["ts"]
        assert begin["args"]["bytes"] in (40000, *range(100, 100 + N_ROUNDS))
        assert ends[i]["tid"] != begin["tid"]
