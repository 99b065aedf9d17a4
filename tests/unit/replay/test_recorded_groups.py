"""Collectives of neighbours and between two groups, as profiles tell them; what they lack is refused."""

import numpy as np
import program_runner
import pytest

from mpicoloc.errors import DataError
from mpicoloc.network.traffic.mpich import MPICH
from mpicoloc.replay.programs import recorded_collectives
from mpicoloc.replay.programs.builder import of_each
from mpicoloc.replay.programs.recorded_collectives import CollectiveCalls, Instance, align

PARTS = np.dtype([("src", "i4"), ("dst", "i4"), ("n", "u8"), ("bytes", "u8")])
ROWS = np.dtype(
    [("call", "S40"), ("group", "u8"), ("to_group", "u8"), ("root", "i4"), ("own_rank", "i4"),
     ("item_bytes", "u8"), ("n", "u8"), ("bytes", "u8"), ("own_bytes", "u8")]
)  # fmt: skip
NAMES = [f"MPI_Neighbor_{name}" for name in ("alltoall", "allgather", "alltoallv")]


def ring(n_ranks, *sizes):
    """Calls of every rank, one for each (function, bytes to each neighbour), and all their parts."""
    moved = {"alltoall": 4, "allgather": 3, "alltoallv": 4}
    n = np.arange(len(sizes))
    n_bytes = np.array([moved[name] * size for name, size in sizes])
    functions = [f"MPI_Neighbor_{name}" for name, _ in sizes]
    own = [CollectiveCalls(n, functions, 10 * n, 10 * n + 5, n_bytes) for _ in range(n_ranks)]
    total = sum(size for _, size in sizes)
    pairs = [(rank, (rank + step) % n_ranks) for rank in range(n_ranks) for step in (1, -1)]
    return own, np.array([(*pair, len(sizes), total) for pair in pairs], PARTS)


def messages(blocks_of_calls, n_ranks):
    ranks = [[] for _ in range(n_ranks)]
    for call in blocks_of_calls:
        for rank, block in zip(call.members.tolist(), call.blocks, strict=True):
            ranks[rank].append(block)
    return program_runner.run(of_each("job", [np.concatenate(blocks) for blocks in ranks]))


def test_each_call_has_its_part_of_the_bytes_between_neighbours():
    """Of equal parts exactly; what is left is of the calls with parts of their own size."""
    sizes = (("alltoall", 100), ("alltoallv", 30), ("allgather", 8), ("alltoallv", 60))
    found = recorded_collectives.placed(*ring(5, *sizes))
    assert [call.i_call.tolist() for call in found] == [[i] * 5 for i in range(4)]
    pairs = [(rank, (rank + step) % 5) for rank in range(5) for step in (1, -1)]
    assert messages(found, 5) == sorted((*pair, size) for pair in pairs for _, size in sizes)


def test_two_ranks_are_twice_neighbours():
    own, parts = ring(2, ("alltoall", 100))
    parts["n"], parts["bytes"] = 1, 100
    assert messages(recorded_collectives.placed(own, parts), 2) == [(0, 1, 100)] * 2 + [(1, 0, 100)] * 2


def test_ranks_of_two_communicators_may_call_different_functions():
    """Three ranks exchange twice, and four others once."""
    three, of_three = ring(3, ("alltoall", 100), ("allgather", 8))
    four, of_four = ring(4, ("alltoall", 30))
    for end in ("src", "dst"):
        of_four[end] += 3
    found = recorded_collectives.placed([*three, *four], np.concatenate([of_three, of_four]))
    pairs = [(rank, (rank + step) % 3, size) for rank in range(3) for step in (1, -1) for size in (100, 8)]
    pairs += [(3 + rank, 3 + (rank + step) % 4, 30) for rank in range(4) for step in (1, -1)]
    assert messages(found, 7) == sorted(pairs)


def test_ranks_whose_calls_differ_are_told():
    own, parts = ring(3, ("alltoall", 100), ("allgather", 8))
    other = own[2]
    own[2] = CollectiveCalls(other.i_call, NAMES[:1] * 2, other.begin_ns, other.end_ns, other.n_bytes)
    with pytest.raises(DataError, match="call 1 of rank 2, MPI_Neighbor_alltoall"):
        recorded_collectives.placed(own, parts)


def test_other_neighbours_in_other_calls_are_told():
    own, parts = ring(4, ("alltoall", 100), ("alltoall", 100))
    parts["n"][0] = 1
    with pytest.raises(DataError, match=r"call 0 of rank 0, MPI_Neighbor_alltoall: the neighbours"):
        recorded_collectives.placed(own, parts)


def inter(*rows):
    """Collectives between ranks 0, 1 and ranks 2, 3, 4; rows are (call, group, to_group, n, bytes)."""
    table = np.zeros(len(rows), ROWS)
    for row, (call, group, to_group, n, n_bytes) in zip(table, rows, strict=True):
        row["call"], row["group"], row["to_group"], row["n"], row["bytes"] = call, group, to_group, n, n_bytes
        row["item_bytes"] = 1
    members = {7: np.arange(2), 9: np.arange(2, 5)}
    pairs = recorded_collectives.pairs_of(table, members)
    assert pairs == {10: (7, 9)}
    members[10] = np.arange(5)
    return recorded_collectives.IntercommBlocks(table, pairs, members, MPICH(), np.arange(5))


def instance(function, n_bytes):
    n = np.zeros(5, np.int64)
    return Instance(function, 10, n, n, n + 5, np.array(n_bytes))


def sent(blocks, calls, name):
    for call in calls:
        blocks.add(call, name)
    own = [blocks.of(call, name, 1) for call in calls]
    return program_runner.run(of_each("job", [np.concatenate(parts) for parts in zip(*own, strict=True)]))


def test_a_broadcast_goes_from_the_root_to_the_other_group():
    """The group without root is the one that all moved bytes; here rank 1 sends, then rank 3."""
    blocks = inter(("MPI_Bcast", 9, 7, 1, 500), ("MPI_Bcast", 7, 9, 1, 80))
    calls = [instance("MPI_Bcast", [0, 500, 500, 500, 500]), instance("MPI_Bcast", [80, 80, 0, 80, 0])]
    assert sent(blocks, calls, "bcast") == sorted(
        [(1, 2, 500), (2, 3, 500), (2, 4, 500), (3, 0, 80), (0, 1, 80)]
    )


def test_sizes_follow_the_bytes_that_the_ranks_moved():
    blocks = inter(("MPI_Alltoall", 7, 9, 2, 400), ("MPI_Alltoall", 9, 7, 2, 400))
    calls = [instance("MPI_Alltoall", [6 * size] * 2 + [4 * size] * 3) for size in (100, 300)]
    pairs = [(a, b) for a in range(5) for b in range(5) if (a < 2) != (b < 2)]
    assert sent(blocks, calls, "alltoall") == sorted((*pair, size) for pair in pairs for size in (100, 300))


def test_a_function_whose_messages_are_not_known_is_told():
    blocks = inter(("MPI_Alltoall", 7, 9, 1, 1))
    with pytest.raises(DataError, match="call 0 of rank 0, MPI_Scatterv between two groups"):
        blocks.of(instance("MPI_Scatterv", [1] * 5), "scatterv", 1)


@pytest.mark.parametrize(
    "function", ["MPI_Bcast", "MPI_Bcast_c", "MPI_Reduce", "MPI_Allreduce", "MPI_Gather"]
)
def test_a_collective_of_one_rank_needs_no_root_and_sends_nothing(function):
    """A job of one rank has no row that tells the root."""
    tables = {"collectives": np.zeros(0, ROWS), "parts": np.zeros(0, PARTS)}
    alone = recorded_collectives.CollectiveBlocks(tables, {7: np.arange(1)}, MPICH(), np.arange(1))
    n = np.zeros(1, np.int64)
    blocks = alone.of(Instance(function, 7, n, n, n + 5, np.array([80])))
    assert program_runner.run(of_each("job", blocks)) == []


def test_a_pair_of_groups_is_told_from_its_groups_by_how_often_they_called():
    """All four ranks call twice at the same time: once together, once each half by itself."""
    n = np.arange(2)
    own = [CollectiveCalls(n, ["MPI_Allreduce"] * 2, 10 * n, 10 * n + 5, n) for _ in range(4)]
    members = {7: np.arange(2), 9: np.arange(2, 4), 10: np.arange(4)}
    n_known = {("MPI_Allreduce", group): 1 for group in members}
    found = align(own, members, {"MPI_Allreduce": [7, 9, 10]}, n_known=n_known)
    assert sorted(instance.group for instance in found) == [7, 9, 10]


@pytest.mark.parametrize("number", [0, 7])
def test_a_pair_of_which_a_group_is_unknown_is_no_other_group(number):
    """It was taken for group 0, the whole job."""
    table = np.zeros(1, ROWS)
    table["call"], table["group"], table["to_group"], table["n"] = "MPI_Allreduce", 7, 9, 1
    members = {number: np.arange(2)}
    pairs = recorded_collectives.pairs_of(table, members)
    tables = {"collectives": table, "parts": np.zeros(0, PARTS)}
    with pytest.raises(DataError, match="MPI_Allreduce was called between two groups"):
        recorded_collectives.groups_of(tables, ["MPI_Allreduce"], members, pairs)
    with pytest.raises(DataError, match="MPI_Allreduce was called between two groups"):
        recorded_collectives.n_calls_of(table, pairs)


def test_bytes_of_persistent_collectives_are_those_of_all_ranks():
    table = np.zeros(3, ROWS)
    table["call"] = ["MPI_Allreduce_init", "MPI_Bcast_init", "MPI_Allreduce"]
    table["group"], table["bytes"] = [7, 9, 7], [100, 10, 1000]
    found = recorded_collectives.persistent_bytes(table, {7: np.arange(4), 9: np.arange(2)})
    assert found == 4 * 100 + 2 * 10


def test_calls_are_counted_by_the_group_that_tells_of_them():
    table = np.zeros(3, ROWS)
    table["call"] = ["MPI_Allreduce", "MPI_Allreduce", "MPI_Bcast"]
    table["group"], table["to_group"], table["n"] = [7, 9, 9], [9, 7, 7], [2, 2, 5]
    found = recorded_collectives.n_calls_of(table, {10: (7, 9)})
    assert found == {("MPI_Allreduce", 10): 2, ("MPI_Bcast", 10): 5}
