"""Bytes and peers are what the application's buffers gave and took; a receive counts what came."""

import pytest
import shimlab

pytestmark = pytest.mark.timeout(2 * shimlab.TIME_LIMIT_S)


def add(found, peer, n_bytes, n=1):
    """n messages of n_bytes to or from a peer, into {(peer, size class): (number, bytes)}."""
    key = peer, n_bytes.bit_length()
    old = found.get(key, (0, 0))
    found[key] = old[0] + n, old[1] + n * n_bytes


def peer_of(rank, n_ranks):
    return rank ^ 1 if rank ^ 1 < n_ranks else rank


def expect_points(peer):
    """Messages that a rank of points.c sends to its peer, and those that it receives."""
    both = {}
    add(both, peer, 8, 4)
    for n_bytes, n in ((0, 67), (1, 67), (2, 66)):
        add(both, peer, n_bytes, 5 * n)
    add(both, peer, 16, 4)
    add(both, peer, 24, 3)
    add(both, peer, 32)
    add(both, peer, 40)
    add(both, peer, 0)
    sent, received = dict(both), dict(both)
    add(sent, peer, 2048)
    add(received, -1, 2048)  # freed before it came: as asked for
    add(sent, peer, 32)  # too long for the receiver, whose receive fails
    for table in (sent, received):
        add(table, peer, 2)
    return sent, received


def totals(found):
    return sum(n for n, _ in found.values()), sum(n_bytes for _, n_bytes in found.values())


def counters(segment, *names):
    return tuple(shimlab.counter(segment, name) for name in names)


@pytest.mark.parametrize(("n_ranks", "turned"), [(1, ()), (2, ()), (3, ("turned",))])
def test_point_to_point(family, preloaded, n_ranks, turned):
    found = preloaded(family.compile("points.c"), *turned, n_ranks=n_ranks)
    for rank, segment in found.items():
        peer = peer_of(rank, n_ranks)
        sent, received = expect_points(peer)
        assert shimlab.messages(segment) == sent
        got = shimlab.messages_received(segment)
        if got.get((peer, 3)) == (1, 4):
            add(received, peer, 4)  # the library cut the message that is too long, and said that all was well
        assert got == received
        assert counters(segment, "n_sent", "sent_bytes") == totals(sent)
        assert counters(segment, "n_recv", "recv_bytes") == totals(received)
        assert shimlab.counter(segment, "n_request_overflow") == 0


@pytest.mark.parametrize("n_ranks", [1, 3])
def test_one_sided(family, preloaded, n_ranks):
    found = preloaded(family.compile("access.c"), "one_sided", n_ranks=n_ranks)
    for rank, segment in found.items():
        target = (rank + 1) % n_ranks
        sent, received = {}, {}
        for n_bytes, n in ((16, 3), (64, 2), (128, 1), (4, 2)):
            add(sent, target, n_bytes, n)
        for n_bytes, n in ((32, 2), (128, 2), (4, 2)):
            add(received, target, n_bytes, n)
        assert shimlab.messages(segment) == sent
        assert shimlab.messages_received(segment) == received
        assert counters(segment, "n_sent", "sent_bytes") == totals(sent)
        assert counters(segment, "n_recv", "recv_bytes") == totals(received)


def test_communicators_that_come_and_go(family, preloaded):
    for rank, segment in preloaded(family.compile("access.c"), "communicators").items():
        assert shimlab.messages(segment) == {((rank + 1) % 3, 1): (200, 200)}
        assert shimlab.messages_received(segment) == {((rank - 1) % 3, 1): (200, 200)}


def test_peers_of_an_intercommunicator(family, preloaded):
    for rank, segment in preloaded(family.compile("access.c"), "groups").items():
        expected = {(1 - rank, 3): (1, 4)} if rank < 2 else {}
        assert shimlab.messages(segment) == shimlab.messages_received(segment) == expected


def test_neighbours_that_are_not_there(family, preloaded):
    for rank, segment in preloaded(family.compile("access.c"), "neighbours").items():
        n_near = 2 if rank == 1 else 1
        assert shimlab.counter(segment, "sent_bytes") == 12 * (n_near + n_near + 1)
        assert shimlab.counter(segment, "recv_bytes") == 12 * 3 * n_near


def test_files(family, preloaded, tmp_path, monkeypatch):
    monkeypatch.setenv("OMPI_MCA_io", "romio321")  # the default of Open MPI 4.1.4 hangs here by itself
    for segment in preloaded(family.compile("access.c"), "files", tmp_path / "file").values():
        assert counters(segment, "read_bytes", "written_bytes") == (5 * 30, 6 * 100)
        assert counters(segment, "sent_bytes", "recv_bytes") == (0, 0)


def expect_completions(peer):
    """Messages of completions.F90 from a rank to the next one, without its one put."""
    found = {}
    for n_bytes, n in ((4, 9), (8, 9), (12, 9), (16, 9), (20, 3), (24, 1)):
        add(found, peer, n_bytes, n)
    return found


@pytest.mark.parametrize("style", shimlab.FORTRAN_STYLES)
def test_completions_in_fortran(family, preloaded, style):
    found = preloaded(family.compile("completions.F90", shimlab.FORTRAN_STYLES[style]))
    for rank, segment in found.items():
        sent = expect_completions((rank + 1) % 3)
        add(sent, (rank + 1) % 3, 28)
        received = expect_completions((rank - 1) % 3)
        assert shimlab.messages(segment) == sent
        assert shimlab.messages_received(segment) == received
        assert counters(segment, "n_recv", "recv_bytes") == totals(received)
        calls = shimlab.counts(segment, family.shim)
        assert (calls["Irecv"], calls["Waitall"], calls["Request_free"]) == (36, 5, 2)
