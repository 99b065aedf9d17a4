"""Recorded calls as programs: what is posted where, what is waited for when, which calls are one."""

from collections import Counter
from functools import partial

import numpy as np
import program_runner
import pytest
from hypothesis import given, strategies as st

from mpicoloc.errors import DataError
from mpicoloc.replay.native import SYNCHRONOUS, Operation
from mpicoloc.replay.programs import recorded
from mpicoloc.replay.programs.builder import ProgramBuilder, of_each
from mpicoloc.replay.programs.recorded import OneSided, PlacedCollective, RankCalls, RecordedMessages, Tempo
from mpicoloc.replay.programs.recorded_collectives import CollectiveCalls, align

NAMES = ("MPI_Init", "MPI_Send", "MPI_Ssend", "MPI_Isend", "MPI_Recv", "MPI_Irecv", "MPI_Wait", "MPI_Waitall",
         "MPI_Barrier", "MPI_Ibarrier", "MPI_Win_fence", "MPI_Put", "MPI_Comm_rank")  # fmt: skip
NOT_WAITING = ("MPI_Init", "MPI_Win_fence", "MPI_Put", "MPI_Comm_rank")
FUNCTIONS = recorded.Functions(NAMES)
IS_WAITING = np.array([name not in NOT_WAITING for name in NAMES])


def calls(*rows):
    """Calls of a rank, from (name, begin, end)."""
    columns = [(begin, end, NAMES.index(f"MPI_{name}")) for name, begin, end in rows]
    return RankCalls(*np.array(columns, np.int64).T)


def messages(*rows):
    """From (source, destination, bytes, begin of the sending and of the taking call, tag)."""
    return RecordedMessages(*np.array(rows, np.int64).T)


def job(ranks, sent=None, add=None, tempo=Tempo()):  # noqa: B008 (it is frozen)
    deeds = recorded.empty_deeds(len(ranks))
    if sent is not None:
        recorded.add_messages(deeds, ranks, FUNCTIONS, sent)
    if add is not None:
        add(deeds, ranks)
    made = [
        recorded.program(own, IS_WAITING, deed, tempo, {}) for own, deed in zip(ranks, deeds, strict=True)
    ]
    return of_each("job", made)


def kinds(program):
    return [Operation(kind).name for kind in program["kind"]]


def test_blocking_calls_stay_what_they_are():
    ranks = [calls(("Init", 0, 10), ("Send", 60, 90)), calls(("Init", 0, 10), ("Recv", 30, 90))]
    found = job(ranks, messages((0, 1, 500, 60, 30, 0)))
    assert [kinds(program) for program in found.programs] == [["COMPUTE", "SEND"], ["COMPUTE", "RECV"]]
    assert [program["value"].tolist() for program in found.programs] == [[50, 500], [20, 500]]


def test_a_send_that_ended_before_its_receive_began_does_not_wait_for_it():
    """It was buffered: the receive may depend on what the sender does next."""
    ranks = [calls(("Send", 0, 10), ("Recv", 20, 60)), calls(("Send", 5, 40), ("Recv", 50, 70))]
    sent = messages((0, 1, 500, 0, 50, 0), (1, 0, 500, 5, 20, 0))
    found = job(ranks, sent)
    assert kinds(found.programs[0])[0] == "ISEND"
    assert program_runner.run(found) == [(0, 1, 500), (1, 0, 500)]


def test_a_synchronous_send_stays_one():
    ranks = [calls(("Ssend", 0, 90)), calls(("Recv", 30, 90))]
    assert job(ranks, messages((0, 1, 8, 0, 30, 0))).programs[0]["flags"].tolist() == [SYNCHRONOUS]


def test_receives_are_posted_where_they_were_begun_and_taken_where_they_were_waited_for():
    ranks = [
        calls(("Irecv", 0, 1), ("Irecv", 2, 3), ("Wait", 50, 60), ("Wait", 70, 80)),
        calls(("Send", 10, 60), ("Send", 61, 80)),
    ]
    found = job(ranks, messages((1, 0, 5, 10, 50, 0), (1, 0, 6, 61, 70, 1)))
    assert kinds(found.programs[0]) == ["IRECV", "COMPUTE", "IRECV", "COMPUTE", "WAIT", "COMPUTE", "WAIT"]
    assert found.programs[0]["value"][found.programs[0]["kind"] == Operation.IRECV].tolist() == [5, 6]


def test_a_waitall_waits_for_receives_and_sends():
    ranks = [
        calls(("Irecv", 0, 1), ("Isend", 2, 3), ("Waitall", 4, 50)),
        calls(("Irecv", 0, 1), ("Isend", 2, 3), ("Waitall", 4, 50)),
    ]
    found = job(ranks, messages((0, 1, 9, 2, 4, 0), (1, 0, 9, 2, 4, 0)))
    assert kinds(found.programs[0]) == ["IRECV", "COMPUTE", "ISEND", "COMPUTE", "WAITALL"]
    assert program_runner.run(found) == [(0, 1, 9), (1, 0, 9)]


def test_calls_that_do_not_communicate_are_computation():
    ranks = [calls(("Init", 0, 10), ("Comm_rank", 20, 50), ("Barrier", 60, 70), ("Barrier", 80, 90))]
    assert job(ranks).programs[0]["value"].tolist() == [50, 10]
    fast = job(ranks, tempo=Tempo(cpu_speed=10))
    assert fast.programs[0]["value"].tolist() == [5, 1]


def collective(ranks, rows, is_blocking):
    """A collective as a message from its first member to each other one."""
    blocks = []
    for i in range(len(ranks)):
        builder = ProgramBuilder()
        peers = range(1, len(ranks)) if i == 0 else ()
        builder.wait_all([builder.isend(ranks[k], 1, comm=1) for k in peers])
        if i:
            builder.recv(ranks[0], 1, comm=1)
        blocks.append(builder.build())
    i_call, begin_ns = np.array(rows).T
    return PlacedCollective(np.array(ranks), i_call, begin_ns, is_blocking, blocks)


def with_collectives(collectives):
    return partial(recorded.add_collectives, collectives=collectives)


def test_what_is_only_begun_is_done_when_all_have_begun_it():
    """Rank 1 gets a message in between, which rank 0 sends after its own begin."""
    ranks = [
        calls(("Ibarrier", 0, 1), ("Send", 5, 30), ("Wait", 40, 41)),
        calls(("Ibarrier", 10, 11), ("Recv", 20, 30), ("Wait", 40, 41)),
    ]
    begun = collective([0, 1], [(0, 0), (0, 10)], is_blocking=False)
    found = job(ranks, messages((0, 1, 500, 5, 20, 0)), with_collectives([begun]))
    assert program_runner.run(found) == [(0, 1, 1), (0, 1, 500)]


def test_a_begun_collective_and_a_blocking_one_keep_one_order():
    ranks = [
        calls(("Ibarrier", 0, 1), ("Barrier", 5, 30), ("Wait", 40, 41)),
        calls(("Ibarrier", 10, 11), ("Wait", 12, 13), ("Barrier", 20, 30)),
    ]
    begun = collective([0, 1], [(0, 0), (0, 10)], is_blocking=False)
    blocking = collective([0, 1], [(1, 5), (2, 20)], is_blocking=True)
    assert program_runner.run(job(ranks, None, with_collectives([blocking, begun]))) == [(0, 1, 1)] * 2


def part_of(ranks, begin_ns, end_ns, sent, collectives=()):
    """Programs of a part, and the note of what is cut."""
    cut = recorded.Part(begin_ns, end_ns), ranks, sent, collectives
    own, sent, collectives, note = recorded.taken_part(*cut)
    return job(own, sent, with_collectives(collectives)), note


def test_a_part_has_what_begins_in_it_and_the_computation_at_its_edges():
    """A receive that was posted before is posted where it is taken; a message that is taken later is cut."""
    ranks = [
        calls(("Init", 0, 10), ("Send", 20, 30), ("Barrier", 40, 50), ("Send", 70, 90), ("Isend", 95, 96),
              ("Wait", 110, 120)),
        calls(("Init", 0, 10), ("Recv", 25, 30), ("Irecv", 32, 33), ("Barrier", 35, 50), ("Wait", 75, 90),
              ("Recv", 105, 120)),
    ]  # fmt: skip
    sent = messages((0, 1, 5, 20, 25, 0), (0, 1, 6, 70, 75, 1), (0, 1, 7, 95, 105, 2))
    barrier = collective([0, 1], [(2, 40), (3, 35)], is_blocking=True)
    found, note = part_of(ranks, 60, 100, sent, [barrier])
    runner = program_runner.Runner(found)
    assert runner.run() == [(0, 1, 6)]
    assert runner.compute_ns == [10 + 5 + 4, 15 + 10]
    assert note.endswith("of the part: 1 message, 0 collectives") and note.startswith("3 of 12 calls")
    found, note = part_of(ranks, 40, 100, sent, [barrier])
    assert program_runner.run(found) == [(0, 1, 6)]
    assert note.endswith("of the part: 1 message, 1 collective")
    assert program_runner.run(part_of(ranks, 35, 100, sent, [barrier])[0]) == [(0, 1, 1), (0, 1, 6)]
    with pytest.raises(DataError, match="between --from-s and --until-s: the last call"):
        part_of(ranks, 200, 300, sent, [barrier])


def turns(n_ranks, n_turns, late_ns):
    """Ranks that exchange around a ring, each a little late, and meet in a barrier that does not block."""
    begins = [[100 * turn + late_ns[(rank + turn) % n_ranks] for turn in range(n_turns)]
              for rank in range(n_ranks)]  # fmt: skip
    ranks = [
        calls(*(call for at in own for call in
                (("Irecv", at, at + 1), ("Isend", at + 2, at + 3), ("Ibarrier", at + 4, at + 5),
                 ("Waitall", at + 20, at + 60)))) for own in begins
    ]  # fmt: skip
    pairs = [(rank, (rank + 1) % n_ranks) for rank in range(n_ranks)]
    rows = [(src, dst, 8, begins[src][turn] + 2, begins[dst][turn] + 20, turn)
            for turn in range(n_turns) for src, dst in pairs]  # fmt: skip
    met = [collective(range(n_ranks), [(4 * turn + 2, own[turn] + 4) for own in begins], is_blocking=False)
           for turn in range(n_turns)]  # fmt: skip
    return ranks, messages(*rows), met


@given(st.lists(st.integers(0, 30), min_size=2, max_size=4), st.integers(0, 400), st.integers(1, 400))
def test_no_part_of_a_run_waits_for_ever(late_ns, begin_ns, length_ns):
    ranks, sent, met = turns(len(late_ns), 4, late_ns)
    if not any(((begin_ns <= own.begin_ns) & (own.begin_ns < begin_ns + length_ns)).any() for own in ranks):
        return
    whole = Counter(program_runner.run(job(ranks, sent, with_collectives(met))))
    assert Counter(program_runner.run(part_of(ranks, begin_ns, begin_ns + length_ns, sent, met)[0])) <= whole
    assert Counter(program_runner.run(part_of(ranks, 0, 1000, sent, met)[0])) == whole


def test_one_sided_transfers_need_no_call_of_the_target():
    ranks = [
        calls(("Win_fence", 0, 1), ("Put", 10, 11), ("Win_fence", 30, 40)),
        calls(("Win_fence", 0, 1), ("Win_fence", 20, 40)),
    ]
    transfers = OneSided(*np.array([[0], [1], [777], [10], [0]]))
    found = job(ranks, None, lambda deeds, own: recorded.add_one_sided(deeds, own, FUNCTIONS, transfers))
    assert program_runner.run(found) == [(0, 1, 777)]
    got = OneSided(*np.array([[0], [1], [777], [10], [1]]))
    found = job(ranks, None, lambda deeds, own: recorded.add_one_sided(deeds, own, FUNCTIONS, got))
    assert program_runner.run(found) == [(1, 0, 777)]


def collective_calls(*rows):
    """From (function, begin, end, bytes)."""
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    numbers = [np.array(column, np.int64) for column in (range(len(rows)), *columns[1:])]
    return CollectiveCalls(numbers[0], columns[0], *numbers[1:])


GROUPS = {1: np.array([0, 1]), 2: np.array([2, 3]), 3: np.array([0, 2]), 4: np.array([1, 3])}


def test_rows_and_columns_are_told_apart_by_their_sizes():
    row, column = ("MPI_Allreduce", 0, 10, 16), ("MPI_Allreduce", 20, 30, 800)
    ranks = [collective_calls(row, column) for _ in range(4)]
    sizes = {1: 16, 2: 16, 3: 800, 4: 800}
    found = align(
        ranks, GROUPS, {"MPI_Allreduce": [1, 2, 3, 4]}, lambda one: set(one.n_bytes) == {sizes[one.group]}
    )
    assert [(one.group, one.i_call.tolist()) for one in found if one.group < 3] == [(1, [0, 0]), (2, [0, 0])]
    assert sorted((one.group, one.i_call.tolist()) for one in found if one.group > 2) == [
        (3, [1, 1]),
        (4, [1, 1]),
    ]


def test_a_collective_waits_for_all_of_its_members():
    world = {7: np.arange(3)}
    ranks = [collective_calls(("MPI_Barrier", 0, 9, 0), ("MPI_Bcast", 10, 12, 4)) for _ in range(3)]
    found = align(ranks, world, {"MPI_Barrier": [7], "MPI_Bcast": [7]})
    assert [one.function for one in found] == ["MPI_Barrier", "MPI_Bcast"]


def test_a_call_that_others_do_not_make_is_told():
    world = {7: np.arange(2)}
    ranks = [collective_calls(("MPI_Barrier", 0, 9, 0)), collective_calls()]
    with pytest.raises(
        DataError, match="no other rank made the call that matches call 0 of rank 0, MPI_Barrier"
    ):
        align(ranks, world, {"MPI_Barrier": [7]})
