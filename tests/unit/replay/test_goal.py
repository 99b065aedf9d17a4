"""Graphs of GOAL, as the packet simulator runs them."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from replays import PLAIN, tree

from mpicoloc.errors import DataError
from mpicoloc.replay.native import MARKED, Operation
from mpicoloc.replay.programs import goal
from mpicoloc.replay.simulate import Job, simulate

STREAMS = """num_ranks 2
rank 0 {
work: calc 1000000 cpu 0
copy: calc 1000000 cpu 1
tell: send 8b to 1 tag 1 cpu 0
tell requires work
}
rank 1 {
recv 8b from 0 tag 1
}
"""
CHAINS = """num_ranks 2
rank 0 {
a1: recv 8b from 1 tag 1
a2: send 8b to 1 tag 2
a2 requires a1
b1: recv 8b from 1 tag 3
b2: send 8b to 1 tag 4
b2 requires b1
}
rank 1 {
x1: send 8b to 0 tag 3
x2: recv 8b from 0 tag 4
x3: send 8b to 0 tag 1
x4: recv 8b from 0 tag 2
x3 requires x2
x4 requires x3
}
"""
ORDER = """num_ranks 3
rank 0 {
a1: recv 8b from 1 tag 1
a2: calc 1000000
a2 requires a1
b1: recv 8b from 2 tag 1
b2: calc 1000000
b2 requires b1
}
rank 1 {
late: calc 1000000
s: send 8b to 0 tag 1
s requires late
}
rank 2 {
s: send 8b to 0 tag 1
}
"""
ONE_CPU = STREAMS.replace("cpu 1", "cpu 0")
BEGUN = STREAMS.replace("tell requires", "tell irequires").replace("tag 1 cpu 0", "tag 1 cpu 7")


OPERATIONS = (Operation.COMPUTE, Operation.SEND, Operation.RECV)


def run(text, spread=True):
    """The simulated run, with marks at the begin and end of all operations, and the programs."""
    job = goal.programs("job", [(f"line {i}", line) for i, line in enumerate(text.splitlines(), 1)])
    for program in job.programs:
        program["flags"][np.isin(program["kind"], OPERATIONS)] = MARKED
    hosts = np.arange(job.n_ranks) if spread else np.zeros(job.n_ranks, int)
    simulated = Job("job", job.programs, job.program_of_rank, hosts, restarts=False)
    return simulate(tree((4,), (1,)), [simulated], PLAIN), job


@pytest.mark.parametrize(
    ("text", "end_s"),
    [(STREAMS, 1e-3), (ONE_CPU, 2e-3), (CHAINS, 0), (ORDER, 2e-3)],
    ids=["processors", "one processor", "chains", "order"],
)
def test_operations_wait_for_what_they_need_only(text, end_s):
    assert run(text)[0].end_s == pytest.approx(end_s, abs=5e-6)


def test_a_chain_over_many_processors_needs_no_deep_stack():
    n = 200_000
    lines = [f"p{i}: calc 0 cpu {i}" for i in range(n)] + [f"p{i} requires p{i + 1}" for i in range(n - 1)]
    assert run("\n".join(["num_ranks 1", "rank 0 {", *lines, "}"]))[0].end_s == 0


@pytest.mark.parametrize("more", ["", "calc 5 cpu 1\n"])
def test_a_time_beyond_the_simulators_clock_is_told(more):
    with pytest.raises(DataError, match=r"operation 1 of rank 0 computes for .* ns: give a time"):
        run(f"num_ranks 1\nrank 0 {{\ncalc 999999999999999999\n{more}}}\n")


def test_what_must_only_have_begun_is_not_waited_for():
    ends = run(BEGUN)[0].jobs[0].rank_end_s
    assert ends[0] == pytest.approx(1e-3)
    assert ends[1] < 5e-6


def test_ranks_that_wait_for_each_other_are_named():
    text = "num_ranks 2\nrank 0 {\na: recv 1b from 1 tag 4\n}\nrank 1 {\nb: recv 1b from 0 tag 2\n}\n"
    with pytest.raises(DataError, match=r"in a circle, rank 0 in receive for rank 1 \(tag 4, operation 1\)"):
        run(text)


@st.composite
def graphs(draw):
    """A text, and rows (rank, processor, ns, edges to earlier rows, row of the message's send)."""
    nodes = []
    for i in range(draw(st.integers(1, 12))):
        rank, cpu = draw(st.integers(0, 1)), draw(st.integers(0, 2))
        own = [j for j in range(i) if nodes[j][0] == rank]
        edges = [(j, draw(st.booleans())) for j in own if draw(st.integers(0, 2)) == 0]
        nodes.append((rank, cpu, draw(st.integers(1, 10**6)), edges, None))
        if draw(st.booleans()):
            taker, tag = 1 - rank, len(nodes) - 1
            nodes[-1] = (rank, cpu, -tag - 1, edges, None)
            theirs = [
                (j, False) for j in range(len(nodes)) if nodes[j][0] == taker and draw(st.integers(0, 2)) == 0
            ]
            nodes.append((taker, draw(st.integers(0, 2)), -tag - 1, theirs, tag))
    return nodes


def text_of(nodes):
    lines = ["num_ranks 2"]
    for rank in range(2):
        lines.append(f"rank {rank} {{")
        for i, (own, cpu, ns, edges, sender) in enumerate(nodes):
            if own != rank:
                continue
            way = "recv 8b from" if sender is not None else "send 8b to"
            what = f"calc {ns}" if ns > 0 else f"{way} {1 - rank} tag {-ns}"
            lines.append(f"n{i}: {what} cpu {cpu}")
            lines += [f"n{i} {'irequires' if is_begin else 'requires'} n{j}" for j, is_begin in edges]
        lines.append("}")
    return "\n".join(lines)


def times_of(nodes):
    """Begin and end of each row in the simulation, ns."""
    result, job = run(text_of(nodes), spread=False)
    found = {}
    for rank in range(2):
        rows = [i for i, node in enumerate(nodes) if node[0] == rank]
        ops = np.flatnonzero(np.isin(job.programs[rank]["kind"], OPERATIONS)).tolist()
        marks = result.marks[result.marks["rank"] == rank]
        when = dict(zip(marks["value"].tolist(), (marks["t_ps"] / 1000).tolist(), strict=True))
        found |= {row: (when[2 * op], when[2 * op + 1]) for row, op in zip(rows, ops, strict=True)}
    return [found[i] for i in range(len(nodes))]


def free_after(calcs, since, until):
    """First time from `since` on at which the processor is free; what begins at `until` is not looked at."""
    for begin, end in calcs:
        if begin <= since < until:
            since = max(since, end)
    return since


@settings(max_examples=60, deadline=None)
@given(nodes=graphs())
def test_a_graph_is_run_as_soon_as_it_can_be(nodes):
    """Nothing begins before what it needs, and what could begin or end waits for its processor only."""
    times = times_of(nodes)
    for i, (rank, cpu, ns, edges, sender) in enumerate(nodes):
        begin, end = times[i]
        rows = [j for j, other in enumerate(nodes) if other[:2] == (rank, cpu) and other[2] > 0 and j != i]
        calcs = sorted(times[j] for j in rows)
        assert not any(first < begin < last for first, last in calcs)
        ready = max((times[j][not is_begin] for j, is_begin in edges), default=0.0)
        assert begin == pytest.approx(free_after(calcs, ready, begin))
        if ns > 0:
            assert end == pytest.approx(begin + ns)
        elif sender is not None:
            arrived = max(begin, times[sender][0] + 600)  # half a microsecond within a host, and 8 bytes
            assert times[sender][0] < end <= max(arrived, free_after(calcs, arrived, end))
