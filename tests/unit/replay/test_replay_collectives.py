"""Collectives as programs of ranks: they end, and send what the algorithm says."""

from collections import Counter

import numpy as np
import program_runner
import pytest

from mpicoloc.errors import UsageError
from mpicoloc.network.traffic import mpich, openmpi
from mpicoloc.network.traffic.collective import Collective
from mpicoloc.network.traffic.mpich import MPICH
from mpicoloc.network.traffic.openmpi import OpenMPI
from mpicoloc.replay.programs import builder
from mpicoloc.replay.programs.builder import of_each

OF_MPICH = [(MPICH(), words.split(" ")[0], algorithm) for words, algorithm in mpich.ALGORITHMS.items()]
OF_OPEN_MPI = [
    (OpenMPI(), name, algorithm)
    for name, of_name in openmpi.ALGORITHMS.items()
    for algorithm in of_name.values()
]
UNEVEN = ("gatherv", "scatterv", "allgatherv", "reduce_scatter")


def call_of(name, p, n_items=40):
    counts = np.arange(p) * 3 + 1 if name in UNEVEN else None
    return Collective(name, p, n_items, 8, root=min(1, p - 1), counts=counts)


def job_of(messages, p):
    return of_each("job", builder.blocks(messages, np.arange(p), 1, "bcast"))


def pairs_of(messages):
    traffic = messages.traffic()
    rows = zip(traffic.src.tolist(), traffic.dst.tolist(), traffic.n_bytes.tolist(), strict=True)
    return Counter({(src, dst): n_bytes for src, dst, n_bytes in rows})


@pytest.mark.parametrize(("library", "name", "algorithm"), OF_MPICH + OF_OPEN_MPI)
@pytest.mark.parametrize("p", [2, 3, 4, 7, 8, 13])
def test_every_algorithm_ends_and_sends_its_bytes(library, name, algorithm, p):
    messages = algorithm(call_of(name, p), library)
    sent = program_runner.run(job_of(messages, p))
    found = Counter()
    for src, dst, n_bytes in sent:
        found[src, dst] += n_bytes
    assert found == pairs_of(messages)
    assert len(sent) == messages.traffic().n_messages.sum()


def test_a_rank_of_a_tree_receives_before_it_sends():
    messages = mpich.ALGORITHMS["bcast binomial"](Collective("bcast", 8, 1), MPICH())
    program = job_of(messages, 8).programs[4]
    assert [int(kind) for kind in program["kind"]] == [4, 3, 3, 7]  # receive, two sends, wait for both
    assert program["peer"].tolist()[:3] == [0, 6, 5]  # the larger subtree first


def test_members_of_a_part_of_the_job_keep_their_ranks():
    messages = MPICH().messages(Collective("allreduce", 3, 4, 8))
    members = np.array([9, 2, 5])
    for rank, program in zip(members, builder.blocks(messages, members, 4, "bcast"), strict=True):
        is_message = np.isin(program["kind"], [2, 3, 4, 5])
        assert set(program["peer"][is_message]) <= set(members) - {rank}
        assert set(program["comm"][is_message]) == {4}


def test_an_algorithm_can_be_chosen():
    call = Collective("allreduce", 8, 1, 8)
    chosen = builder.Chosen(MPICH(), {"allreduce": "openmpi-4"})
    ring = openmpi.ALGORITHMS["allreduce"][4](call, MPICH())
    other = Collective("bcast", 8, 1)
    assert pairs_of(chosen.messages(call)) == pairs_of(ring)
    assert pairs_of(chosen.messages(other)) == pairs_of(MPICH().messages(other))
    assert not chosen.is_exchange(call)


@pytest.mark.parametrize("choice", [{"allreduce": "magic"}, {"sort": "ring"}])
def test_an_unknown_algorithm_is_told_with_those_that_are_known(choice):
    with pytest.raises(UsageError, match=r"(algorithms of allreduce|collectives with algorithms) are "):
        builder.Chosen(MPICH(), choice)
