"""Other tools that count MPI calls, in every place of the chain: each sees each call of the program once."""

import pytest
import reallab

pytestmark = pytest.mark.timeout(3 * reallab.LIMIT_S)


@pytest.mark.parametrize("way", reallab.WAYS)
@pytest.mark.parametrize("place", ["linked", "before", "after"])
def test_a_tool_and_mpicoloc_see_every_call(mpi, way, place, shm_dir, tmp_path, monkeypatch):
    tool = mpi.compile("other_tool.c", "-shared", "-fPIC")
    program = mpi.compile("tooled.c", *(["-DWITH_TOOL"] if place == "linked" else []))
    words = [program]
    if place == "before":
        # the loader puts first what is named first
        words = ["sh", "-c", f"LD_PRELOAD={tool}:$LD_PRELOAD exec {program}"]
    elif place == "after":
        words = ["sh", "-c", f"LD_PRELOAD=$LD_PRELOAD:{tool} exec {program}"]
    done = reallab.same(mpi, way, 2, *words, folder=tmp_path)
    assert "rank 0: tool of 2 saw 30 allreduce, 7 send, 0 recv, 1000 rank, 7" in done.lines
    assert done.code == 0
    found = reallab.profile(tmp_path / "out.h5")
    assert not found.partial
    for rank in (0, 1):
        calls = reallab.calls(found, rank)
        assert (calls["Allreduce"], calls["Send"], calls["Recv"]) == (30, 7 * (rank == 0), 7 * (rank == 1))
        # calls of its own, of a tool that comes before, cannot be told from those of the program
        assert calls["Comm_rank"] == 1000 + (place != "after")
        assert calls["Reduce"] == (place != "after")
        assert calls["Finalize"] == 1
