"""OTF2 archives as programs of ranks."""

import numpy as np
import program_runner
import pytest

from mpicoloc.errors import DataError
from mpicoloc.replay.native import Operation
from mpicoloc.replay.programs import sources

otf2 = pytest.importorskip("otf2")
from otf2.enums import CollectiveOp, GroupType, MeasurementMode, Paradigm  # noqa: E402

NS = 10**9


class Archive:
    """Writes an archive of some ranks, all on one communicator."""

    def __init__(self, path, n_ranks):
        self.archive = otf2.writer.open(
            str(path), timer_resolution=NS, chunk_size_events=1 << 18, chunk_size_definitions=1 << 18
        ).thing
        names = self.archive.definitions
        node = names.system_tree_node("machine", class_name="machine")
        self.locations = [
            names.location("thread 0", group=names.location_group(f"rank {rank}", system_tree_parent=node))
            for rank in range(n_ranks)
        ]
        everybody = names.group(
            "all", group_type=GroupType.COMM_LOCATIONS, paradigm=Paradigm.MPI, members=self.locations
        )
        group = names.group(
            "world", group_type=GroupType.COMM_GROUP, paradigm=Paradigm.MPI, members=everybody.members
        )
        self.world = names.comm("world", group=group)
        # As Score-P writes it: without members, for every rank alone.
        alone = names.group("self", group_type=GroupType.COMM_SELF, paradigm=Paradigm.MPI, members=[])
        self.alone = names.comm("self", group=alone)
        thread = names.location("thread 1", group=self.locations[0].group)
        self.other_thread = self.archive.event_writer_from_location(thread)
        self.regions = {}
        self.writers = [self.archive.event_writer_from_location(location) for location in self.locations]

    def call(self, rank, name, begin_ns, end_ns, *events):
        """One call with its events, each (method, time, arguments)."""
        if name not in self.regions:
            self.regions[name] = self.archive.definitions.region(name, paradigm=Paradigm.MPI)
        writer = self.writers[rank]
        writer.enter(begin_ns, self.regions[name])
        for method, time_ns, *arguments in events:
            getattr(writer, method)(time_ns, *arguments)
        writer.leave(end_ns, self.regions[name])

    def close(self):
        if self.archive is not None:
            self.archive.close()
        self.archive = None


@pytest.fixture
def archive(tmp_path):
    made = Archive(tmp_path / "job", 2)
    yield made
    made.close()


def read(tmp_path):
    return sources.read(str(tmp_path / "job"), sources.Choices()).programs(None)


def test_messages_computation_and_collectives(archive, tmp_path):
    world = archive.world
    archive.call(0, "MPI_Init", 0, 100)
    archive.call(1, "MPI_Init", 0, 100)
    archive.call(0, "MPI_Send", 1100, 2000, ("mpi_send", 1100, 1, world, 7, 5000))
    archive.call(1, "MPI_Irecv", 300, 310)
    archive.call(1, "MPI_Wait", 400, 2000, ("mpi_recv", 2000, 0, world, 7, 5000))
    for rank in range(2):
        end = ("mpi_collective_end", 3000, CollectiveOp.ALLREDUCE, world, 0, 2 * 8, 2 * 8)
        archive.call(rank, "MPI_Allreduce", 2500, 3000, ("mpi_collective_begin", 2500), end)
    archive.close()
    job = read(tmp_path)
    runner = program_runner.Runner(job)
    assert runner.run() == [(0, 1, 8), (0, 1, 5000), (1, 0, 8)]
    assert runner.compute_ns == [1500, 200 + 90 + 500]
    assert (
        job.programs[1]["kind"].tolist()[1] == Operation.IRECV
    )  # posted in MPI_Irecv, before the computation
    assert job.name == "job"


def test_a_part_begins_so_long_after_the_first_call(archive, tmp_path):
    for turn, begin_ns in enumerate((5 * NS, 6 * NS, 7 * NS)):
        sent, taken = (("mpi_send", 1, 10 * turn), ("mpi_recv", 0, 10 * turn))
        for rank, name, (event, peer, size) in ((0, "MPI_Send", sent), (1, "MPI_Recv", taken)):
            what = (event, begin_ns + 10, peer, archive.world, 7, size)
            archive.call(rank, name, begin_ns, begin_ns + 100, what)
    archive.close()
    choices = sources.Choices(part_s=(0.5, 1.5))
    job = sources.read(str(tmp_path / "job"), choices).programs(None)
    runner = program_runner.Runner(job)
    assert runner.run() == [(0, 1, 10)]
    assert runner.compute_ns == [NS - 100] * 2
    assert "2 of 6 calls are replayed" in job.notes[0]


def test_a_rank_alone_moves_nothing(archive, tmp_path):
    for rank in range(2):
        end = ("mpi_collective_end", 20, CollectiveOp.ALLREDUCE, archive.alone, 0xFFFFFFFF, 8, 8)
        archive.call(rank, "MPI_Allreduce", 10, 20, end)
    archive.call(
        0,
        "MPI_Sendrecv",
        30,
        40,
        ("mpi_send", 31, 0, archive.alone, 1, 5),
        ("mpi_recv", 39, 0, archive.alone, 1, 5),
    )
    archive.close()
    assert program_runner.run(read(tmp_path)) == [(0, 0, 5)]


def test_non_blocking_collectives_are_those_that_were_begun(archive, tmp_path):
    """Two of different size, completed in the other order, and a blocking one between."""
    world, root = archive.world, 0xFFFFFFFF
    for rank in range(2):
        archive.call(rank, "MPI_Iallreduce", 10, 20, ("non_blocking_collective_request", 11, 7))
        archive.call(rank, "MPI_Ibcast", 30, 40, ("non_blocking_collective_request", 31, 8))
        archive.call(
            rank, "MPI_Barrier", 50, 60, ("mpi_collective_end", 60, CollectiveOp.BARRIER, world, root, 0, 0)
        )
        bcast = ("non_blocking_collective_complete", 80, CollectiveOp.BCAST, world, 1, 100 * rank, 100, 8)
        sums = ("non_blocking_collective_complete", 80, CollectiveOp.ALLREDUCE, world, root, 16, 16, 7)
        archive.call(rank, "MPI_Waitall", 65, 90, *([bcast, sums] if rank else [sums, bcast]))
    archive.close()
    sent = program_runner.run(read(tmp_path))
    assert [row for row in sent if row[2]] == [(0, 1, 8), (1, 0, 8), (1, 0, 100)]


def test_a_collective_that_never_completed_is_told(archive, tmp_path):
    archive.call(0, "MPI_Iallreduce", 10, 20, ("non_blocking_collective_request", 11, 7))
    archive.call(1, "MPI_Init", 10, 20)
    archive.close()
    with pytest.raises(DataError, match="rank 0 began MPI_Iallreduce but never completed it"):
        read(tmp_path)


def test_what_is_left_out_is_noted(archive, tmp_path):
    for rank in range(2):
        archive.call(rank, "MPI_Init", 10, 20)
    archive.other_thread.mpi_send(15, 1, archive.world, 7, 100)
    archive.writers[0].measurement_on_off(30, MeasurementMode.OFF)
    archive.close()
    notes = read(tmp_path).notes
    assert "left out: messages and collectives of threads that are not ranks (1)" in notes
    assert "left out: pauses of the recording, and what ran in them (1)" in notes


def test_tags_and_ranks_keep_messages_apart(archive, tmp_path):
    world = archive.world
    sends = [("mpi_send", 8 + 2 * tag, 1, world, tag, 100 * tag) for tag in (1, 2)]
    archive.call(0, "MPI_Isend", 10, 11, sends[0])
    archive.call(0, "MPI_Isend", 12, 13, sends[1])
    archive.call(0, "MPI_Waitall", 20, 90)
    archive.call(1, "MPI_Recv", 10, 80, ("mpi_recv", 80, 0, world, 2, 200))
    archive.call(1, "MPI_Recv", 81, 89, ("mpi_recv", 89, 0, world, 1, 100))
    archive.close()
    job = read(tmp_path)
    assert program_runner.run(job) == [(0, 1, 100), (0, 1, 200)]
    assert job.programs[1]["value"][np.isin(job.programs[1]["kind"], [Operation.RECV])].tolist() == [200, 100]


def test_collectives_without_sizes_are_told(archive, tmp_path):
    for rank in range(2):
        archive.call(rank, "MPI_Bcast", 10, 20)
    archive.close()
    with pytest.raises(DataError, match=r"lacks the data of collectives .*MPI_Bcast of rank 0"):
        read(tmp_path)


def test_a_rank_without_calls_is_told(archive, tmp_path):
    archive.call(0, "MPI_Init", 0, 1)
    archive.close()
    with pytest.raises(DataError, match="rank 1 has no MPI call"):
        read(tmp_path)


def test_what_is_no_archive_is_told(tmp_path):
    (tmp_path / "x.otf2").write_text("hello")
    with pytest.raises(DataError, match="not an OTF2 archive"):
        sources.read(str(tmp_path / "x.otf2"), sources.Choices())


def test_a_message_with_one_end_is_refused_or_left_out(archive, tmp_path):
    world = archive.world
    archive.call(0, "MPI_Send", 10, 20, ("mpi_send", 10, 1, world, 7, 100))
    archive.call(0, "MPI_Send", 2500000, 2600000, ("mpi_send", 2500000, 1, world, 7, 200))
    archive.call(1, "MPI_Recv", 10, 30, ("mpi_recv", 30, 0, world, 7, 100))
    archive.call(1, "MPI_Recv", 4000000, 5000000, ("mpi_recv", 5000000, 0, world, 9, 50))
    archive.close()
    line = r"2 of 3 messages lack their .* a send of 200 bytes from rank 0 to rank 1, tag 7, at 0.0025"
    with pytest.raises(DataError, match=line):
        read(tmp_path)
    choices = sources.Choices(is_unmatched_left_out=True)
    job = sources.read(str(tmp_path / "job"), choices).programs(None)
    assert program_runner.run(job) == [(0, 1, 100)]
    assert "2 of 3 messages are left out" in job.notes[0]


def test_an_archive_has_its_own_files_and_no_others(tmp_path, monkeypatch):
    (tmp_path / "traces").mkdir()
    for name in ("traces.otf2", "traces.def", "traces/0.evt", "rows.jsonl", "other.otf2"):
        (tmp_path / name).write_text("x")
    monkeypatch.chdir(tmp_path)
    expected = ["traces.otf2", "traces.def", "traces/0.evt"]
    assert sources.files_of("traces.otf2") == expected
    assert sources.files_of("./traces.otf2") == [f"./{name}" for name in expected]
    assert sources.files_of(str(tmp_path)) == [str(tmp_path / name) for name in expected]
