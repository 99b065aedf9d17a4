"""A preloaded program does what it does without, and every call of it is counted once."""

import re

import pytest
import shimlab

pytestmark = pytest.mark.timeout(2 * shimlab.TIME_LIMIT_S)

N_RANKS = 3


def expected_calls(rank):
    once = """Send_init Recv_init Barrier Reduce Gather Gatherv Scatter Allgather Alltoall Comm_split Pcontrol
              Type_contiguous Type_commit Type_size Type_free Comm_free Finalize"""
    always = {
        **dict.fromkeys(once.split(), 1),
        **dict.fromkeys(["Comm_rank", "Comm_size", "Sendrecv", "Request_free", "Bcast", "Allreduce"], 2),
        **{"Irecv": 10, "Isend": 10, "Waitall": 13, "Startall": 3},
    }
    return always | ({"Send": 1} if rank == 0 else {}) | ({"Recv": 1} if rank == 1 else {})


def expected_sent_bytes(rank, n_ranks):
    point = 10 * 800 + 8 + (12 if rank == 0 else 0) + 3 * 20
    bcast = 800 if rank == 1 else 0
    reductions = 8 + 8 + (8 if rank else 0)
    gathers = 16 + 8 * (rank + 1) + (16 * n_ranks if rank == 0 else 0) + 8
    half_root = 8 if rank in (0, n_ranks - 1) else 0
    return point + bcast + reductions + gathers + 16 * n_ranks + half_root


def expected_recv_bytes(rank, n_ranks):
    point = 10 * 800 + 8 + (12 if rank == 1 else 0) + 3 * 20
    bcast = 0 if rank == 1 else 800
    reductions = 8 + 8 + (0 if rank else 8)
    gathers = (16 * n_ranks + 8 * n_ranks * (n_ranks + 1) // 2 if rank == 0 else 0) + 16 + 8 * n_ranks
    half_root = 0 if rank in (0, n_ranks - 1) else 8
    return point + bcast + reductions + gathers + 16 * n_ranks + half_root


def test_c_calls_bytes_and_messages(family, preloaded):
    found = preloaded(family.compile("calls.c"))
    for rank, segment in found.items():
        calls = shimlab.counts(segment, family.shim)
        calls.pop("Init", None)
        assert calls == expected_calls(rank)
        assert shimlab.counter(segment, "sent_bytes") == expected_sent_bytes(rank, N_RANKS)
        assert shimlab.counter(segment, "recv_bytes") == expected_recv_bytes(rank, N_RANKS)
        following = (rank + 1) % N_RANKS
        sent = shimlab.messages(segment)
        assert sent[following, 10] == (10, 8000)
        assert sent[following, 4] == ((2, 20) if rank == 0 else (1, 8))
        assert sent[following, 5] == (3, 60)


def test_cpp_with_init_thread(family, preloaded):
    found = preloaded(family.compile("calls.cpp"))
    for segment in found.values():
        calls = shimlab.counts(segment, family.shim)
        assert calls["Allreduce"] == 5
        assert shimlab.counter(segment, "sent_bytes") == 5 * 8000


@pytest.mark.parametrize("style", shimlab.FORTRAN_STYLES)
def test_fortran(family, preloaded, style):
    found = preloaded(family.compile("calls.F90", shimlab.FORTRAN_STYLES[style]))
    for rank, segment in found.items():
        calls = shimlab.counts(segment, family.shim)
        calls.pop("Init", None)
        # MPICH's older Fortran reads attributes by an internal function
        calls.setdefault("Comm_get_attr", 1)
        once = """Comm_rank Comm_size Allreduce Allgather Comm_dup Comm_set_name Comm_get_name Comm_free
                  Barrier Comm_get_attr Finalize"""
        expected = dict.fromkeys(once.split(), 1) | {"Irecv": 10, "Isend": 10, "Waitall": 10}
        expected |= {"Send": 2} if rank == 0 else {}
        expected |= {"Recv": 2, "Get_count": 1} if rank == 1 else {}
        assert calls == expected
        assert shimlab.counter(segment, "sent_bytes") == 8000 + 16 + 8 + (56 if rank == 0 else 0)
        assert shimlab.counter(segment, "recv_bytes") == 8000 + 16 + 8 * N_RANKS + (56 if rank == 1 else 0)


def test_types_per_neighbour(family, preloaded):
    for segment in preloaded(family.compile("neighbours.c")).values():
        assert shimlab.counter(segment, "sent_bytes") == 2 * 8 + 3 * 4
        assert shimlab.counter(segment, "recv_bytes") == 2 * 8 + 3 * 4


def test_sessions_without_a_world(family, shm_dir):
    program = family.compile("sessions.c")
    bare = shimlab.launch(family, 2, program)
    done = shimlab.launch(family, 2, program, preload=family.shim)
    assert (done.lines, done.code) == (bare.lines, bare.code) == (["rank 0: 10", "rank 1: 11"], 0)


def test_unusable_shared_memory_leaves_the_program_alone(family, monkeypatch, tmp_path):
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(tmp_path / "nowhere"))
    bare = shimlab.launch(family, 2, family.compile("calls.c"))
    done = shimlab.launch(family, 2, family.compile("calls.c"), preload=family.shim)
    assert (done.lines, done.code) == (bare.lines, bare.code)
    assert done.stderr.count("mpicoloc") == 1


@pytest.mark.parametrize("program", ["/bin/true", "/bin/ls"])
def test_program_without_mpi(family, program):
    done = shimlab.run([program, "/"], LD_PRELOAD=str(family.shim))
    assert (done.code, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [("turns", 3000), ("alive", 7500)], ids=lambda words: words[0])
def test_more_communicators_than_there_is_room_for(family, shm_dir, words):
    """As many at a time as the library can make; each is known by a row, of which there are 7,168."""
    program = family.compile("many_comms.c")
    bare = shimlab.launch(family, 2, program, *words)
    done = shimlab.launch(family, 2, program, *words, preload=family.shim)
    assert (done.lines, done.code) == (bare.lines, 0)
    kib = [int(re.search(r"measured 0 .* s (\d+) KiB", run.stderr)[1]) for run in (bare, done)]
    assert kib[1] - kib[0] < 8192
    assert sorted(shimlab.segments(shm_dir)) == [0, 1]
