"""Traces of other programs: SimGrid's time-independent ones, and GOAL."""

import program_runner
import pytest

from mpicoloc.errors import DataError
from mpicoloc.network.traffic.mpich import MPICH
from mpicoloc.replay.programs import goal, simgrid_ti

RING = """
0 init
1 init
2 init
0 compute 5e3
0 isend 1 7 100 6
0 irecv 2 7 100 6
0 waitall
1 irecv 0 7 100 6
1 send 2 7 100 6
1 wait 0 1 7
2 recv 1 7 100 6
2 send 0 7 100 6
0 allreduce 2 1000 0
1 allreduce 2 1000 0
2 allreduce 2 1000 0
0 finalize
1 finalize
2 finalize
"""


def numbered(text):
    return [(f"line {i}", line) for i, line in enumerate(text.splitlines(), 1)]


def of_simgrid(text):
    return simgrid_ti.programs("job", numbered(text), 1e9, MPICH())


def of_goal(text):
    return goal.programs("job", numbered(text))


def test_a_ring_of_simgrid():
    runner = program_runner.Runner(of_simgrid(RING))
    sent = runner.run()
    assert {(0, 1, 100), (1, 2, 100), (2, 0, 100)} <= set(sent)
    assert sum(n_bytes for _, _, n_bytes in sent) == 300 + 16 * 4  # three ranks: fold, exchange, unfold
    assert runner.compute_ns == [6000, 1000, 1000]


def test_sizes_are_those_of_the_datatype():
    text = "0 init 0\n1 init 0\n0 send 1 0 10\n1 recv 0 0 10\n0 send 1 1 10 1\n1 recv 0 1 10 1\n"
    assert program_runner.run(of_simgrid(text)) == [(0, 1, 40), (0, 1, 80)]


@pytest.mark.parametrize(
    ("action", "n_bytes"),
    [
        ("bcast 1000 1 6", 2000),
        ("alltoall 10 10 6 6", 60),
        ("alltoallv 6 1 2 3 6 1 2 3 6 6", None),
        ("gather 5 5 2 6 6", 10),
        ("gatherv 5 5 5 5 2 6 6", 10),
        ("scatter 5 5 0 6 6", None),
        ("allgather 5 5 6 6", None),
        ("allgatherv 5 5 5 5 6 6", None),
        ("reducescatter 4 4 4 0 6", None),
        ("scan 4 0 6", None),
        ("barrier", 0),
    ],
)
def test_collectives_of_simgrid(action, n_bytes):
    text = "".join(f"{rank} init\n{rank} {action}\n" for rank in range(3))
    sent = program_runner.run(of_simgrid(text))
    assert sent
    if n_bytes is not None:
        assert sum(size for _, _, size in sent) == n_bytes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no action"),
        ("0 init\n2 init\n", "no line of rank 1"),
        ("zero init\n", "not an action of a rank"),
        ("0 init\n0 dance\n", "line 2: action 'dance' is unknown"),
        ("0 init\n0 send 5 0 1\n", "line 2: there is no rank 5"),
        ("0 init\n0 send 0\n", "send has 1 arguments, but takes 3 to 4"),
        ("0 init\n0 send 0 1e8\n", "before SimGrid 3.20 have no tag"),
        ("0 init\n0 send 0 0 1 6 9\n", "send has 5 arguments"),
        ("0 init\n0 allreduce 8\n", "allreduce has 1 arguments, but takes 2 to 3"),
        ("0 init\n0 gatherv 8\n", "gatherv has 1 arguments, but takes 2 to 5"),
        ("0 init\n0 compute x\n", "number of flops"),
        ("0 init\n0 wait 0 0 3\n", "but has started no such send or receive"),
        ("0 init\n0 send 0 0 1 99\n", "datatype 99"),
        ("0 init\n1 init\n0 barrier\n1 bcast 1 0\n", "calls bcast where rank 0 calls barrier"),
        ("0 init\n1 init\n0 barrier\n", "but other ranks do not"),
    ],
)
def test_a_wrong_trace_of_simgrid_is_told(text, words):
    with pytest.raises(DataError, match=words):
        of_simgrid(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rank 0 {\n}\n", "not below num_ranks"),
        ("hello\n", "not a line of GOAL"),
        ("", "no line 'num_ranks N'"),
        ("num_ranks 2\nrank 0 {\n}\n", "rank 1 is missing"),
        ("num_ranks 1\nrank 0 {\nfly 5\n}\n", "not an operation of GOAL"),
        ("num_ranks 1\nrank 0 {\nsend 5b to 3 tag 1\n}\n", "no rank 3"),
        ("num_ranks 1\nrank 0 {\na: calc 1\na requires b\n}\n", "no operation 'b'"),
        (
            "num_ranks 1\nrank 0 {\nsend 1b to 0 tag 2147483648\n}\n",
            "line 3: tag 2147483648 is above",
        ),
        ("num_ranks 1\nrank 0 {\nsend 1b to 0 nic 2\nrecv 1b from 0\n}\n", "uses nic 0 and nic 2"),
        (
            "num_ranks 1\nrank 0 {\na: calc 1\nb: calc 2\na requires b\nb requires a\n}\n",
            "this operation is in a cycle of dependencies",
        ),
    ],
)
def test_a_wrong_graph_is_told(text, words):
    with pytest.raises(DataError, match=words):
        of_goal(text)


def test_a_time_that_is_no_number_of_64_bits_is_told():
    with pytest.raises(DataError, match="a number in a program is too large"):
        goal.programs("job", numbered("num_ranks 1\nrank 0 {\ncalc 999999999999999999\n}\n"), cpu_speed=0.01)
