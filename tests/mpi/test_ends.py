"""Whatever ends a program, and whatever it does to processes and threads, it behaves as without mpicoloc."""

import signal

import pytest
import reallab

pytestmark = pytest.mark.timeout(3 * reallab.LIMIT_S)


@pytest.mark.parametrize("way", reallab.WAYS)
@pytest.mark.parametrize("end", ["", "children", "twice"])
def test_programs_that_come_to_their_end(mpi, way, end, shm_dir, tmp_path):
    done = reallab.same(mpi, way, 2, mpi.compile("ends.c"), end, folder=tmp_path)
    profile = reallab.profile(tmp_path / "out.h5")
    assert not profile.partial
    assert [reallab.calls(profile, rank)["Allreduce"] for rank in (0, 1)] == [20, 20]
    assert profile.tables["ranks"]["state"].tolist() == [b"finalized"] * 2
    if end == "children":
        assert "rank 1: child exited 1 with 7" in done.lines
        assert "rank 1: popen gave heard" in done.lines


GONE = {b"lost", b"running"}  # running: where it was still there when its profile was written
STATES = {
    "return": {b"exited"},
    "quick_exit": GONE,
    "_exit": GONE,
    "exec": GONE,
    "term": {b"lost"},
    "kill": {b"lost"},
    "segv": {b"lost"},
    "abort": {b"lost"},
    "abort-self": {b"aborted"},
}


@pytest.mark.parametrize("way", reallab.WAYS)
@pytest.mark.parametrize("end", STATES)
def test_programs_that_end_without_finalize(mpi, way, end, shm_dir, tmp_path):
    program = mpi.compile("ends.c")
    bare = reallab.bare(mpi, 2, program, end, folder=tmp_path)
    done = reallab.launch(mpi, way, 2, program, end, folder=tmp_path)
    assert done.lines == bare.lines, done.stderr
    if mpi.abi == "openmpi":
        assert done.code == bare.code
    else:
        # Hydra gives the code of the rank that ended or of one that it killed then, also without mpicoloc
        assert done.code != 0 and bare.code != 0
    reallab.wait_until_empty(shm_dir)
    profile = reallab.profile(tmp_path / "out.h5")
    assert profile.partial
    assert STATES[end] & set(profile.tables["ranks"]["state"].tolist())
    assert reallab.calls(profile, 1)["Allreduce"] == 10


STACK_BYTES = {"openmpi": 8192, "mpich": 12288}  # the classic SIGSTKSZ; MPICH's own MPI_Abort takes more
OVERRUN = {"openmpi": 128 + signal.SIGSEGV, "mpich": int(signal.SIGSEGV)}


@pytest.mark.parametrize("way", reallab.WAYS)
def test_an_abort_on_a_small_stack(mpi, way, shm_dir, tmp_path):
    words = [mpi.compile("ends.c"), "abort-small", STACK_BYTES[mpi.abi]]
    bare = reallab.bare(mpi, 2, *words, folder=tmp_path)
    if bare.code == OVERRUN[mpi.abi]:
        pytest.skip("processor and MPI library leave no room on such a stack, also without mpicoloc")
    done = reallab.launch(mpi, way, 2, *words, folder=tmp_path)
    assert done.lines == bare.lines, done.stderr
    assert done.code == bare.code or (mpi.abi == "mpich" and done.code not in (0, OVERRUN["mpich"]))
    reallab.wait_until_empty(shm_dir)
    states = reallab.profile(tmp_path / "out.h5").tables["ranks"]["state"].tolist()
    assert b"aborted" in states


@pytest.mark.parametrize("way", reallab.WAYS)
def test_an_abort_of_the_world_gives_its_code(mpi, way, shm_dir, tmp_path):
    done = reallab.launch(mpi, way, 2, mpi.compile("ends.c"), "abort-world", folder=tmp_path)
    assert done.code == 9, done.stderr
    reallab.wait_until_empty(shm_dir)
    assert b"aborted" in reallab.profile(tmp_path / "out.h5").tables["ranks"]["state"].tolist()


@pytest.mark.parametrize("way", reallab.WAYS)
def test_a_program_of_mpi_that_never_begins_it(mpi, way, shm_dir, tmp_path):
    done = reallab.same(mpi, way, 2, mpi.compile("ends.c"), "never", folder=tmp_path)
    assert done.code == 3
    said = [line for line in done.stderr.splitlines() if line.startswith("mpicoloc:")]
    # With a program that fails, Open MPI may end the coordinator before it says so.
    assert len(said) == 1 or (not said and way == "wrap"), done.stderr
    assert all("no profile was written" in line and "MPI_Init" in line for line in said)
    assert not list(tmp_path.glob("*.h5")) and not list(shm_dir.iterdir())


@pytest.mark.parametrize("way", reallab.WAYS)
@pytest.mark.parametrize("early", ["environment", "program"])
def test_symbols_that_are_all_bound_at_the_start(mpi, way, early, shm_dir, tmp_path, monkeypatch):
    flags = []
    if early == "environment":
        monkeypatch.setenv("LD_BIND_NOW", "1")
    else:
        flags = ["-Wl,-z,now"]
    reallab.same(mpi, way, 2, mpi.compile("ends.c", *flags), "children", folder=tmp_path)
    profile = reallab.profile(tmp_path / "out.h5")
    assert not profile.partial
    assert reallab.calls(profile, 1)["Allreduce"] == 20


@pytest.mark.parametrize("way", reallab.WAYS)
@pytest.mark.parametrize("escape", ["throw", "longjmp"])
def test_error_handlers_that_do_not_come_back(mpi, way, escape, shm_dir, tmp_path):
    """Calls that follow such an error are still recorded."""
    program = mpi.compile("escapes.cpp", "-lstdc++")
    done = reallab.same(mpi, way, 2, program, escape, folder=tmp_path)
    assert "rank 0: left 20 times, sum 1" in done.lines
    profile = reallab.profile(tmp_path / "out.h5")
    for rank in (0, 1):
        assert reallab.calls(profile, rank)["Allreduce"] == 20
        assert reallab.calls(profile, rank)["Finalize"] == 1


@pytest.mark.parametrize("way", reallab.WAYS)
def test_receives_that_end_in_sampled_tests(mpi, way, shm_dir, tmp_path):
    reallab.same(mpi, way, 2, mpi.compile("polls.c"), "completions", folder=tmp_path)
    ranks = reallab.profile(tmp_path / "out.h5").tables["ranks"]
    assert ranks["n_recv"].tolist() == [2400] * 2
    assert ranks["recv_bytes"].tolist() == [2400 * 5] * 2


@pytest.mark.parametrize("way", reallab.WAYS)
def test_a_sampled_test_that_an_error_handler_leaves(mpi, way, shm_dir, tmp_path):
    """The tests after it, of the same depth, are recorded, and the receive that ends in one."""
    reallab.same(mpi, way, 2, mpi.compile("polls.c"), "jump", folder=tmp_path)
    profile = reallab.profile(tmp_path / "out.h5")
    for rank in (0, 1):
        # The one that the handler leaves is not counted if it happens to be timed.
        assert reallab.calls(profile, rank)["Test"] >= 2000
        mine = profile.tables["peers"][profile.tables["peers"]["dst"] == rank]
        assert mine["recv_bytes"].sum() in (5, 5 + 1, 5 + 8)


@pytest.mark.parametrize("way", reallab.WAYS)
def test_short_threads_follow_each_other(mpi, way, shm_dir, tmp_path):
    """More threads than there is room for at a time: the place of one that ended goes to the next."""
    program = mpi.compile("short_threads.c", "-pthread")
    done = reallab.same(mpi, way, 1, program, 50, 23, folder=tmp_path)
    assert f"rank 0: multiple 1, total {(50 + 23) * 5}" in done.lines
    profile = reallab.profile(tmp_path / "out.h5")
    assert reallab.calls(profile, 0)["Allreduce"] == (50 + 23) * 5
    assert profile.tables["ranks"]["n_lane_overflow"].tolist() == [0]
