"""Invariants of every simulation, for any network, lanes and traffic."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from replays import PLAIN, job, op, program, recv, send, tree

from mpicoloc.replay.network import ROUTINGS, Lanes
from mpicoloc.replay.simulate import simulate

TREES = [((4,), (1,)), ((2, 3), (1, 1)), ((3, 2), (1, 2)), ((2, 2, 2), (1, 1, 2)), ((2, 2), (2, 2))]
N_TURNS = 2  # so that numbers of messages and packets are used again
LIMITS = settings(max_examples=60, deadline=None)


@st.composite
def lanes(draw, is_large=False):
    n = draw(st.integers(1, 3))
    sizes = st.just(1 << 24) if is_large else st.integers(700, 3000)
    buffers = [tuple(draw(st.lists(sizes, min_size=n, max_size=n))) for _ in range(2)]
    weights = draw(st.lists(st.integers(1, 5), min_size=n, max_size=n))
    high = draw(st.sets(st.integers(0, n - 1)))
    rows = list(enumerate(weights))
    return Lanes(
        *buffers,
        tuple(range(n)),
        high=tuple(row for row in rows if row[0] in high),
        low=tuple(row for row in rows if row[0] not in high) or ((0, 1),),
        high_limit=draw(st.sampled_from([0, 1, 255])),
        weight_unit_bytes=draw(st.sampled_from([0, 64])),
    )


@st.composite
def networks(draw, is_large=False, routings=ROUTINGS):
    m, w = draw(st.sampled_from(TREES))
    rates = tuple(draw(st.sampled_from([1.25e9, 2.5e9, 1e9])) for _ in m)
    return tree(
        m,
        w,
        rates,
        routing=draw(st.sampled_from(routings)),
        lanes=draw(lanes(is_large)),
        cable_latency_s=draw(st.sampled_from([0.0, 25e-9, 3e-6])),
        switch_latency_s=draw(st.sampled_from([0.0, 1e-7])),
        flit_bytes=draw(st.sampled_from([1, 64, 1 << 20])),
        is_voq=draw(st.booleans()),
        input_speedup=math.inf if is_large else draw(st.sampled_from([math.inf, 1.0, 1.5])),
    )


def exchange(messages, n_ranks):
    """Programs that send and receive these messages (src, dst, bytes) without waiting in between, twice."""
    programs = []
    for rank in range(n_ranks):
        posts, slot = [], 0
        for tag, (src, dst, n_bytes) in enumerate(messages):
            for kind, own, peer in (("IRECV", dst, src), ("ISEND", src, dst)):
                if own == rank:
                    posts.append(op(kind, peer=peer, value=n_bytes, tag=tag, request=slot))
                    slot += 1
        turns = op("LOOP", n=N_TURNS), *posts, op("WAITALL", request=0, n=slot), op("END")
        programs.append(program(*turns, op("MARK", value=rank)))
    return programs


@st.composite
def jobs(draw, network, largest=9000):
    made = []
    for i in range(draw(st.integers(1, 3))):
        n_ranks = draw(st.integers(1, 5))
        rank = st.integers(0, n_ranks - 1)
        messages = draw(st.lists(st.tuples(rank, rank, st.integers(0, largest)), max_size=12))
        hosts = draw(st.lists(st.integers(0, network.n_hosts - 1), min_size=n_ranks, max_size=n_ranks))
        level = draw(st.integers(0, network.lanes.n - 1))
        restarts = draw(st.booleans()) and len(messages) > 0
        made.append(job(exchange(messages, n_ranks), hosts, f"j{i}", service_level=level, restarts=False))
        made[-1] = replace(made[-1], restarts=restarts and any(hosts[s] != hosts[d] for s, d, _ in messages))
    return made


@st.composite
def cases(draw, is_large=False, routings=ROUTINGS):
    network = draw(networks(is_large, routings))
    options = replace(
        PLAIN,
        mtu_bytes=draw(st.sampled_from([300, 700])),
        eager_bytes=draw(st.sampled_from([0, 2000, 1 << 40])),
        adapter_is_fifo=draw(st.booleans()),
        seed=draw(st.integers(0, 3)),
        mpi_latency_s=draw(st.sampled_from([0.0, 1e-6])),
        window_s=1e-5,
    )
    return network, draw(jobs(network)), options


def arrays(run):
    names = ("marks", "window_bytes", "sent_bytes", "received_bytes", "busy_s", "wait_s", "n_waits",
             "blocked_by_s", "transfer_by_s", "message_s", "head_s", "serial_s")  # fmt: skip
    found = [getattr(run, name) for name in names]
    for each in run.jobs:
        found += [each.rank_end_s, each.rank_compute_s, np.array([each.end_s, each.n_runs])]
    return [*found, np.array([run.n_packet_hops, run.n_packets, run.n_messages, run.end_s])]


@LIMITS
@given(case=cases())
def test_what_is_sent_is_received(case):
    network, their_jobs, options = case
    run = simulate(network, [replace(each, restarts=False) for each in their_jobs], options)
    assert np.array_equal(run.sent_bytes, run.received_bytes)
    into, out_of = np.zeros((2, network.n_hosts + network.n_switches, network.lanes.n), dtype=np.int64)
    np.add.at(out_of, network.link_from, run.sent_bytes)
    np.add.at(into, network.link_to, run.sent_bytes)
    assert np.array_equal(into[network.n_hosts :], out_of[network.n_hosts :])
    assert np.array_equal(run.window_bytes.sum(axis=0), run.sent_bytes.sum(axis=1))
    sizes = run.sent_bytes.sum(axis=1)
    per_byte = np.rint(1e12 / network.link_bps)
    assert np.allclose(run.busy_s * 1e12, sizes * per_byte, atol=run.n_packet_hops)
    assert len(run.marks) == sum(each.n_ranks for each in their_jobs)


@LIMITS
@given(case=cases())
def test_bytes_of_messages_are_those_on_the_hosts_links(case):
    network, their_jobs, options = case
    run = simulate(network, [replace(each, restarts=False) for each in their_jobs], options)
    expected = 0
    for each in their_jobs:
        for rank, ops in enumerate(each.programs):
            for row in ops[ops["kind"] == 3]:  # isend
                if each.host_of_rank[rank] != each.host_of_rank[row["peer"]]:
                    is_long = row["value"] > options.eager_bytes
                    size = max(row["value"], options.control_bytes) + 2 * options.control_bytes * is_long
                    expected += N_TURNS * size
    assert run.sent_bytes[network.link_from < network.n_hosts].sum() == expected


@LIMITS
@given(case=cases())
def test_waits_are_divided_among_those_who_were_sent(case):
    network, their_jobs, options = case
    run = simulate(network, their_jobs, options)
    assert (run.wait_s >= 0).all() and (run.blocked_by_s > -1e-15).all()
    assert np.allclose(run.blocked_by_s.sum(axis=1), run.wait_s.sum(axis=(0, 2)), atol=1e-12)
    assert ((run.wait_s > 0) == (run.n_waits > 0)).all()
    assert (run.transfer_by_s <= run.blocked_by_s[:, :-1]).all()
    assert (run.message_s >= run.head_s + run.serial_s - 1e-12).all()


def test_waits_of_later_runs_do_not_count():
    """The row of a short job is that of its first run, though it goes on beside a long one."""
    turns = (op("LOOP", n=n) for n in (2, 40))
    body = op("SEND", peer=1, value=9000), op("RECV", peer=1, tag=1), op("END")
    answer = op("RECV", peer=0), op("SEND", peer=0, value=9000, tag=1), op("END")
    short, long = (
        job([program(loop, *body), program(loop, *answer)], hosts, f"j{hosts[0]}")
        for loop, hosts in zip(turns, ([0, 2], [1, 3]), strict=True)
    )
    once, again = (
        simulate(tree((2, 2), (1, 1)), [replace(short, restarts=restarts), long], PLAIN)
        for restarts in (False, True)
    )
    assert once.jobs[0].n_runs == 1 and again.jobs[0].n_runs > 5
    assert again.blocked_by_s[0].tolist() == once.blocked_by_s[0].tolist()
    assert once.blocked_by_s[0, 1] > 0 and again.blocked_by_s[1, 0] > 2 * once.blocked_by_s[1, 0]
    for name in ("wait_s", "n_waits"):
        assert np.array_equal(getattr(once, name)[:, 0], getattr(again, name)[:, 0])


@LIMITS
@given(case=cases(is_large=True))
def test_nobody_waits_for_an_idle_link_while_there_is_room(case):
    network, their_jobs, options = case
    run = simulate(network, their_jobs, options)
    assert np.allclose(run.blocked_by_s[:, -1], 0, atol=1e-15)


@LIMITS
@given(case=cases(), shuffle=st.integers(1, 1 << 40))
def test_places_in_memory_and_the_order_of_credits_and_links_do_not_matter(case, shuffle):
    network, their_jobs, options = case
    one, other = (simulate(network, their_jobs, replace(options, shuffle_ties=s)) for s in (0, shuffle))
    for left, right in zip(arrays(one), arrays(other), strict=True):
        assert np.array_equal(left, right)


@LIMITS
@pytest.mark.parametrize("is_limited", [False, True])
@given(case=cases(routings=("d-mod-k", "s-mod-k", "random-flow")), n=st.integers(2, 6), data=st.data())
def test_no_message_overtakes_another_on_one_path(is_limited, case, n, data):
    """The last message of a turn comes after the one before it, and not with it; others disturb them.

    One that overtook would wait for that one, as messages are matched in their order.
    """
    network, others, options = case
    size = st.integers(1, 5000)
    if is_limited:  # switches in which small packets find room sooner than large ones before them
        speedup = data.draw(st.sampled_from([1.0, 1.5, 3.0]))
        network = replace(network, is_voq=True, input_speedup=speedup)
        size, n = st.sampled_from([1, 64, 300, 700]), 4 * n
    sizes = data.draw(st.lists(size, min_size=n, max_size=n))
    sends = [op("ISEND", peer=1, value=value, tag=i, request=i) for i, value in enumerate(sizes)]
    receives = [op("IRECV", peer=0, tag=i, request=i) for i in range(n)]
    programs = [
        program(op("LOOP", n=3), *sends, op("WAITALL", request=0, n=n), recv(1, tag=n), op("END")),
        program(
            op("LOOP", n=3),
            *receives,
            op("WAIT", request=n - 2),
            op("MARK", value=1),
            op("WAITALL", request=0, n=n),
            op("MARK", value=2),
            send(0, 1, tag=n),
            op("END"),
        ),
    ]
    flow = job(programs, [0, network.n_hosts - 1], "flow")
    fifo = replace(options, adapter_is_fifo=True, eager_bytes=1 << 40)
    run = simulate(network, [flow, *(replace(each, restarts=False) for each in others)], fifo)
    all_but_last, all_of_them = run.marks[run.marks["job"] == 0]["t_ps"].reshape(3, 2).T
    assert (all_of_them > all_but_last).all()


@LIMITS
@given(case=cases())
def test_no_deadlock_is_told_on_a_tree_however_often_circles_are_looked_for(case):
    """Routes up and then down make no circle, so whoever waits there moves again."""
    network, their_jobs, options = case
    expected = simulate(network, their_jobs, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mpicoloc.replay.simulate._EVENTS_BETWEEN_REPORTS", 7)
        found = simulate(network, their_jobs, options)
    for left, right in zip(arrays(expected), arrays(found), strict=True):
        assert np.array_equal(left, right)
