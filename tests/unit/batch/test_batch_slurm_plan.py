"""Files for Slurm: its switches are those of the machine, and its partitions take every job of the log."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_batch_simulation import log_of, tree

from mpicoloc.batch import engine, machine, order, partition
from mpicoloc.batch.allocation import registry
from mpicoloc.batch.logs import job_log
from mpicoloc.batch.slurm_plan import demand, nodes, plan, switches
from mpicoloc.batch.slurm_plan.demand import Demand
from mpicoloc.network.topology import readers
from mpicoloc.network.topology.hostlist import expand

DEMAND = Demand(7200.0, 3, 40, 30.0, 60.0)
ATLAS = tree("XGFT(3;18,4,2;1,1,1)")


def files(allocation_name="best-fit", order_name="easy", sharing="none", own=ATLAS, asked=DEMAND, parts=()):
    return plan.files(own, 8, plan.Policies(order_name, allocation_name, sharing), asked, parts)


def lines(texts, word):
    return [line for line in texts[plan.SETTINGS].splitlines() if line.startswith(word)]


@pytest.mark.parametrize("notation", ["XGFT(1;5;1)", "XGFT(2;4,4;1,2)", "XGFT(3;3,2,4;1,2,2)"])
def test_switches_are_read_as_the_machine_they_were_written_from(notation):
    own = tree(notation)
    fabric = readers.fabric_of_text(switches.text(own, is_cut=False), "topology.conf", "10Gbit", None)
    found = machine.of_fabric(fabric)
    assert found.node_names() == own.node_names()
    assert [level.tolist() for level in found.subtree] == [level.tolist() for level in own.subtree]


def test_switches_of_18_are_cut_into_16_and_2():
    text = switches.text(machine.first_nodes(ATLAS, 28), is_cut=True)
    assert text.splitlines() == [
        "SwitchName=v0 Nodes=n[0-15]",
        "SwitchName=r0 Nodes=n[16-17]",
        "SwitchName=s1_0 Switches=v0,r0",
        "SwitchName=v1 Nodes=n[18-27]",
        "SwitchName=s1_1 Switches=v1",
        "SwitchName=s2_0 Switches=s1_[0-1]",
        "SwitchName=s3_0 Switches=s2_0",
    ]


def test_switches_that_are_powers_of_two_are_not_cut():
    assert switches.text(tree("XGFT(2;4,4;1,1)"), is_cut=True) == switches.text(
        tree("XGFT(2;4,4;1,1)"), is_cut=False
    )


def test_each_order_has_its_scheduler():
    texts = {name: files(order_name=name)[0][plan.SETTINGS] for name in order.ORDERS}
    assert "SchedulerType=sched/builtin\nPriorityType=priority/basic\n" in texts["fcfs"]
    assert "bf_job_part_count_reserve=1\nPriorityType=priority/basic\n" in texts["easy"]
    assert "sched/backfill" in texts["conservative"] and "count_reserve" not in texts["conservative"]
    assert "PriorityType=priority/multifactor\nPriorityWeightAge=100000\n" in texts["priority"]


def test_backfill_looks_as_far_and_as_deep_as_the_log_needs():
    told = files(asked=Demand(5 * 86400.0 + 1, 1200, 1, 1.0, 0.0))[0][plan.SETTINGS]
    assert "bf_window=7201,bf_max_job_test=1200," in told
    texts, differences = files(asked=Demand(400 * 86400.0, 1200, 1, 1.0, 0.0))
    assert "bf_window=43200," in texts[plan.SETTINGS] and any("30 days" in line for line in differences)


@pytest.mark.parametrize("name", registry.ALLOCATIONS)
@pytest.mark.parametrize("sharing", ["none", "blind", "model", "service"])
def test_every_node_is_there_once_and_every_size_of_job_has_a_partition(name, sharing):
    texts, differences = files(name, sharing=sharing)
    told = ",".join(re.match(r"NodeName=(\S+)", line)[1] for line in lines(texts, "NodeName"))
    assert sorted(expand(told, "plan")) == sorted(ATLAS.node_names())
    head = [line for line in texts[plan.SETTINGS].splitlines() if line.startswith("# Otherwise")]
    assert [line.split(": ", 1)[1] for line in head] == list(differences)
    rows = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in lines(texts, "PartitionName")]
    assert all({"EXCLUSIVE": "none", "FORCE:2": "blind"}.get(row["OverSubscribe"]) for row in rows)
    for size in (1, 18, 19, DEMAND.largest_nodes):
        assert any(
            int(row.get("MinNodes", 0))
            <= size
            <= min(int(row.get("MaxNodes", 999)), len(expand(row["Nodes"], "")))
            for row in rows
        )
    if sharing in ("model", "service"):
        whole = [row["PartitionName"] for row in rows if row["OverSubscribe"] == "EXCLUSIVE"]
        shared = [row["PartitionName"] for row in rows if row["OverSubscribe"] != "EXCLUSIVE"]
        assert shared == [f"{one}_shared" for one in whole]


def test_big_and_small_jobs_have_the_switches_that_they_used_for_themselves():
    """8 switches of 18: 60 nodes of big jobs are 3 switches, 30 of small ones are 1."""
    found = nodes.layout("virtual-blocks", ATLAS, DEMAND)
    big, small = found.queues
    assert (big.nodes.tolist(), small.nodes.tolist()) == (list(range(126)), list(range(54, 144)))
    assert np.flatnonzero(found.weights == 2).tolist() == list(range(54, 126))


@settings(max_examples=50, deadline=None)
@given(largest=st.integers(1, 144), big=st.floats(0, 1), small=st.floats(0, 1), n=st.integers(1, 144))
def test_blocks_hold_the_largest_job_and_each_other_jobs(largest, big, small, n):
    own = machine.first_nodes(ATLAS, max(n, largest))
    asked = Demand(1.0, 1, largest, small * (1 - big) * own.n_nodes, big * own.n_nodes)
    first, last = nodes.layout("virtual-blocks", own, asked).queues
    assert len(first.nodes) >= min(largest, own.n_nodes) or largest <= own.switch_size
    assert len(last.nodes) >= min(largest, own.switch_size, own.n_nodes)
    assert {*first.nodes.tolist(), *last.nodes.tolist()} == set(range(own.n_nodes))


def test_partitions_of_the_site_are_written_back():
    text = (
        "PartitionName=a Nodes=n[0-71] MaxNodes=9 MaxTime=1-02:03:04 PriorityTier=3\n"
        "PartitionName=b Nodes=ALL Default=YES"
    )
    own = partition.parse(text, "partitions", ATLAS)
    texts, differences = files("virtual-blocks", parts=own)
    again = partition.parse(texts[plan.SETTINGS], "plan", ATLAS)
    for one, other in zip(own, again, strict=True):
        assert one.nodes.tolist() == other.nodes.tolist()
        assert replace(one, nodes=None) == replace(other, nodes=None)
    assert "big and small jobs are not kept apart" in " ".join(differences)


@pytest.mark.parametrize(
    ("name", "kept"),
    [("exclusive", "Nothing keeps two big jobs out"), ("virtual-blocks", "knows no rem switches")],
)
def test_with_partitions_of_the_site_the_other_differences_stay(name, kept):
    own = partition.parse("PartitionName=a Nodes=ALL", "partitions", ATLAS)
    differences = " ".join(files(name, parts=own)[1])
    assert kept in differences and "big and small jobs are not kept apart" in differences
    assert "SBATCH_PARTITION" not in differences and "The limit between" not in differences
    assert "SBATCH_PARTITION" in " ".join(files(name)[1])


def test_demand_is_what_the_schedule_had():
    own = tree("XGFT(2;4,2;1,1)")
    work = job_log.workload(log_of([(0, 10, 60, 8), (1, 10, 90, 2), (2, 10, 30, 6), (30, 10, 10, 1)]), 1, 8)
    done = engine.simulate(work, own, order.named("fcfs"), registry.named("best-fit"))
    found = demand.of_schedule(work, own, done)
    assert done.completion_s == 40
    assert found == Demand(90.0, 2, 8, (20 + 10) / 40, (80 + 60) / 40)


def test_machines_of_many_nodes_have_a_weight_for_each_switch():
    found = nodes.layout("first-available", tree("XGFT(2;18,72;1,1)"), DEMAND)
    assert len(np.unique(found.weights)) == 72 and len(found.differences) == 1
