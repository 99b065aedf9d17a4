"""Replays of runs with persistent and partitioned requests, neighbours, and collectives between groups."""

from collections import Counter
from dataclasses import replace

import exported
import jobs
import numpy as np
import program_runner
import pytest

from mpicoloc.errors import DataError
from mpicoloc.network.traffic.job_traffic import job_traffic
from mpicoloc.replay.programs import profile_programs
from mpicoloc.replay.programs.builder import CALL_SHIFT, CALLS, FIRST
from mpicoloc.replay.programs.sources import Choices

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
N_RANKS, N_TIMES = exported.N_RANKS, 3
LARGE, SMALL, N_PARTS = 50000, 300, 4
RING = [(rank, (rank + 1) % N_RANKS) for rank in range(N_RANKS)]


@pytest.fixture(params=["openmpi", "mpich"])
def record(request, tmp_path):
    """Runs a part of the program, and returns what is read of its trace."""

    def run(what, **choices):
        source = jobs.PROGRAMS / "replayed.c"
        path = exported.run(tmp_path, source, "all", N_TIMES, what, family=request.param)
        return profile_programs.read(str(path), Choices(**choices))

    return run


def messages(job):
    return program_runner.run(job.programs(np.arange(N_RANKS)))


def test_persistent_requests_send_at_each_start(record):
    wanted = [(src, dst, LARGE) for src, dst in RING] + [(dst, src, SMALL) for src, dst in RING]
    assert messages(record("persistent")) == sorted(wanted * N_TIMES)


def test_a_part_has_what_happens_in_it(record):
    job = record("persistent")
    whole, end_s = Counter(messages(job)), max(int(own.begin_ns[-1]) for own in job.calls) / 1e9
    first, second, all_of_it = (
        Counter(messages(replace(job, choices=Choices(part_s=part))))
        for part in ((0, end_s / 2), (end_s / 2, end_s + 1), (0, end_s + 1))
    )
    assert first + second <= whole == all_of_it


def test_partitions_are_sent_when_they_are_ready(record):
    job = record("partitioned")
    if not any("Pready" in name for name in job.recording.names):
        pytest.skip("this MPI has no partitioned requests")
    found = matrix(messages(job))
    assert np.array_equal(found, matrix([(*pair, N_TIMES * N_PARTS * SMALL) for pair in RING]))


def test_neighbours_get_their_parts(record):
    of_call = [(*way, size) for pair in RING for way in (pair, pair[::-1]) for size in (LARGE, SMALL, SMALL)]
    job = record("neighbours")
    assert messages(job) == sorted(of_call * N_TIMES)
    flags = np.concatenate([program["flags"] for program in job.programs(np.arange(N_RANKS)).programs])
    names = Counter(CALLS[(one >> CALL_SHIFT) - 1] for one in flags[flags & FIRST > 0].tolist())
    functions = ("MPI_Neighbor_alltoall", "MPI_Neighbor_allgather", "MPI_Ineighbor_alltoall")
    assert names == dict.fromkeys(functions, N_RANKS * N_TIMES)


def test_neighbour_collectives_of_two_communicators(record):
    pairs = [(0, 1, LARGE), (1, 0, LARGE), (2, 3, SMALL), (3, 2, SMALL)]
    assert messages(record("neighbours in halves")) == sorted(pairs * 2 * N_TIMES)


def test_persistent_collectives_are_refused_or_left_out(record):
    job = record("persistent collectives")
    if "MPI_Allreduce_init" not in job.recording.names:
        pytest.skip("this MPI has no persistent collectives")
    with pytest.raises(DataError, match=r"which MPI_Start began MPI_Allreduce_init \(3,600 of"):
        messages(job)
    job = record("persistent collectives", is_unmatched_left_out=True)
    assert messages(job) == []
    assert any("left out: MPI_Allreduce_init" in note for note in job.programs(np.arange(N_RANKS)).notes)


def matrix(sent):
    found = np.zeros((N_RANKS, N_RANKS))
    for src, dst, n_bytes in sent:
        found[src, dst] += n_bytes
    return found


def test_groups_exchange_what_the_traffic_says(record):
    job = record("groups")
    tables, library = job.profile.tables, job.profile.job.mpi_library
    wanted = job_traffic(tables, N_RANKS, library, np.arange(N_RANKS)).traffic
    found = matrix(messages(job))
    assert np.allclose(found, matrix(wanted.rounds()), atol=16)
    assert found[:2, 2:].sum() > N_TIMES * LARGE, "the broadcast goes to the other group"
