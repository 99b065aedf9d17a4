"""From the tables of a profile to the traffic of the job."""

import numpy as np
import pytest

from mpicoloc.core.network import Exchange
from mpicoloc.core.profile import COLUMNS, table
from mpicoloc.network.traffic.collective import Collective
from mpicoloc.network.traffic.job_traffic import job_traffic, library_of, members_of, point_to_point
from mpicoloc.network.traffic.mpich import MPICH
from mpicoloc.network.traffic.openmpi import OpenMPI, OpenMPI5

N = 6
WORLD, ODD = 7, 2**63 + 5
GROUPS = {"group": np.array([WORLD, ODD], dtype=np.uint64), "first": [0, 1], "stride": [1, 2], "n": [N, 3]}


def tables(**given):
    names = ("peers", "collectives", "parts", "groups", "ranks")
    return {name: table(name, given[name]) if name in given else table(name) for name in names}


def rows(*calls):
    """(call, group, root, own_rank, item_bytes, n, bytes, own_bytes) each."""
    names = ("call", "group", "root", "own_rank", "item_bytes", "n", "bytes", "own_bytes")
    columns = {name: [call[i] for call in calls] for i, name in enumerate(names)}
    return {**columns, "group": np.array(columns["group"], dtype=np.uint64)}


def traffic_of(**given):
    return job_traffic(tables(groups=GROUPS, **given), N, "Open MPI v4.1.4", range(N))


def same(one, other):
    columns = ("src", "dst", "n_bytes", "n_messages")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)


def test_puts_and_gets_add_up_to_messages():
    peers = {"src": [0, 1, 0, 1], "dst": [1, 0, 1, 0], "size_class": [7] * 4, "n": [3, 1, 2, 0],
             "bytes": [300, 100, 220, 0], "n_recv": [1, 3, 4, 0], "recv_bytes": [100, 300, 440, 0],
             "n_put": [0, 0, 2, 0], "put_bytes": [0, 0, 220, 0], "n_got": [0, 0, 4, 0],
             "got_bytes": [0, 0, 440, 0]}  # fmt: skip
    found = point_to_point(table("peers", peers), N)
    columns = (found.src, found.dst, found.n_bytes, found.n_messages)
    assert [column.tolist() for column in columns] == [[0, 1], [1, 0], [520, 540], [5, 5]]


def test_a_message_counts_once_and_a_get_as_what_it_takes():
    peers = {"src": [0, 1, 2, 3, 3], "dst": [1, 0, 3, -1, 5], "size_class": [7, 7, 7, 7, 7],
             "n": [2, 0, 3, 9, 0], "bytes": [200, 0, 300, 900, 0], "n_recv": [0, 2, 0, 0, 1],
             "recv_bytes": [0, 200, 0, 0, 80]}  # fmt: skip
    found = point_to_point(table("peers", peers), N)
    expected = {(0, 1): (200, 2), (2, 3): (300, 3), (5, 3): (80, 1)}
    columns = (found.src, found.dst, found.n_bytes, found.n_messages)
    assert {(s, d): (b, n) for s, d, b, n in zip(*columns, strict=True)} == expected


def test_calls_of_one_kind_are_the_mean_call_so_often():
    found = traffic_of(collectives=rows(("MPI_Allreduce", WORLD, -1, 0, 8, 4, 4 * 80, 0)))
    once = OpenMPI().messages(Collective("allreduce", N, 10, 8)).traffic()
    assert same(found.traffic.traffic(), once * 4)


def test_bytes_are_kept_where_sizes_differ():
    found = traffic_of(collectives=rows(("MPI_Ibcast_c", WORLD, 2, 0, 8, 3, 3 * 80 + 16, 0)))
    assert found.traffic.traffic().n_bytes.sum() == pytest.approx((N - 1) * (3 * 80 + 16))


def test_ranks_of_a_group_are_the_jobs():
    found = traffic_of(collectives=rows(("MPI_Gather", ODD, 1, 0, 8, 1, 80, 0)))
    here = found.traffic.traffic()
    assert set(zip(here.src.tolist(), here.dst.tolist(), strict=True)) == {(1, 3), (5, 3)}


def test_uneven_parts_are_as_each_rank_told():
    own = [10, 0, 3, 4, 0, 5]
    calls = [("MPI_Allgatherv", WORLD, -1, i, 8, 2, 2 * 8 * 22, 2 * 8 * part) for i, part in enumerate(own)]
    found = traffic_of(collectives=rows(*[call for call in calls if call[3] == 0 or call[7]]))
    once = OpenMPI().messages(Collective("allgatherv", N, 22, 8, counts=np.array(own))).traffic()
    assert same(found.traffic.traffic(), once * 2)


def test_an_alltoall_is_an_exchange_and_not_its_pairs():
    found = traffic_of(collectives=rows(("MPI_Alltoall", ODD, -1, 0, 8, 5, 5 * 80, 0)))
    exchange = found.traffic.parts[1]
    assert isinstance(exchange, Exchange)
    assert exchange.members.tolist() == [1, 3, 5] and exchange.n_bytes == 400 and exchange.n_messages == 5


@pytest.mark.parametrize(
    ("library", "call"), [("Open MPI", "MPI_Iallgatherv"), ("MPICH", "MPI_Reduce_scatter")]
)
def test_many_pairs_are_never_in_memory(library, call):
    n_ranks = 100_000
    groups = {"group": np.array([WORLD], dtype=np.uint64), "first": [0], "stride": [1], "n": [n_ranks]}
    calls = rows((call, WORLD, -1, 0, 8, 2, 2 * 8 * n_ranks, 2 * 8 * n_ranks))
    found = job_traffic(tables(groups=groups, collectives=calls), n_ranks, library, range(n_ranks))
    exchange = found.traffic.parts[1]
    assert (exchange.n_bytes, exchange.n_messages, len(exchange.members)) == (16, 2, n_ranks)


def test_between_two_groups_the_first_ranks_speak():
    even = np.array([9], dtype=np.uint64)
    groups = {
        "group": np.array([ODD, *even], dtype=np.uint64),
        "first": [1, 0],
        "stride": [2, 2],
        "n": [3, 3],
    }
    calls = rows(
        ("MPI_Allreduce", ODD, -1, 0, 8, 2, 160, 0),
        ("MPI_Allreduce", 9, -1, 0, 8, 2, 160, 0),
        ("MPI_Ibcast", ODD, 2, 0, 8, 1, 8000, 0),
        ("MPI_Allgather", ODD, -1, 0, 8, 1, 8, 0),
    )
    calls["to_group"] = np.array([9, ODD, 9, 5], dtype=np.uint64)
    found = job_traffic(tables(groups=groups, collectives=calls), N, "MPICH 4.0", range(N))
    here = found.traffic.traffic()
    sent = {
        (s, d): b for s, d, b in zip(here.src.tolist(), here.dst.tolist(), here.n_bytes.tolist(), strict=True)
    }
    across = {pair: n_bytes for pair, n_bytes in sent.items() if sum(pair) % 2}
    assert across == {(0, 1): 160, (1, 0): 160, (4, 1): 8000}
    assert "treated as blocking collectives" in found.notes[0] and found.n_unknown == 1


def test_persistent_ones_are_the_nonblocking_ones():
    found = traffic_of(collectives=rows(("MPIX_Bcast_init", WORLD, 0, 0, 8, 1, 80, 0)))
    later = traffic_of(collectives=rows(("MPI_Ibcast", WORLD, 0, 0, 8, 1, 80, 0)))
    assert same(found.traffic.traffic(), later.traffic.traffic())


def test_parts_are_messages():
    found = traffic_of(parts={"src": [0, 3], "dst": [4, -1], "n": [2, 1], "bytes": [99, 1]})
    here = found.traffic.traffic()
    assert (here.src.tolist(), here.dst.tolist(), here.n_bytes.tolist()) == ([0], [4], [99])


def test_what_is_not_known_is_told():
    calls = rows(("MPI_Barrier", 1234, -1, 0, 0, 5, 0, 0))
    found = traffic_of(collectives=calls, ranks={"rank": [0], "n_collective_overflow": [3]})
    nameless = rows(("call 17", WORLD, -1, 0, 0, 5, 0, 0))
    assert traffic_of(collectives=nameless).n_unknown == 5
    assert found.n_unknown == 8
    assert "8 collectives" in found.notes[0]


def test_bytes_of_unknown_ranks_are_told():
    peers = {"src": [0] * 3, "dst": [1, -1, N], "bytes": [5, 70, 800], "recv_bytes": [0, 1, 0], "n": [1] * 3}
    found = traffic_of(peers=peers, parts={"src": [0], "dst": [-1], "n": [1], "bytes": [4000]})
    assert found.dropped_bytes == 4871 and found.traffic.traffic().n_bytes.sum() == 5
    assert found.notes[0].startswith("4,871 bytes to or from unknown ranks")
    assert traffic_of().dropped_bytes == 0


def test_groups_that_cannot_be_are_left_out():
    groups = {"group": [1, 2, 3, 4, 5], "first": [0, 5, 0, 0, 3], "stride": [1, 1, 0, 1, -1],
              "n": [N + 1, 2, 2, 0, 4]}  # fmt: skip
    found = members_of(table("groups", groups), N)
    assert {name: ranks.tolist() for name, ranks in found.items()} == {5: [3, 2, 1, 0]}


def test_the_library_says_which_it_is():
    assert isinstance(library_of("Open MPI v5.0.1")[0], OpenMPI5)
    assert not isinstance(library_of("Open MPI v4.1.4")[0], OpenMPI5)
    assert isinstance(library_of("MPICH Version: 4.0.2")[0], MPICH)
    library, notes = library_of("Intel(R) MPI Library 2021.9")
    assert isinstance(library, MPICH) and "Intel(R) MPI" in notes[0]


def test_a_profile_without_any_has_no_traffic():
    found = job_traffic({name: table(name) for name in COLUMNS}, N, "MPICH", None)
    assert len(found.traffic.traffic()) == 0 and found.n_unknown == 0
