"""Rank programs: matching, protocols, loops, restarts, and what is told of programs that cannot end."""

from dataclasses import replace

import numpy as np
import pytest
from replays import PACKET, PLAIN, SLOT_PS, flow, job, op, program, ps, recv, send, tree

from mpicoloc.errors import DataError, UsageError
from mpicoloc.replay.network import crossbar, native
from mpicoloc.replay.simulate import Job, simulate

FOUR = crossbar(4, 1.25e9)
RENDEZVOUS = replace(PLAIN, eager_bytes=0)
SLOW = op("COMPUTE", value=1_000_000)


def marks(run, i_job=0, rank=None):
    rows = run.marks[run.marks["job"] == i_job]
    return rows if rank is None else rows[rows["rank"] == rank]


def run_of(programs, settings=PLAIN, network=FOUR, **more):
    return simulate(network, [job(programs, range(len(programs)), **more)], settings)


@pytest.mark.parametrize("settings", [PLAIN, RENDEZVOUS], ids=["eager", "rendezvous"])
@pytest.mark.parametrize("tags", [(7, 8), (8, 7)])
def test_a_receive_takes_its_tag(settings, tags):
    """Both are long there; the receiver asks for them in either order, and by size knows which it has."""
    sender = program(
        op("ISEND", peer=1, tag=7, value=PACKET, request=0),
        op("ISEND", peer=1, tag=8, value=5 * PACKET, request=1),
        op("WAITALL", request=0, n=2),
    )
    receiver = program(
        SLOW, recv(0, tag=tags[0]), op("MARK", value=1), recv(0, tag=tags[1]), op("MARK", value=2)
    )
    first, second = marks(run_of([sender, receiver], settings))["t_ps"].tolist()
    if settings is PLAIN:
        assert first == second == 10**9  # both have come before
    else:
        sizes = {7: 1, 8: 5}
        assert second - first > SLOT_PS * (sizes[tags[1]] - 1) and second > first


def test_equal_tags_match_in_the_order_of_sends():
    sender = program(
        op("ISEND", peer=1, value=50 * PACKET, request=0),
        op("ISEND", peer=1, value=PACKET, request=1),
        op("WAITALL", request=0, n=2),
    )
    receiver = program(recv(0), op("MARK", value=1), recv(0), op("MARK", value=2))
    first, second = marks(run_of([sender, receiver]))["t_ps"].tolist()
    # The adapter sends packets of both in turn, so the short one is there long before; it must not be taken.
    assert first == second > 50 * SLOT_PS


def test_any_source_takes_what_came_first():
    sends = [program(op("COMPUTE", value=value), send(0, n, tag=n)) for value, n in ((9000, 100), (0, 200))]
    receives = program(
        op("RECV", peer=-1, tag=-1), op("MARK", value=1), op("RECV", peer=-1, tag=-1), op("MARK", value=2)
    )
    first, second = marks(run_of([receives, *sends]))["t_ps"].tolist()
    assert first < 9_000_000 < second


def test_receives_match_in_the_order_in_which_they_were_posted():
    """The one with wildcards was posted first, so it takes the message that fits both."""
    receiver = program(
        op("IRECV", peer=-1, tag=-1, request=0),
        op("IRECV", peer=1, tag=5, request=1),
        op("WAIT", request=0),
        op("MARK", value=1),
        op("WAIT", request=1),
        op("MARK", value=2),
    )
    sender = program(send(0, 100, tag=5), SLOW, send(0, 100, tag=5))
    first, second = marks(run_of([receiver, sender]))["t_ps"].tolist()
    assert first < 10**9 < second


def test_communicators_are_apart():
    sender = program(send(1, 100, comm=1), SLOW, send(1, 100, comm=2))
    receiver = program(op("RECV", peer=0, comm=2), op("MARK", value=1), op("RECV", peer=0, comm=1))
    assert marks(run_of([sender, receiver]))["t_ps"][0] > 10**9


def test_rendezvous_waits_for_the_receiver_and_eager_does_not():
    programs = [program(send(1, PACKET), op("MARK", value=1)), program(SLOW, recv(0))]
    assert marks(run_of(programs))["t_ps"].tolist() == [0]
    assert marks(run_of(programs, RENDEZVOUS))["t_ps"][0] > 10**9
    synchronous = [program(send(1, 10, flags=native.RP_SYNCHRONOUS), op("MARK", value=1)), programs[1]]
    assert marks(run_of(synchronous))["t_ps"][0] > 10**9


def test_peers_of_loops():
    """Every rank sends to every other in turn; nothing is left over, so all peers were right."""
    n = 8
    network = crossbar(n, 1.25e9)

    def exchange(mode, back, **peer):
        ops = (op("LOOP", n=n - 1), op("IRECV", peer_mode=mode, request=0, **back),
               op("ISEND", peer_mode=mode, request=1, value=100, **peer), op("WAITALL", request=0, n=2),
               op("END"))  # fmt: skip
        return Job("all", [program(*ops)], np.zeros(n, int), np.arange(n), restarts=False)

    shift = exchange(native.RP_SHIFT, {"peer": -1, "n": -1}, peer=1, n=1)
    xor = exchange(native.RP_XOR_STEP, {"peer": 1, "n": 1}, peer=1, n=1)
    for each in (shift, xor):
        run = simulate(network, [each], PLAIN)
        assert run.sent_bytes[:n].sum(axis=1).tolist() == [100 * (n - 1)] * n
        assert run.n_messages == n * (n - 1)


def test_a_doubling_exchange_and_nested_loops():
    ops = program(
        op("LOOP", n=3),
        op("LOOP", n=0),
        op("LOOP", n=5),
        op("SEND", peer=0, value=1),
        op("END"),
        op("END"),
        op("LOOP", n=2),
        op("IRECV", peer_mode=native.RP_XOR, peer=1, request=0),
        op("ISEND", peer_mode=native.RP_XOR, peer=1, value=100, request=1),
        op("WAITALL", request=0, n=2),
        op("END"),
        op("MARK", value=4),
        op("END"),
    )
    run = simulate(FOUR, [Job("x", [ops], np.zeros(4, int), np.arange(4), restarts=False)], PLAIN)
    assert run.n_messages == 3 * 2 * 4 and len(run.marks) == 3 * 4


def test_computation_is_stretched_rank_by_rank():
    programs = [program(op("COMPUTE", value=1000), op("MARK", value=1))] * 3
    factors = np.array([1.0, 2.5, 0.1])
    run = run_of(programs, compute_factor_of_rank=factors)
    assert [ps(end) for end in run.jobs[0].rank_end_s] == [1_000_000, 2_500_000, 100_000]
    assert run.jobs[0].rank_compute_s == pytest.approx(factors * 1e-6)


def test_the_shorter_job_runs_again_until_all_have_run_once():
    long = job([program(op("COMPUTE", value=10_000))], [0], "long", restarts=True)
    short = flow(1, 2, PACKET, "short", restarts=True)
    run = simulate(FOUR, [long, short], PLAIN)
    alone = simulate(FOUR, [short], PLAIN).jobs[0].end_s
    assert run.jobs[1].end_s == alone and run.jobs[0].end_s == 1e-5
    assert run.jobs[1].n_runs == int(1e-5 / alone) and run.jobs[0].n_runs == 1
    once = simulate(FOUR, [long, replace(short, restarts=False)], PLAIN)
    assert once.jobs[1].n_runs == 1


def test_a_job_that_takes_no_time_does_not_start_again():
    jobs = [job([program()], [0], "empty", restarts=True), flow(1, 2, PACKET)]
    assert [each.n_runs for each in simulate(FOUR, jobs, PLAIN).jobs] == [1, 1]


def test_a_job_may_start_later():
    late = flow(1, 2, PACKET, start_s=1e-3)
    run = simulate(FOUR, [late], PLAIN)
    assert run.jobs[0].end_s == simulate(FOUR, [flow(1, 2, PACKET)], PLAIN).jobs[0].end_s
    assert run.end_s == pytest.approx(1e-3 + run.jobs[0].end_s)


def test_messages_overtaken_on_other_paths_still_match_in_order():
    """Random paths through four switches, of which packets come in any order."""
    n = 30
    sizes = [PACKET * (1 + 9 * (i % 2)) for i in range(n)]
    sends = [op("ISEND", peer=1, value=size, request=i) for i, size in enumerate(sizes)]
    receives = [step for i in range(n) for step in (recv(0), op("MARK", value=i))]
    programs = [program(*sends, op("WAITALL", request=0, n=n)), program(*receives)]
    network = tree((4, 4), (1, 4), routing="random")
    run = simulate(network, [job(programs, [0, 4])], PLAIN)
    times = marks(run)["t_ps"]
    assert len(times) == n and (np.diff(times) >= 0).all()
    assert run.sent_bytes[0].sum() == sum(sizes)


def test_unmatched_sends_are_told():
    programs = [program(send(1, 300, tag=9), SLOW), program(op("COMPUTE", value=2_000_000))]
    with pytest.raises(DataError) as caught:
        run_of(programs, name="cg")
    text = str(caught.value)
    assert text.startswith("job cg ended at 0.002000000 s of simulated time with 1 unmatched messages")
    assert "send by rank 0 to rank 1, tag 9, 300 bytes, operation 0, posted at 0.000000000 s" in text


def test_receives_that_nobody_waited_for_are_told():
    with pytest.raises(DataError, match=r"ireceive by rank 1 from any rank, tag 3"):
        run_of([program(), program(op("IRECV", peer=-1, tag=3, request=0))])


def test_a_deadlocked_program_is_told_with_its_circle():
    """Three ranks each send a long message to the next and then receive; a fourth waits for one of them."""
    ring = [program(send((i + 1) % 3, 10), recv((i - 1) % 3)) for i in range(3)]
    with pytest.raises(DataError) as caught:
        run_of([*ring, program(recv(0, tag=4))], RENDEZVOUS, name="ring")
    text = str(caught.value)
    assert "job ring: 4 ranks wait for ever at 0.000" in text
    assert "in a circle, rank 0 in send for rank 1 (tag 0, operation 0); rank 1 in send for rank 2" in text


def test_a_job_that_hangs_is_told_while_others_run():
    hanging = job([program(recv(1)), program(recv(0))], [0, 1], "hanging")
    busy = job([program(op("COMPUTE", value=100))], [2], "busy", restarts=True)
    with pytest.raises(DataError, match=r"job hanging: 2 ranks wait for ever"):
        simulate(FOUR, [hanging, busy], PLAIN)


@pytest.mark.parametrize(
    "ops",
    [
        (send(2, 10),),
        (send(-1, 10),),
        (send(1, -1),),
        (op("RECV", peer=1, tag=-2),),
        (op("IRECV", peer=1, request=0), op("IRECV", peer=1, request=0)),
        (op("ISEND", peer=1, request=-1),),
        (op("END"),),
        (op("LOOP", n=2),) * 9,
        (op("WAIT", request=-1),),
        (op("WAITALL", request=0, n=1 << 30),),
        (op("WAITALL", request=0, n=-1),),
        (op("COMPUTE", value=-5),),
        (op("SEND", peer=1, peer_mode=9),),
    ],
)
def test_impossible_operations_are_told(ops):
    calls = "i?send|i?receive|wait(all)?|loop|end of loop"
    told = rf"job job: operation [0-8] of rank 0 (computes for -5 ns|is impossible: ({calls}), peer -?\d+)"
    with pytest.raises(DataError, match=told):
        run_of([program(*ops), program()])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"host_of_rank": np.array([0, 4])}, "rank 1 is on host 4, but the network has hosts 0 to 3"),
        ({"program_of_rank": np.array([0, 2])}, "program numbers must be in"),
        ({"host_of_rank": np.array([0])}, "one each per rank"),
        ({"service_level": 3}, "service level 3 has no lane"),
        ({"compute_factor_of_rank": np.array([1.0])}, "factor"),
        ({"compute_factor_of_rank": np.array([1.0, np.nan])}, "factor"),
        ({"start_s": -1.0}, "start_s"),
        ({"programs": [np.zeros(3)] * 2}, "not a one-dimensional array"),
    ],
)
def test_jobs_are_checked(fields, message):
    with pytest.raises(DataError, match=message):
        simulate(FOUR, [replace(flow(0, 1, 10), **fields)], PLAIN)


@pytest.mark.parametrize(
    "fields", [{"mtu_bytes": 0}, {"control_bytes": 0}, {"window_s": -1}, {"mpi_latency_s": float("nan")}]
)
def test_settings_are_checked(fields):
    with pytest.raises(UsageError, match=f"{next(iter(fields))} must be in"):
        simulate(FOUR, [flow(0, 1, 10)], replace(PLAIN, **fields))


def test_progress_is_told():
    told = []
    loop = program(op("LOOP", n=400_000), op("COMPUTE", value=1), op("END"))
    simulate(FOUR, [job([loop] * 4, range(4))], PLAIN, lambda now_s, n_done: told.append((now_s, n_done)))
    assert told and 0 < told[0][0] < 4e-4 and told[0][1] == 0
