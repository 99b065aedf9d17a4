"""The messages of every collective against what the library itself sends, byte by byte."""

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import once
import pytest
import shimlab

from mpicoloc.lab import agent, control, server, server as plan_of_lab
from mpicoloc.network.traffic import collective
from mpicoloc.network.traffic.collective import Collective
from mpicoloc.network.traffic.job_traffic import job_traffic
from mpicoloc.network.traffic.mpich import MPICH
from mpicoloc.network.traffic.openmpi import OpenMPI, OpenMPI5
from mpicoloc.profile import collect as call_names
from mpicoloc.profile.collect import collect
from mpicoloc.profile.merge import merge

pytestmark = pytest.mark.timeout(2 * shimlab.TIME_LIMIT_S)
SIZES = (1, 3, 20, 100, 700, 3000, 9000)
ROOTED = ("bcast", "reduce", "gather", "scatter", "gatherv", "scatterv")
UNEVEN = ("gatherv", "scatterv", "allgatherv", "reduce_scatter")
OTHERS = ("allreduce", "allgather", "alltoall", "barrier", "scan", "exscan", "reduce_scatter_block")
ALL = sorted({*ROOTED, *UNEVEN, *OTHERS})
NONBLOCKING = [name for name in ALL if name not in ("gatherv", "scatterv")]
BETWEEN = [name for name in NONBLOCKING if name not in ("scan", "exscan")]
# of MPICH 4.0, a scatter cannot be started twice, and the others then send other numbers of bytes
STARTED_ONCE = ("scatter", "allgather", "allgatherv")
DIFFERENT = ("bcast", "reduce", "allreduce", "allgather", "alltoall", "barrier")
RUNS = [*(("openmpi", n) for n in (2, 3, 4, 6, 9)), *(("mpich", n) for n in (4, 8, 9))]
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
    source = Path(__file__).parent / "programs" / "calls" / "counted_collectives.c"
    with once.alone(out):
        if not out.exists():
            command = [family.mpicc, "-O1", "-rdynamic", str(source), "-o", str(out)]
            subprocess.run(command, check=True, timeout=60)
    return out


def uneven(n_ranks, n_items):
    return (np.arange(n_ranks) * 7 + n_items) % 11 * n_items


def plan(n_ranks, names, sizes=SIZES):
    calls = []
    for name in names:
        for n_items in sizes:
            for root in (0, n_ranks - 2) if name in ROOTED else (0,):
                counts = uneven(n_ranks, n_items) if name in UNEVEN else None
                calls.append(Collective(name, n_ranks, n_items, 8, root, counts))
    return calls


def counted(family, calls, folder, preload=None, **settings):
    """Bytes and messages of each pair of ranks: per call, and of all with the barriers between them."""
    words = (compiled(family), *planned(calls, folder))
    n_ranks = calls[0][1].n_ranks
    done = shimlab.launch(family, n_ranks, *words, preload=preload, **SETTINGS[family.name], **settings)
    assert done.code == 0, done.stderr
    return told_in(folder, calls)


def planned(calls, folder):
    """The program's arguments."""
    lines = [f"{how} {call.name} {call.n_items} {call.root}\n" for how, call in calls]
    (folder / "plan").write_text("".join(lines))
    return folder / "plan", folder / "out"


def told_in(folder, calls):
    """Bytes and messages of each pair of ranks that the program wrote: per call, and of the whole run."""
    found = [{} for _ in range(len(calls) + 1)]
    for rank in range(calls[0][1].n_ranks):
        for line in (folder / f"out.{rank}").read_text().splitlines():
            i, src, dst, n_bytes, n_messages = map(int, line.split())
            if src != dst:
                found[i][src, dst] = (n_bytes, n_messages)
    return found[:-1], found[-1]


def pairs(traffic):
    columns = (traffic.src, traffic.dst, traffic.n_bytes, traffic.n_messages)
    return {(s, d): (b, n) for s, d, b, n in zip(*(c.tolist() for c in columns), strict=True)}


def n_bytes_of(sent):
    return {pair: n_bytes for pair, (n_bytes, _) in sent.items() if n_bytes}


def is_counted(library, how, call):
    """UCX is not told the bytes of MPICH's gather of larger parts, which have types of their own."""
    with_gather = ("gather", "allgather") if how == "between" else ("gather",)
    return library == "openmpi" or call.name not in with_gather or call.n_bytes < 1024


def cases(name, n_ranks):
    """(how, call) of all that one job makes."""
    is_slow = name == "mpich"  # its ranks do not sleep while they wait
    sizes = {4: (20, 700, 9000), 8: (20, 9000), 9: (20, 3000)}[n_ranks] if is_slow else SIZES
    once, later = {8: (DIFFERENT, DIFFERENT), 9: (ALL, DIFFERENT)}.get(n_ranks * is_slow, (ALL, NONBLOCKING))
    found = [("blocking", call) for call in plan(n_ranks, once, sizes)]
    for call in plan(n_ranks, later, sizes):
        is_persistent = call.n_items == 20 and not (is_slow and call.name in STARTED_ONCE)
        found.append(("persistent" if is_persistent else "nonblocking", replace(call, is_blocking=False)))
    if n_ranks in (4, 6):
        found += [("between", call) for call in between(n_ranks, (20, 3000))]
    return [(how, call) for how, call in found if is_counted(name, how, call)]


def between(n_ranks, sizes):
    """Calls between even and odd ranks, the root being even."""
    calls = plan(n_ranks // 2, BETWEEN, sizes)
    return [replace(call, n_ranks=n_ranks) for call in calls]


def halves(call, library, algorithms):
    """Messages of a call between even and odd ranks."""
    even, odd = np.arange(0, call.n_ranks, 2), np.arange(1, call.n_ranks, 2)
    found = {}
    for own, other in ((odd, even), (even, odd)):
        if own is even and call.name in ROOTED:
            continue
        counts = None if call.counts is None else uneven(len(own), call.n_items)
        mine = replace(call, n_ranks=len(own), counts=counts)
        side = collective.IntercommSide(mine, own, other, call.n_ranks, np.arange(call.n_ranks))
        for pair, numbers in pairs(collective.traffic(side, library, algorithms)).items():
            found[pair] = tuple(np.add(numbers, found.get(pair, (0, 0))).tolist())
    return found


def expected(name, how, call):
    library = LIBRARIES[name]()
    if how == "between":
        return halves(call, library, {"openmpi": collective.OPEN_MPI, "mpich": collective.MPICH}[name])
    return pairs(library.messages(call).traffic() * (2 if how == "persistent" else 1))


def profile_here(shm_dir, family, n_ranks, monkeypatch):
    """The traffic of the job that ran with its shared memory there, by its profile."""
    read_names = call_names.call_names
    monkeypatch.setattr(call_names, "call_names", lambda _, notes: read_names(str(family.shim), notes))
    ranks = sorted((int(path.suffixes[-2][1:]), path.name.split(".")[1]) for path in shm_dir.glob("*.seg"))
    # where MPICH takes each rank for a node of its own, each names its job's files by itself
    profile = merge([collect(key) for key in dict.fromkeys(key for _, key in ranks)])
    return job_traffic(profile.tables, n_ranks, profile.job.mpi_library, range(n_ranks))


def test_puts_and_gets_of_both_ways(family, preloaded, shm_dir, monkeypatch):
    preloaded(family.compile("access.c"), "both_ways", n_ranks=2)
    found = profile_here(shm_dir, family, 2, monkeypatch)
    n_bytes = 4 * (30 + 2 * 25 + 3 * 20 + 2 * 16)
    assert pairs(found.traffic.traffic()) == {(0, 1): (n_bytes, 8), (1, 0): (n_bytes, 8)}


@pytest.mark.parametrize(("name", "n_ranks"), RUNS)
def test_messages_are_those_that_the_library_sends(make_mpi, name, n_ranks, tmp_path, shm_dir, monkeypatch):
    family = make_mpi(name)
    calls = cases(name, n_ranks)
    found, whole = counted(family, calls, tmp_path, preload=family.shim)
    for (how, call), sent in zip(calls, found, strict=True):
        told = expected(name, how, call)
        if (name, call.name) == ("mpich", "allgatherv"):
            told, sent = n_bytes_of(told), n_bytes_of(sent)  # leaves out empty messages, cuts large ones
        assert told == sent, (how, call)
    told = profile_here(shm_dir, family, n_ranks, monkeypatch)
    assert told.n_unknown == 0 and told.notes == ()
    assert n_bytes_of(pairs(told.traffic.traffic())) == n_bytes_of(whole)


def test_algorithms_for_many_ranks_too(make_mpi, tmp_path):
    class Forced(OpenMPI):
        def algorithm(self, call):
            return FORCED.get(call.name) or super().algorithm(call)

    family = make_mpi("openmpi")
    parameters = {f"OMPI_MCA_coll_tuned_{name}_algorithm": str(number) for name, number in FORCED.items()}
    calls = [("blocking", call) for call in plan(7, FORCED)]
    found, _ = counted(family, calls, tmp_path, OMPI_MCA_coll_tuned_use_dynamic_rules="1", **parameters)
    for (_, call), sent in zip(calls, found, strict=True):
        assert pairs(Forced().messages(call).traffic()) == sent, call


@pytest.fixture
def on_hosts(tmp_path):
    """Run a program of Open MPI 5 on hosts of a lab."""
    if os.geteuid() != 0 or not all(map(shutil.which, control.TOOLS)):
        pytest.skip("a lab needs root and tools")
    lab = f"messages-{os.getpid()}"
    control.start(lab, "XGFT(1;3;1)", "10Gbit")

    def launch(family, hosts, *words):
        mpirun = [family.mpirun[0], "--allow-run-as-root", "-n", len(hosts), "--bind-to", "none"]
        mpirun += ["--host", ",".join(f"h{host}" for host in hosts), "--map-by", "seq"]
        settings = {"plm_rsh_agent": server.AGENT, "btl": "tcp,vader,self", "pml_monitoring_enable": 1}
        settings |= {f"{layer}_tcp_if_include": plan_of_lab.NETWORK for layer in ("btl", "oob")}
        settings["mpi_yield_when_idle"] = 1
        mpirun += [word for key, value in settings.items() for word in ("--mca", key, value)]
        command = shlex.join(map(str, [*mpirun, *words]))
        return shimlab.run([sys.executable, "-SE", agent.__file__, lab, "h0", command])

    yield launch
    control.stop(lab)


@pytest.mark.parametrize("hosts", [(0, 1, 2, 0, 1, 2), (0, 0, 0, 0, 1, 1)], ids=["even", "uneven"])
def test_nodes_of_open_mpi_5(make_mpi, on_hosts, tmp_path, hosts):
    family = make_mpi("openmpi5")
    names = ("bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "barrier", "alltoall")
    calls = plan(len(hosts), names, (20, 3000, 20000))
    calls = [("blocking", replace(call, nodes=np.array(hosts))) for call in [*calls, *calls]]
    done = on_hosts(family, hosts, compiled(family), *planned(calls, tmp_path))
    assert done.code == 0, done.stderr
    found, _ = told_in(tmp_path, calls)
    # the first of each kind makes communicators; on uneven nodes each call asks anew whether they are
    n_asked = 64 if hosts.count(0) > hosts.count(1) else 0
    for (_, call), sent in list(zip(calls, found, strict=True))[len(calls) // 2 :]:
        told = n_bytes_of(pairs(OpenMPI5().messages(call).traffic()))
        for pair, n_bytes in n_bytes_of(sent).items():
            assert 0 <= n_bytes - told.pop(pair, 0) <= n_asked, (call, pair)
        assert not told, call
