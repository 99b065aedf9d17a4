"""The messages of every collective against what the library's own monitoring counts, byte by byte."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mpicoloc.network.messages import Collective
from mpicoloc.network.openmpi import OpenMPI

SIZES = (1, 3, 20, 100, 700, 3000, 9000)
ROOTED = ("bcast", "reduce", "gather", "scatter", "gatherv", "scatterv")
UNEVEN = ("gatherv", "scatterv", "allgatherv", "reduce_scatter")
OTHERS = ("allreduce", "allgather", "alltoall", "barrier", "scan", "exscan", "reduce_scatter_block")
# algorithms that the default decisions take only for more ranks than fit here
FORCED = {"bcast": 8, "allreduce": 5, "allgather": 5, "alltoall": 3, "barrier": 6, "reduce_scatter_block": 3}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = shutil.which("mpicc.openmpi")
    if compiler is None:
        pytest.skip("no mpicc.openmpi, whose component `monitoring` counts messages")
    out = tmp_path_factory.mktemp("messages") / "counted_collectives"
    source = Path(__file__).parent / "programs" / "counted_collectives.c"
    subprocess.run([compiler, "-O1", "-rdynamic", str(source), "-o", str(out)], check=True, timeout=60)
    return out


def plan(n_ranks, names):
    calls = []
    for name in names:
        for n_items in SIZES:
            for root in (0, n_ranks - 2) if name in ROOTED else (0,):
                counts = (np.arange(n_ranks) * 7 + n_items) % 11 * n_items if name in UNEVEN else None
                calls.append(Collective(name, n_ranks, n_items, 8, root, counts))
    return calls


def counted(program, calls, folder, parameters=()):
    """Per call: bytes and messages of each pair of ranks."""
    n_ranks = calls[0].n_ranks
    lines = [f"{call.name} {call.n_items} {call.root}\n" for call in calls]
    (folder / "plan").write_text("".join(lines))
    settings = {"pml_monitoring_enable": "1", "mpi_yield_when_idle": "1", **dict(parameters)}
    words = [word for item in settings.items() for word in ("--mca", *item)]
    command = ["mpirun.openmpi", "--oversubscribe", "-n", str(n_ranks), *words, str(program)]
    subprocess.run([*command, str(folder / "plan"), str(folder / "out")], check=True, timeout=60)
    found = [{} for _ in calls]
    for rank in range(n_ranks):
        for line in (folder / f"out.{rank}").read_text().splitlines():
            i, src, dst, n_bytes, n_messages = map(int, line.split())
            if src != dst:
                found[i][src, dst] = (n_bytes, n_messages)
    return found


def reckoned(library, call):
    traffic = library.messages(call).traffic()
    columns = (traffic.src, traffic.dst, traffic.n_bytes, traffic.n_messages)
    return {(s, d): (b, n) for s, d, b, n in zip(*(c.tolist() for c in columns), strict=True)}


@pytest.mark.parametrize("n_ranks", [2, 3, 6, 9])
def test_messages_are_those_that_the_library_counts(program, tmp_path, n_ranks):
    calls = plan(n_ranks, sorted({*ROOTED, *UNEVEN, *OTHERS}))
    for call, found in zip(calls, counted(program, calls, tmp_path), strict=True):
        assert reckoned(OpenMPI(), call) == found, call


@pytest.mark.parametrize("n_ranks", [7])
def test_algorithms_for_many_ranks_too(program, tmp_path, n_ranks):
    class Forced(OpenMPI):
        def algorithm(self, call):
            return FORCED.get(call.name) or super().algorithm(call)

    parameters = {f"coll_tuned_{name}_algorithm": str(number) for name, number in FORCED.items()}
    calls = plan(n_ranks, FORCED)
    found = counted(program, calls, tmp_path, {"coll_tuned_use_dynamic_rules": "1", **parameters})
    for call, pairs in zip(calls, found, strict=True):
        assert reckoned(Forced(), call) == pairs, call
