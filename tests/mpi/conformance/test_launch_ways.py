"""Whichever way a job is started, each case is recorded exactly, and the profile holds what was recorded."""

import sys
from collections import Counter

import conf_lab
import conf_runs
import jobs
import pytest
import shimlab

from mpicoloc.profile import hdf5

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
RUNS = [("c", 2), ("use_mpi_f08", 2)] + [("mpif_h", 1), ("use_mpi", 4)] * conf_lab.ALL


def command(way, family, n_ranks, program):
    """The command line of a job, to which the environment adds the options."""
    if way == "run":
        oversubscribe = ["--mpirun-arg=--oversubscribe"] if family.name == "openmpi" else []
        run = ["-m", "mpicoloc", "run", "-n", n_ranks, "--mpirun", family.mpirun[0], *oversubscribe]
        return [sys.executable, *run, program]
    if way == "wrap":
        return [*family.mpirun, "-n", n_ranks + 1, sys.executable, "-m", "mpicoloc.wrap", program]
    shim = jobs.shim(family.mpicc, family.name)
    return [*family.mpirun, "-n", n_ranks, "env", f"LD_PRELOAD={shim}", program]


def plain(case):
    """Whether a case is of the forms that are run here; test_cases.py has all."""
    return not case.name.endswith(("_c", "_nonblocking", "_persistent"))


def profile_of(tables):
    """Calls, bytes and messages of each rank in a profile, as `conf_runs.Seen`."""
    found = {}
    for row in tables["call_sites"]:
        seen = found.setdefault(int(row["rank"]), conf_runs.Seen("profile", 0))
        seen.calls[row["call"].decode().removeprefix("MPI_")] += int(row["n"])
    for row in tables["ranks"]:
        seen = found[int(row["rank"])]
        seen.sent_bytes, seen.recv_bytes = int(row["sent_bytes"]), int(row["recv_bytes"])
        seen.counters.update({name: int(row[name]) for name in ("written_bytes", "read_bytes")})
    for row in tables["peers"]:
        seen = found[int(row["src"])]
        conf_runs.add_peer(seen.peers, int(row["dst"]), row)
        conf_runs.add_peer(seen.received, int(row["dst"]), row, conf_runs.RECEIVED)
    return found


@pytest.mark.parametrize("way", ["preload", "wrap", "run"])
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
@pytest.mark.parametrize(("language", "size"), RUNS)
def test_profile(make_mpi, shm_dir, tmp_path, way, mpi, language, size):
    family = make_mpi(mpi)
    shim = jobs.shim(family.mpicc, family.name)
    if shim is None:
        pytest.skip(f"no shim for {mpi} is installed")
    program, cases = conf_lab.program(family, language)
    cases = [case for case in cases if plain(case)]
    part = conf_lab.parts(cases, conf_lab.library(family).mpi, language, size)[0]
    out = tmp_path / "profile.h5"
    env = conf_runs.environment(part, tmp_path) | {
        "MPICOLOC_OUT": str(out),
        "MPICOLOC_PYTHON": sys.executable,
    }
    done = shimlab.run(command(way, family, size, program), **env)
    said = [line for line in done.stderr.splitlines() if line != f"mpicoloc: profile {out}"]
    assert (done.code, said) == (0, [])
    names = conf_runs.call_names(shim)
    wrong = conf_lab.unexcused(conf_lab.check_run(tmp_path, names, part, size), f"{mpi}/{language}")
    assert not wrong, "\n".join(wrong)
    found = profile_of(hdf5.read(out).tables)
    assert sorted(found) == list(range(size))
    for rank, seen in found.items():
        last = conf_runs.read_marks(tmp_path / f"{rank}.marks", names)[-1]
        assert seen.calls - Counter(Init=1) == last.calls + Counter(Finalize=1) - Counter(Init=1)
        assert (seen.sent_bytes, seen.recv_bytes) == (last.sent_bytes, last.recv_bytes)
        assert all(n == last.counters[name] for name, n in seen.counters.items())
        assert (seen.peers, seen.received) == (last.peers, last.received)
