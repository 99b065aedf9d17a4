"""One job on nodes whose clocks differ: its shutters are at one instant on all of them, or on none."""

import os
import signal
import time

import bubbled_jobs
import jobs
import nodes
import numpy as np
import pytest

from mpicoloc.bubble import calibrate
from mpicoloc.core.profile import VERDICTS

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(150),
    pytest.mark.slow,
    pytest.mark.skipif(not nodes.can_be_made(), reason="this machine allows no namespaces"),
]
STEADY = {"MPICOLOC_SHUTTER_ADAPT": 0, "MPICOLOC_METER": "burst"}


@pytest.fixture
def cluster(tmp_path):
    with nodes.Cluster(tmp_path) as made:
        yield made


VALID = VERDICTS.index("valid")
SHARED_S, N_VALID = 5, 3


def test_a_coordinator_that_stops_for_a_while_costs_shutters_only(cluster, openmpi, tmp_path):
    other = cluster.start(openmpi, "other", ["h0"], [openmpi.program, "finalize", 600], **STEADY)
    command = [openmpi.program, "seven", jobs.LIMIT_S, 0, tmp_path / "end"]
    job = cluster.start(openmpi, "job", cluster.names, command, **STEADY)
    coordinator = cluster.coordinator_of("job", "h1")
    time.sleep(2)
    os.kill(coordinator, signal.SIGSTOP)
    time.sleep(2)
    os.kill(coordinator, signal.SIGCONT)
    node = nodes.node_file(coordinator)
    n_before = int(node["n_shutters"])
    jobs.wait_until(lambda: node["n_shutters"] > n_before, "one more shutter", jobs.LIMIT_S)
    (tmp_path / "end").touch()
    assert job.wait() == 7, job.log
    profile = job.profile()
    nodes.stop(other)
    assert not profile.partial
    assert profile.interference.n_taken > 0
    assert len(profile.tables["nodes"]) == 2


def has_enough(node):
    verdicts = node["shutters"]["verdict"][: int(node["n_shutters"])]
    return node["shared_ns"] > SHARED_S * 1.1e9 and (verdicts == VALID).sum() > N_VALID


def run_beside(cluster, openmpi, neighbours, end):
    """The profile of a job on both nodes, with a job of its own on each of `neighbours` all the time."""
    others = [
        cluster.start(openmpi, f"other-{name}", [name], [openmpi.program, "finalize", 600], **STEADY)
        for name in neighbours
    ]
    command = [openmpi.program, "finalize", jobs.LIMIT_S, 0, end]
    job = cluster.start(openmpi, "job", cluster.names, command, **STEADY)
    seen = [nodes.node_file(cluster.coordinator_of("job", name)) for name in cluster.names]
    jobs.wait_until(lambda: all(map(has_enough, seen)), "shutters", jobs.LIMIT_S)
    end.touch()
    assert job.wait() == 0, job.log
    assert "computed with 2 ranks" in job.log
    profile = job.profile()
    for other in others:
        nodes.stop(other)
    return profile


@pytest.mark.parametrize("neighbours", [["h0", "h1"], ["h1"]], ids=["both", "one"])
def test_shutters_are_at_one_instant_on_all_nodes(cluster, openmpi, tmp_path, neighbours):
    profile = run_beside(cluster, openmpi, neighbours, tmp_path / "end")
    tables = profile.tables
    hosts = [name.decode() for name in tables["nodes"]["hostname"]]
    offset_s, bound_s = (tables["nodes"][f"clock_{what}_s"] for what in ("offset", "bound"))
    true_s = np.array([nodes.CLOCK_STEP_S * cluster.names.index(name) for name in hosts])
    apart_s = (offset_s - offset_s[0]) - (true_s - true_s[0])
    assert (np.abs(apart_s) <= bound_s).all()
    assert (bound_s < 0.05).all()

    seen = tables["shutters"]
    by_node = [seen[seen["i_node"] == i] for i in range(len(hosts))]
    valid = [rows[rows["verdict"] == VALID] for rows in by_node]
    assert len(valid[0]) >= N_VALID, [rows["verdict"].tolist() for rows in by_node]
    begins_s = [rows["epoch"] * 1e-9 - true for rows, true in zip(valid, true_s, strict=True)]
    np.testing.assert_allclose(begins_s[0], begins_s[1], rtol=0, atol=bound_s.max())
    company = {hosts[row["i_node"]]: row["job_id"].decode() for row in tables["corunners"]}
    assert company == {name: f"other-{name}" for name in neighbours}
    # Half of the job waits for the other half: all of it is shared.
    assert tables["nodes"]["shared_s"].min() > SHARED_S
    assert profile.interference.n_used == sum(map(len, valid))


BUBBLED = VERDICTS.index("bubbled")
ON_ITS_PROCESSOR = "case $(hostname) in h0) cpu=%d;; *) cpu=%d;; esac; exec taskset -c $cpu"
BUBBLES = {"MPICOLOC_METER": "count", "MPICOLOC_SHUTTER_DUTY_FRAC": 0.5, "MPICOLOC_BUBBLE": 0.9,
           "MPICOLOC_BUBBLE_LEVELS": "3,7.5"}  # fmt: skip


@pytest.fixture
def rarely(tmp_path):
    """Open MPI with a program that computes and hardly calls it."""
    return jobs.need_mpi("openmpi", tmp_path, "rarely.c")


def processors(n):
    """So many of them."""
    cpus = sorted(os.sched_getaffinity(0))[:n]
    return cpus if len(cpus) == n else pytest.skip(f"needs {n} processors")


def bubbled_shutters(cluster, found, cpus, corunner_cpus=()):
    """Shutters of a job on both nodes, on a processor of each, beside jobs that have other ones."""
    calibration = calibrate.default_path()
    command = ["sh", "-c", f"{ON_ITS_PROCESSOR % tuple(cpus)} {found.program} 25"]
    others = [
        cluster.start(
            found, f"other-{name}", [name], ["taskset", "-c", f"{cpu}", found.program, "60"], **STEADY
        )
        for name, cpu in zip(cluster.names if corunner_cpus else (), corunner_cpus, strict=True)
    ]
    job = cluster.start(
        found, "job", cluster.names, command, MPICOLOC_BUBBLE_CALIBRATION=calibration, **BUBBLES
    )
    assert job.wait() == 0, job.log
    for other in others:
        nodes.stop(other)
    profile = job.profile()
    shutters = profile.tables["shutters"]
    if len(shutters) < 4:
        pytest.skip(f"{len(shutters)} shutters on this machine: {profile.tables['nodes']['bubble_reason']}")
    for number in np.unique(shutters["common"]):
        is_bubbled = shutters["verdict"][shutters["common"] == number] == BUBBLED
        assert is_bubbled.all() or not is_bubbled.any()
    assert set(shutters["bubble_level"]) <= {0.0, 3.0, 7.5}
    assert not ((shutters["bubble_level"] > 0) & (shutters["verdict"] == VALID)).any()
    return shutters


@pytest.mark.serial
def test_a_job_alone_on_its_nodes_has_shutters_for_bubbles_only(cluster, calibrated, rarely):
    shutters = bubbled_shutters(cluster, rarely, processors(2))
    assert (shutters["verdict"] == BUBBLED).any() and not (shutters["verdict"] == VALID).any()


@pytest.mark.serial
def test_bubbles_run_on_all_nodes_at_once(cluster, calibrated, rarely):
    cpus = processors(4)
    shutters = bubbled_shutters(cluster, rarely, cpus[:2], cpus[2:])
    with_level = shutters[shutters["bubble_level"] > 0]
    if not len(with_level) and (free := min(map(bubbled_jobs.free_frac, cpus[2:]))) < 0.9:
        pytest.skip(f"others have the processors: {free:.0%} of windows are free")
    assert len(np.unique(with_level["i_node"])) == 2
