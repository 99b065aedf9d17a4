"""The service on a partition that gives out cores: jobs land beside those that they get on with."""

import dataclasses
import time

import jobs
import numpy as np
import pytest
import sample

from mpicoloc.errors import UsageError
from mpicoloc.pairing import spread_plan
from mpicoloc.pairing.cores_plan import MARK, Preference, released
from mpicoloc.pairing.policies import Rules
from mpicoloc.pairing.sharing_plan import Partitions
from mpicoloc.profile import hdf5
from mpicoloc.slurm import client, cores_service, service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
CORES = Partitions("cores", "cores")
SLOWDOWN = {("a", "a"): 1.8}
"""Of jobs of these names; others do not slow each other down."""


@pytest.fixture
def look(tmp_path, monkeypatch):
    """One round of a service that knows jobs a and b of two ranks, and expects these slowdowns."""
    for name in "ab":
        job = sample.job(id=name, user="root", batch_name=name)
        hdf5.write(dataclasses.replace(sample.profile(), job=job), tmp_path / f"{name}.h5")
    known = service.ProfileHistory(str(tmp_path))

    def expected(found, features, how, measured):
        names = [job.name for job in found]
        value = np.array([[SLOWDOWN.get((one, other), 1.0) for other in names] for one in names])
        return value, value

    monkeypatch.setattr(service, "expected_slowdowns", expected)
    audit = service.AuditLog(str(tmp_path / "audit.jsonl"), lambda text: None)
    state = service.LoopState()

    def once(layout="cores"):
        how = service.ServiceSettings(CORES, Rules(prior_slowdown=1.0), None, layout=layout)
        return service.run_once(known, how, audit, is_dry=False, state=state, decide=cores_service.decide)

    return once


def submit(cluster, name, *words, partition="cores"):
    return cluster.submit("sleep 300", "-p", partition, "-N1", "-n2", "-t", "10", "-J", name, *words)


def running(queue, *numbers):
    jobs.wait_until(lambda: all(queue()[each].state == "RUNNING" for each in numbers), "jobs to run")


def test_a_job_starts_beside_one_that_it_gets_on_with(cluster, queue, look):
    """All nodes are full; on n1 an a and on n2 a b began last, so they are expected to stay."""
    full = [submit(cluster, "a", "-w", node, "-n4") for node in ("n3", "n4")]
    leaving = [submit(cluster, "b", "-w", node) for node in ("n1", "n2")]
    running(queue, *full, *leaving)
    time.sleep(1.5)  # Slurm has whole seconds
    running(queue, submit(cluster, "a", "-w", "n1"), submit(cluster, "b", "-w", "n2"))
    assert look() == []
    bound, waiting = submit(cluster, "a", "-w", "n1"), submit(cluster, "a")
    jobs.wait_until(lambda: queue()[waiting].reason in ("Resources", "Priority"), "it to wait")
    assert look() == [Preference(waiting, ("n2",))]
    assert (queue()[waiting].prefer, queue()[waiting].admin_comment) == ("n2", MARK)
    assert look() == [], "nothing has changed"
    assert queue()[bound].prefer == ""
    cluster.run("scancel", bound, *leaving)
    running(queue, waiting)
    assert queue()[waiting].nodes == ("n2",)


def test_a_preference_delays_nobody_and_is_taken_back(cluster, queue, look, tmp_path):
    full = [submit(cluster, "b", "-w", node, "-n4") for node in ("n1", "n3", "n4")]
    other = submit(cluster, "b", "-w", "n2", "-n4")
    running(queue, *full, other)
    waiting, theirs = submit(cluster, "a"), submit(cluster, "a", "--prefer", "n4")
    cluster.run("scontrol", "update", f"JobId={waiting}", "Prefer=n1", f"AdminComment={MARK}")
    audit = service.AuditLog(None, lambda text: None)
    assert [one.job for one in service.release_jobs(CORES, audit, (), released)] == [waiting]
    assert (queue()[waiting].prefer, queue()[theirs].prefer) == ("", "n4")
    cluster.run("scontrol", "update", f"JobId={waiting}", "Prefer=n1", f"AdminComment={MARK}")
    cluster.run("scancel", other)
    running(queue, waiting)
    assert queue()[waiting].nodes == ("n2",)


def test_a_job_is_spread_over_halves_of_nodes(cluster, queue, look):
    """Every node has two free cores, so a job of a whole node would wait."""
    running(queue, *(submit(cluster, "b", "-w", f"n{i}") for i in range(1, 5)))
    own = submit(cluster, "a", "-c2", "-D", "/tmp")
    waiting = submit(cluster, "a", "-c2", "--comment", spread_plan.SPREAD_COMMENT)
    jobs.wait_until(lambda: queue()[waiting].reason in ("Resources", "Priority"), "it to wait")
    assert look("spread") == [], "the first job's user has not allowed it"
    cluster.run("scancel", own)
    (shape,) = look("spread")
    assert (shape.job, shape.n_nodes, shape.min_cpus) == (waiting, (1, 2), 2)
    running(queue, waiting)
    assert (queue()[waiting].nodes, queue()[waiting].n_cpus) == (shape.nodes, 4)


def test_a_spread_job_may_begin_on_a_whole_node(cluster, queue, look):
    """Slurm takes what is free first, so the job waits no longer than without the service."""
    others = [submit(cluster, "b", "-w", f"n{i}", "-n3") for i in range(1, 5)]
    running(queue, *others)
    waiting = submit(cluster, "a", "-n4", "--comment", spread_plan.SPREAD_COMMENT)
    comment = "mpicoloc spreads this job of 1 nodes and 1 CPUs"
    shape = spread_plan.Shape(waiting, ("n1", "n2"), (1, 2), 4, 2, comment)
    words = [f"{name}={value}" for name, value in shape.changes().items()]
    cluster.run("scontrol", "update", f"JobId={waiting}", *words)
    cluster.run("scancel", others[2])
    running(queue, waiting)
    assert (queue()[waiting].nodes, queue()[waiting].n_cpus) == (("n3",), 4)


def test_a_spread_job_is_packed_again(cluster, queue, look):
    running(queue, *(submit(cluster, "b", "-w", f"n{i}", "-n3") for i in range(1, 5)))
    waiting = submit(cluster, "a", "-c2", "--comment", spread_plan.SPREAD_COMMENT)
    comment = "mpicoloc spreads this job of 1 nodes and 1 CPUs"
    shape = spread_plan.Shape(waiting, ("n1", "n2"), (1, 2), 4, 2, comment)
    words = [f"{name}={value}" for name, value in shape.changes().items()]
    cluster.run("scontrol", "update", f"JobId={waiting}", *words)
    assert queue()[waiting].most_nodes == 2
    audit = service.AuditLog(None, lambda text: None)
    assert [one.job for one in service.release_jobs(CORES, audit, (), spread_plan.released)] == [waiting]
    found = queue()[waiting]
    assert (found.most_nodes, found.n_cpus, found.min_cpus) == (1, 4, 1)
    assert (found.prefer, found.admin_comment) == ("", "")
    assert not found.is_bound


def test_partitions_that_do_not_give_out_cores_are_refused(queue):
    now, settings = client.snapshot(), client.settings()
    assert cores_service.advice(now, CORES, settings) == []
    for name in ("whole", "shared"):
        with pytest.raises(UsageError, match=f"partition {name} does not give out cores .*--shared, or set"):
            cores_service.advice(now, Partitions(name, name), settings)
    with pytest.raises(UsageError, match="Slurm has no partition none"):
        cores_service.advice(now, Partitions("none", "none"), settings)
