"""Recorded traffic between ranks: collectives by group, and parts by peer."""

from collections import defaultdict

import numpy as np
import pytest
import shimlab

from mpicoloc.pmpi import contract
from mpicoloc.profile import collect

pytestmark = pytest.mark.timeout(2 * shimlab.TIME_LIMIT_S)
D = 8


@pytest.fixture
def recorded(family, preloaded):
    segments = preloaded(family.compile("groups.c"), n_ranks=4)
    names = collect.call_names(str(family.shim), [])
    lanes = [(rank, 0, segment["lanes"][0]) for rank, segment in segments.items()]
    overflow = sum(int(lane["collectives"][0]["n"]) for _, _, lane in lanes)
    runs = defaultdict(list)
    for row in collect.groups(list(segments.values())):
        runs[int(row["group"])] += [int(row["first"] + i * row["stride"]) for i in range(row["n"])]
    return (
        collect.collectives(
            lanes, lambda calls: np.array([names[call] for call in calls.tolist()], np.bytes_)
        ),
        collect.parts(lanes),
        runs,
        overflow,
    )


def test_collectives_know_their_group_root_and_bytes(recorded):
    rows, _, members, overflow = recorded
    found = {
        (
            row["call"].decode(),
            *members[int(row["group"])],
            *([None, *members[int(row["to_group"])]] if row["to_group"] else []),
            int(row["root"]),
            int(row["n"]),
            int(row["bytes"]),
        )
        for row in rows
        if row["own_bytes"] == 0
    }
    assert found == {
        ("MPI_Allreduce", 0, 1, 2, 3, -1, 3, 3 * 10 * D),
        ("MPI_Bcast", 0, 1, 2, 3, 2, 1, 5 * 4),
        ("MPI_Barrier", 0, 2, -1, 1, 0),
        ("MPI_Barrier", 1, 3, -1, 1, 0),
        ("MPI_Allgather", 3, 2, 0, -1, 1, 2 * D),
        ("MPI_Barrier", 0, 2, None, 1, 3, -1, 1, 0),
        ("MPI_Barrier", 1, 3, None, 0, 2, -1, 1, 0),
        ("MPI_Bcast", 0, 2, None, 1, 3, 1, 1, 7 * 4),
    }
    own = {
        (row["call"].decode(), int(row["rank"])): (
            int(row["own_rank"]),
            int(row["own_bytes"]),
            int(row["bytes"]),
        )
        for row in rows
        if row["own_bytes"] > 0
    }
    calls_made = ("MPI_Allgatherv", "MPI_Reduce_scatter")
    assert own == {(call, rank): (rank, D * (rank + 1), 10 * D) for call in calls_made for rank in range(4)}
    assert overflow == 0


def test_parts_are_told_by_who_gives_them(recorded):
    found = {(int(row["src"]), int(row["dst"])): int(row["bytes"]) for row in recorded[1]}
    expected = defaultdict(int)
    for src in range(4):
        for dst in range(4):
            expected[src, dst] += D * dst  # Alltoallv
            expected[src, dst] += D * (src + 1) * (dst == 1)  # Gatherv
            expected[src, dst] += D * (dst + 1) * (src == 3)  # Scatterv
            expected[src, dst] += D * 3 * 20 * (abs(src - dst) == 1)  # neighbours
    assert found == {pair: n_bytes for pair, n_bytes in expected.items() if n_bytes and pair[0] != pair[1]}


def test_as_many_groups_as_there_is_room_for_are_told_in_their_order(make_mpi, shm_dir):
    family, n_made = make_mpi("openmpi"), 700
    done = shimlab.launch(family, 6, family.compile("many_groups.c"), n_made, preload=family.shim)
    made = [tuple(map(int, line.split()[1:])) for line in done.lines if line[-1].isdigit()]
    assert len(made) == n_made and len(set(made)) > contract.MC_N_MEMBERS
    segments = shimlab.segments(shm_dir)
    runs = defaultdict(list)
    for row in collect.groups(list(segments.values())):
        runs[int(row["group"])] += [int(row["first"] + i * row["stride"]) for i in range(row["n"])]
    told = {tuple(ranks) for ranks in runs.values()}
    assert told < set(made) and len(told) == len(runs) == contract.MC_N_MEMBERS
    calls_made = segments[0]["lanes"][0]["collectives"]
    assert int(calls_made["n"].sum()) == n_made
    assert all(int(segments[rank]["n_members"]) == 0 for rank in range(1, 6))
