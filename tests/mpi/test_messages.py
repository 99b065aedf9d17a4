"""The messages of every collective against what the library itself sends, byte by byte."""

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import once
import pytest
import shimlab

from mpicoloc.network.collectives import job_traffic
from mpicoloc.network.messages import Collective
from mpicoloc.network.mpich import MPICH
from mpicoloc.network.openmpi import OpenMPI
from mpicoloc.run import calls as call_names
from mpicoloc.run.collect import collect

pytestmark = pytest.mark.timeout(240)
SIZES = (1, 3, 20, 100, 700, 3000, 9000)
ROOTED = ("bcast", "reduce", "gather", "scatter", "gatherv", "scatterv")
UNEVEN = ("gatherv", "scatterv", "allgatherv", "reduce_scatter")
OTHERS = ("allreduce", "allgather", "alltoall", "barrier", "scan", "exscan", "reduce_scatter_block")
ALL = sorted({*ROOTED, *UNEVEN, *OTHERS})
# algorithms that the default decisions take only for more ranks than fit here
FORCED = {"bcast": 8, "allreduce": 5, "allgather": 5, "alltoall": 3, "barrier": 6, "reduce_scatter_block": 3}
LIBRARIES = {"openmpi": OpenMPI, "mpich": MPICH}
SETTINGS = {
    "openmpi": {"OMPI_MCA_pml_monitoring_enable": "1", "OMPI_MCA_mpi_yield_when_idle": "1"},
    # every rank as if on a node of its own, so that all messages go through UCX
    "mpich": {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "sm,self", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"},
}


def compiled(family):
    """The program, compiled so that the libraries find its functions in place of their own."""
    out = family.folder / "counted_collectives"
    source = Path(__file__).parent / "programs" / "counted_collectives.c"
    with once.alone(out):
        if not out.exists():
            command = [family.mpicc, "-O1", "-rdynamic", str(source), "-o", str(out)]
            subprocess.run(command, check=True, timeout=60)
    return out


def plan(n_ranks, names):
    calls = []
    for name in names:
        for n_items in SIZES:
            for root in (0, n_ranks - 2) if name in ROOTED else (0,):
                counts = (np.arange(n_ranks) * 7 + n_items) % 11 * n_items if name in UNEVEN else None
                calls.append(Collective(name, n_ranks, n_items, 8, root, counts))
    return calls


def counted(family, calls, folder, preload=None, **settings):
    """Bytes and messages of each pair of ranks: per call, and of all with the barriers between them."""
    n_ranks = calls[0].n_ranks
    lines = [f"{'' if call.blocks else 'i'}{call.name} {call.n_items} {call.root}\n" for call in calls]
    (folder / "plan").write_text("".join(lines))
    words = (compiled(family), folder / "plan", folder / "out")
    done = shimlab.launch(family, n_ranks, *words, preload=preload, **SETTINGS[family.name], **settings)
    assert done.code == 0, done.stderr
    found = [{} for _ in range(len(calls) + 1)]
    for rank in range(n_ranks):
        for line in (folder / f"out.{rank}").read_text().splitlines():
            i, src, dst, n_bytes, n_messages = map(int, line.split())
            if src != dst:
                found[i][src, dst] = (n_bytes, n_messages)
    return found[:-1], found[-1]


def pairs(traffic):
    columns = (traffic.src, traffic.dst, traffic.n_bytes, traffic.n_messages)
    return {(s, d): (b, n) for s, d, b, n in zip(*(c.tolist() for c in columns), strict=True)}


def is_counted(library, call):
    """UCX is not told the bytes of MPICH's gather of larger parts, which have types of their own."""
    return library == "openmpi" or call.name != "gather" or call.n_bytes < 1024


@pytest.mark.parametrize("n_ranks", [2, 3, 6, 9])
def test_messages_are_those_that_the_library_sends(family, tmp_path, n_ranks):
    calls = [call for call in plan(n_ranks, ALL) if is_counted(family.name, call)]
    if family.name == "mpich":  # whose ranks do not sleep while they wait
        calls = [call for call in calls if call.n_items in (20, 3000)][:: 1 if n_ranks < 9 else 2]
    found, _ = counted(family, calls, tmp_path)
    library = LIBRARIES[family.name]()
    for call, sent in zip(calls, found, strict=True):
        expected = pairs(library.messages(call).traffic())
        if (family.name, call.name) == ("mpich", "allgatherv"):  # leaves out empty messages, cuts large ones
            expected = {pair: n_bytes for pair, (n_bytes, _) in expected.items() if n_bytes}
            sent = {pair: n_bytes for pair, (n_bytes, _) in sent.items() if n_bytes}
        assert expected == sent, call


def test_algorithms_for_many_ranks_too(make_mpi, tmp_path):
    class Forced(OpenMPI):
        def algorithm(self, call):
            return FORCED.get(call.name) or super().algorithm(call)

    family = make_mpi("openmpi")
    parameters = {f"OMPI_MCA_coll_tuned_{name}_algorithm": str(number) for name, number in FORCED.items()}
    calls = plan(7, FORCED)
    found, _ = counted(family, calls, tmp_path, OMPI_MCA_coll_tuned_use_dynamic_rules="1", **parameters)
    for call, sent in zip(calls, found, strict=True):
        assert pairs(Forced().messages(call).traffic()) == sent, call


@pytest.mark.parametrize("n_ranks", [2, 4, 7])
def test_nonblocking_ones_of_open_mpi(make_mpi, tmp_path, n_ranks):
    names = [name for name in ALL if name not in ("gatherv", "scatterv")]
    calls = [replace(call, blocks=False) for call in plan(n_ranks, names)]
    found, _ = counted(make_mpi("openmpi"), calls, tmp_path)
    for call, sent in zip(calls, found, strict=True):
        assert pairs(OpenMPI().messages(call).traffic()) == sent, call


def test_a_profile_tells_the_traffic_that_the_library_had(make_mpi, tmp_path, shm_dir, monkeypatch):
    family = make_mpi("openmpi")
    n_ranks = 5 if family.name == "openmpi" else 3
    names = [name for name in ALL if name != "gather" or family.name == "openmpi"]
    calls = plan(n_ranks, names)
    _, total = counted(family, calls, tmp_path, preload=family.shim)
    key = next(shm_dir.glob("*.0.seg")).name.split(".")[1]
    read_names = call_names.names
    monkeypatch.setattr(call_names, "names", lambda _, notes: read_names(str(family.shim), notes))
    tables = collect(key).tables
    told = job_traffic(
        tables, n_ranks, {"openmpi": "Open MPI", "mpich": "MPICH"}[family.name], range(n_ranks)
    )
    assert told.n_unknown == 0 and told.notes == ()
    found = {pair: n_bytes for pair, (n_bytes, _) in pairs(told.traffic.traffic()).items() if n_bytes}
    assert found == {pair: n_bytes for pair, (n_bytes, _) in total.items() if n_bytes}
