"""Partitions: which jobs they take, and that each is a machine of its own where they do not overlap."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from test_batch_simulation import MACHINE, Watch, log_of, tree

from mpicoloc.batch import allocation, engine, inputs, log_files, order, partitions
from mpicoloc.errors import DataError

TWO = """PartitionName=left Nodes=n[0-5] MaxTime=10
PartitionName=right Nodes=n[6-11] MaxNodes=4 PriorityTier=2
"""


def simulate(work, of_job, text, order_name="easy", allocation_name="first-available", observers=()):
    parts = partitions.parse(text, "partitions", MACHINE)
    chosen = order.named(order_name), allocation.named(allocation_name)
    return partitions.simulate(work, MACHINE, *chosen, observers, partitions=parts, of_job=np.asarray(of_job))


def test_lines_of_slurm_conf_are_read():
    text = (
        "NodeName=n[0-11] CPUs=4\n# PartitionName=no Nodes=n0\n"
        "PartitionName=DEFAULT MaxTime=1-00:00:00 State=UP\n"
        "PartitionName=all Nodes=ALL Default=YES # every node\n" + TWO
    )
    every, left, right = partitions.parse(text, "slurm.conf", MACHINE)
    assert every.nodes.tolist() == list(range(12)) and every.is_default and every.max_s == 86400
    assert left.nodes.tolist() == list(range(6)) and (left.max_nodes, left.max_s, left.priority) == (
        6,
        600,
        1,
    )
    assert right.nodes.tolist() == list(range(6, 12)) and (right.max_nodes, right.priority) == (4, 2)


def test_continued_lines_quotes_and_sets_of_nodes_are_those_of_slurm():
    text = (
        'NodeSet=few Nodes=n[0-1],n5\nPartitionName=a \\\n  Nodes=few,\\\nn[3-4] \\\n MaxNodes="2"\n'
        "PartitionName=b Nodes=n7"
    )
    a, b = partitions.parse(text, "slurm.conf", MACHINE)
    assert (a.nodes.tolist(), a.max_nodes, b.nodes.tolist()) == ([0, 1, 3, 4, 5], 2, [7])
    with pytest.raises(DataError, match=r"line 2: Include more.conf: included files are not read"):
        partitions.parse("PartitionName=a Nodes=ALL\nInclude more.conf\n", "slurm.conf", MACHINE)


@pytest.mark.parametrize(
    ("word", "max_s"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("1:30:30", 5430),
        ("7-00", 7 * 86400),
        ("1-12:00", 1.5 * 86400),
        ("1-12:00:01", 1.5 * 86400 + 1),
        ("infinite", np.inf),
    ],
)
def test_times_have_the_forms_of_slurm(word, max_s):
    (own,) = partitions.parse(f"PartitionName=a Nodes=ALL MaxTime={word}", "partitions", MACHINE)
    assert own.max_s == max_s


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no partition in it: write lines like PartitionName="),
        ("PartitionName=a", "line 1: partition a: it has no Nodes="),
        (
            "\nPartitionName=a Nodes=n[0-12]",
            "line 2: partition a: node 'n12' is not in the topology: choose from n0 to n11",
        ),
        ("PartitionName=a Nodes=n[0", "line 1"),
        (TWO + "PartitionName=left Nodes=n1", "line 3: partition left appears twice"),
        ("PartitionName=a Nodes=ALL MaxTime=soon", "MaxTime=soon is not a time"),
        ("PartitionName=a Nodes=ALL MaxNodes=few", "MaxNodes=few must be a whole number"),
    ],
)
def test_a_wrong_line_is_told(text, words):
    with pytest.raises(DataError) as caught:
        partitions.parse(text, "partitions", MACHINE)
    assert words in str(caught.value)


def of_partitions(*rows):
    """A log of jobs (number of partition, nodes, limit), which run for 1 s each."""
    lines = [f"{i} {i} -1 1 {n} -1 -1 {n} {e} -1 1 1 1 1 1 {p} -1 -1" for i, (p, n, e) in enumerate(rows, 1)]
    return log_files.parse(["; Partition: 1 left", "; Partition: 2 right", *lines], "log")[0]


def test_jobs_are_of_the_partition_with_the_name_or_the_number():
    parts = partitions.parse(TWO + "PartitionName=3 Nodes=n0", "partitions", MACHINE)
    work = inputs.workload(of_partitions((2, 1, 1), (1, 1, 1), (3, 1, 1)), 1, 12)
    assert partitions.of_jobs(work, parts).tolist() == [1, 0, 2]


def test_jobs_without_a_partition_are_of_the_default_one():
    work = inputs.workload(of_partitions((-1, 1, 1)), 1, 12)
    parts = partitions.parse(TWO + "PartitionName=a Nodes=n0 Default=YES", "partitions", MACHINE)
    assert partitions.of_jobs(work, parts).tolist() == [2]
    with pytest.raises(
        DataError, match="1 job of no partition cannot run, as the only partitions are left, right"
    ):
        partitions.of_jobs(work, parts[:2])
    work = inputs.workload(of_partitions((7, 1, 1)), 1, 12)
    with pytest.raises(
        DataError, match="1 job of partition 7 cannot run, as the only partitions are left, right"
    ):
        partitions.of_jobs(work, parts[:2])


def test_jobs_that_a_partition_does_not_allow_are_told():
    parts = partitions.parse(TWO, "partitions", MACHINE)
    work = inputs.workload(of_partitions((2, 4, 1), (2, 5, 1), (1, 6, 600), (1, 6, 601)), 1, 12)
    of_job = partitions.of_jobs(work, parts)
    keep = partitions.takes(work, parts, of_job)
    assert keep.tolist() == [True, False, True, False]
    with pytest.raises(DataError, match="job 2 needs 5 nodes, but partition right allows 4; 2 of 4 jobs"):
        partitions.check(work, parts, of_job)
    with pytest.raises(DataError, match="job 4 asked for or ran 601 s, but partition left allows 600 s"):
        partitions.check(
            partitions.select(work, np.array([True, False, True, True])), parts, of_job[[0, 2, 3]]
        )
    partitions.check(partitions.select(work, keep), parts, of_job[keep])


def test_a_job_without_a_limit_has_that_of_its_partition():
    parts = partitions.parse(TWO, "partitions", MACHINE)
    work = inputs.workload(of_partitions((1, 1, -1), (2, 1, -1), (1, 1, 7)), 1, 12)
    of_job = partitions.of_jobs(work, parts)
    assert partitions.with_limits(work, parts, of_job).estimate_s.tolist() == [600, 1, 7]


JOBS = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(1, 20), st.integers(1, 30), st.integers(1, 4), st.integers(0, 1)
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.parametrize("order_name", order.ORDERS)
@pytest.mark.parametrize("allocation_name", allocation.ALLOCATIONS)
@settings(max_examples=10, deadline=None)
@given(jobs=JOBS)
def test_partitions_without_common_nodes_are_machines_of_their_own(order_name, allocation_name, jobs):
    jobs = sorted(jobs)
    of_job = np.array([row[4] for row in jobs])
    work = inputs.workload(log_of([row[:4] for row in jobs]), 1, 12)
    done = simulate(work, of_job, TWO, order_name, allocation_name, [Watch()])
    chosen = order.named(order_name), allocation.named(allocation_name)
    for i, nodes in enumerate((np.arange(6), np.arange(6, 12))):
        if (of_job == i).any():
            part = inputs.part_of(MACHINE, nodes, "part")
            alone = engine.simulate(partitions.select(work, of_job == i), part, *chosen)
            assert np.array_equal(done.start_s[of_job == i], alone.start_s)


@settings(max_examples=20, deadline=None)
@given(jobs=JOBS)
def test_one_partition_of_all_nodes_is_the_machine(jobs):
    work = inputs.workload(log_of([row[:4] for row in sorted(jobs)]), 1, 12)
    text = "PartitionName=a Nodes=ALL"
    for name in order.ORDERS:
        done = simulate(work, np.zeros(len(work), int), text, name, "virtual-blocks")
        alone = engine.simulate(work, MACHINE, order.named(name), allocation.named("virtual-blocks"))
        assert np.array_equal(done.start_s, alone.start_s)


@pytest.mark.parametrize("order_name", order.ORDERS)
@pytest.mark.parametrize("allocation_name", allocation.ALLOCATIONS)
@settings(max_examples=10, deadline=None)
@given(jobs=JOBS)
def test_jobs_stay_in_partitions_that_overlap_and_all_end(order_name, allocation_name, jobs):
    jobs = sorted(jobs)
    of_job = np.array([row[4] for row in jobs])
    work = inputs.workload(log_of([row[:4] for row in jobs]), 1, 12)
    watch = Inside([set(range(8)), set(range(4, 12))], of_job)
    text = "PartitionName=a Nodes=n[0-7]\nPartitionName=b Nodes=n[4-11] PriorityTier=5"
    done = simulate(work, of_job, text, order_name, allocation_name, [watch])
    assert np.allclose(done.end_s - done.start_s, work.log.run_s)
    assert watch.node_s == pytest.approx((work.log.run_s * work.n_nodes).sum())


class Inside(Watch):
    """Checks that jobs are on nodes of their partition, too."""

    def __init__(self, nodes, of_job):
        super().__init__()
        self.nodes, self.of_job = nodes, of_job

    def began(self, simulation, job, nodes):
        super().began(simulation, job, nodes)
        assert set(nodes.tolist()) <= self.nodes[self.of_job[job]]


def test_the_partition_of_higher_priority_gets_common_nodes_first():
    work = inputs.workload(log_of([(0, 10, 10, 8), (1, 10, 10, 8), (2, 10, 10, 8)]), 1, 12)
    text = "PartitionName=a Nodes=n[0-7]\nPartitionName=b Nodes=n[0-7] PriorityTier={}"
    assert simulate(work, [0, 0, 1], text.format(2)).start_s.tolist() == [0, 20, 10]
    assert simulate(work, [0, 0, 1], text.format(1)).start_s.tolist() == [0, 10, 20]


def test_nodes_have_the_names_of_the_topology():
    named = inputs.Machine("m", np.arange(4), tree("XGFT(2;2,2;1,1)").subtree, ("login", "a7", "a9", "b1"))
    (own,) = partitions.parse("PartitionName=a Nodes=a[7,9]", "partitions", named)
    assert own.nodes.tolist() == [1, 2]
    assert inputs.part_of(named, own.nodes, "part").node_names() == ("a7", "a9")
