"""Processes that the application starts or meets: counted like others, and of no rank of the world."""

from collections import Counter

import conf_lab
import conf_programs
import conf_runs
import pytest
import shimlab

SIZE = 2
OUTSIDE = -1
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def run(make_mpi, shm_dir, tmp_path):
    """Run a part of the program; returns what each rank recorded."""

    def run_part(mpi, part):
        family = make_mpi(mpi)
        program = conf_programs.build_spawn(family, tmp_path)
        done = shimlab.launch(family, SIZE, program, part, preload=family.shim, CONF_MARKS=str(tmp_path))
        assert (done.code, done.stderr) == (0, "")
        assert sorted(shimlab.segments(shm_dir)) == list(range(SIZE))
        names = conf_runs.call_names(family.shim)
        marks = [conf_runs.read_marks(tmp_path / f"{rank}.marks", names) for rank in range(SIZE)]
        return [conf_runs.by_case(each)[0] for each in marks]

    return run_part


# Debian's MPICH cannot start processes, even without the shim.
@pytest.mark.parametrize("mpi", ["openmpi", "own"])
def test_spawn(run, mpi):
    for rank, seen in enumerate(run(mpi, "spawn")):
        calls = Counter(Comm_spawn=1, Comm_spawn_multiple=1, Send=2, Comm_disconnect=2, Recv=2 * (rank == 0))
        assert seen.calls == +calls
        assert (seen.sent_bytes, seen.recv_bytes) == (24, 16 if rank == 0 else 0)
        assert +seen.peers == conf_lab.expected_peers({OUTSIDE: [12, 12]})


# No MPICH here can open a port, even without the shim.
def test_connect(run):
    accepting, connecting = run("openmpi", "connect")
    port = accepting.tries
    assert accepting.calls == Counter(Open_port=1, Send=2, Comm_accept=1, Comm_disconnect=1, Close_port=1)
    assert connecting.calls == Counter(Recv=2, Comm_connect=1, Comm_disconnect=1)
    assert (accepting.sent_bytes, connecting.recv_bytes) == (port + 20, port + 20)
    assert +accepting.peers == conf_lab.expected_peers({1: [port, 20]})
