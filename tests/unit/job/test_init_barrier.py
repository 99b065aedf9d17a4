"""The coordinator enters MPI_Init only when it may."""

import itertools
import os

import pytest

from mpicoloc.job import blind_ranks, init_barrier


@pytest.fixture
def clock():
    ticks = itertools.count()
    return lambda: 0.5 * next(ticks)


@pytest.fixture
def announcement(tmp_path):
    return str(tmp_path / "mpicoloc.k.init")


def wait(announcement, clock, counts, at_wrap, monkeypatch, sleep=lambda s: None):
    counts = iter(counts)
    last = [0]

    def pids(key):
        last[0] = next(counts, last[0])
        return list(range(last[0]))

    monkeypatch.setattr(init_barrier, "pids", pids)
    monkeypatch.setattr(blind_ranks, "processes", dict)
    monkeypatch.setattr(init_barrier, "any_at_wrap", lambda: at_wrap)
    return init_barrier.wait_for_init("k", announcement, 2, clock, sleep)


def test_an_announcement_ends_the_wait(announcement, clock, monkeypatch):
    def announce(seconds):
        open(announcement, "w").close()

    assert wait(announcement, clock, [1, 2], False, monkeypatch, announce)


@pytest.mark.parametrize("counts", [[1, 2, 2, 1, 0], [0]], ids=["ended without MPI", "never came"])
def test_ranks_that_are_not_there(announcement, clock, monkeypatch, counts):
    assert not wait(announcement, clock, counts, False, monkeypatch)


def test_a_slow_start_is_waited_for(announcement, clock, monkeypatch):
    naps = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 500:
            open(announcement, "w").close()

    assert wait(announcement, clock, [0], True, monkeypatch, nap)


def test_where_nothing_can_be_announced(clock, monkeypatch):
    assert wait("/proc/nowhere/mpicoloc.k.init", clock, [], False, monkeypatch)


def test_no_such_processes():
    assert init_barrier.pids("no-such-key") == []


def test_what_is_announced(announcement):
    assert init_barrier.announced(announcement) == []
    with open(announcement, "w") as file:
        file.write(f"{'session':7}{0:8}\n{'init':7}{12:8}\n")
    assert init_barrier.announced(announcement) == [("session", 0), ("init", 12)]


def test_an_empty_announcement_means_init(announcement, monkeypatch):
    monkeypatch.setattr(init_barrier, "WORD_WITHIN_S", 0.0)
    open(announcement, "w").close()
    assert init_barrier.announced(announcement) == [("init", 0)]


def test_the_coordinator_waits_for_all_to_end_the_round_before(announcement, monkeypatch):
    def end_round(seconds):
        with open(announcement, "r+") as file:
            file.write(f"{'session':7}{1:8}\n")

    with open(announcement, "w") as file:
        file.write(f"{'session':7}{0:8}\n{'session':7}{1:8}\n")
    record = init_barrier.Record(announcement)
    record.begin(0)
    monkeypatch.setattr(init_barrier.time, "sleep", end_round)
    record.begin(1)
    assert init_barrier.announced(announcement) == [("session", 1), ("session", 1), ("wrap", 1)]


def test_ranks_connect_before_they_are_ended(announcement, monkeypatch):
    """One of them comes last, while the others connect to the launcher."""
    ranks, ended = [11], []

    def nap(seconds):
        assert not ended
        ranks.append(12 if seconds == init_barrier.CONNECT_S else 13)

    def end(pid, number):
        ended.append(pid)
        ranks.remove(pid)

    monkeypatch.setattr(init_barrier, "pids", lambda key: list(ranks))
    monkeypatch.setattr(init_barrier.time, "sleep", nap)
    monkeypatch.setattr(init_barrier.os, "kill", end)
    open(announcement, "w").close()
    init_barrier.end_all("k", 2, announcement)
    assert ended == [11, 13, 12]
    assert not os.path.exists(announcement)
